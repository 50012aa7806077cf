"""The files with what providers document: what is in them is checked where it is read."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fastroai
from fastroai.errors import ConfigurationError
from fastroai.usage.facts.documented import all_facts
from fastroai.usage.facts.provider import read_facts

DATA = Path(fastroai.__file__).parent / "usage" / "facts" / "data"
FILES = sorted(DATA.glob("*.toml"))
SOURCES = """
[sources]
prices = {url = "https://example.com/prices", checked = 2026-11-22}
"""
PRICE = """
[[regional_prices]]
hosts = 'eu\\.example\\.com'
factor = 1.1
source = "prices"
"""


def test_a_line_has_its_source_by_name() -> None:
    [price] = read_facts("mine.toml", SOURCES + PRICE).regional_prices
    assert (str(price.factor), price.source.url) == ("1.1", "https://example.com/prices")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hosts = [", "mine.toml needs valid TOML: Invalid value (at end of document)"),
        (f"{SOURCES}[sources]", "mine.toml needs valid TOML: Cannot declare ('sources',) twice (at line 4,"),
        (
            SOURCES + PRICE.replace("1.1", '"much"'),
            "mine.toml: regional_prices.0.factor='much': expected Input should be a valid decimal",
        ),
        (
            SOURCES + PRICE.replace('"prices"', '"price"'),
            "mine.toml: regional_prices.0.source='price': expected Value error, one of [sources]: prices",
        ),
        (SOURCES + PRICE.replace("factor", "facter"), "mine.toml: regional_prices.0.facter="),
        (PRICE.replace('source = "prices"', ""), "mine.toml: regional_prices.0.source={"),
        (
            SOURCES.replace('"https://example.com/prices"', "3") + PRICE,
            "mine.toml: regional_prices.0.source.url=3: expected Input should be a valid string",
        ),
        (SOURCES + PRICE.replace("eu", "(eu"), "expected Input should be a valid regular expression"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_the_file_and_the_place(text: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_facts("mine.toml", text)
    assert told in str(caught.value)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_name_that_a_file_declares_is_used_in_it(file: Path) -> None:
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    tables = {name: data.get(name, {}) for name in ("sources", "images", "pdfs")}
    text = json.dumps({**data, "sources": {}}, default=str)
    assert [one for names in tables.values() for one in names if f'"{one}"' not in text] == []


def test_every_file_is_read() -> None:
    assert set(all_facts()) == {file.stem for file in FILES}
    assert len(FILES) > 5


def test_importing_fastroai_reads_no_facts() -> None:
    program = (
        "import sys, fastroai; print([one for one in sys.modules if 'usage.facts' in one or 'toml' in one])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_example_for_contributors_is_a_file() -> None:
    page = (Path(__file__).parents[4] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    example = page.split("```toml\n")[1].split("```")[0]
    [price] = read_facts("xai.toml", example).regional_prices
    [listed] = all_facts()["xai"].regional_prices
    assert (price.hosts, str(price.factor), str(listed.factor)) == (listed.hosts, "1.2", "1.1")
