"""Whether each fact has its page and day, and lies in the table."""

import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fastroai
from fastroai.usage import facts
from fastroai.usage.facts.documented import all_facts, providers
from fastroai.usage.facts.priors import prior_of
from fastroai.usage.facts.source import Source

MODULES = [
    importlib.import_module(module.name)
    for module in pkgutil.iter_modules(facts.__path__, f"{facts.__name__}.")
    if not module.name.endswith(".source")
]
PACKAGE = Path(fastroai.__file__).parent
NEUTRAL = {"github.com", "pypi.org"}
"""Hosts of pages about other things, too."""


def sources_in(fact: Any) -> Iterator[Source]:
    if isinstance(fact, Source):
        yield fact
    elif isinstance(fact, Mapping):
        yield from (source for value in fact.values() for source in sources_in(value))
    elif isinstance(fact, tuple | list):
        yield from (source for value in fact for source in sources_in(value))
    elif is_dataclass(fact) and not isinstance(fact, type):
        yield from (source for field in fields(fact) for source in sources_in(getattr(fact, field.name)))


CONSTANTS = [
    (name, value)
    for module in MODULES
    for name, value in vars(module).items()
    if re.fullmatch("[A-Z][A-Z_]+", name)
]
SOURCES = [source for module in MODULES for value in vars(module).values() for source in sources_in(value)]
SOURCES += sources_in(all_facts())
SOURCES += sources_in(prior_of("a model that no line has"))
MADE_FROM_OTHERS = {
    "HARMLESS_SETTINGS", "SERVER_SIDE_INPUT_SETTINGS",
}  # fmt: skip
UNDOCUMENTED = {"GATEWAY", "IMAGE_PROMPT", "OTHER"}
"""Margins for what no page documents; each is larger than all that was seen."""
NOT_OF_A_PAGE = {"LOCAL_PROVIDERS", "MAKERS", "PROVIDERS", "STRICT", "TYPE_CHECKING"}
"""How PydanticAI names providers, and how strictly files are read."""


def test_every_fact_has_a_source() -> None:
    without = {name for name, value in CONSTANTS if not any(True for _ in sources_in(value))}
    assert without == MADE_FROM_OTHERS | UNDOCUMENTED | NOT_OF_A_PAGE


def test_every_source_is_a_page_that_was_read_on_a_day() -> None:
    assert len(SOURCES) > 100
    for source in SOURCES:
        assert urlsplit(source.url).scheme == "https"
        assert urlsplit(source.url).hostname
        assert date(2026, 11, 1) <= source.checked <= date.today()


def test_rounds_of_searches_have_their_sources() -> None:
    for provider in providers().values():
        assert (provider.search_rounds is None) == (not provider.search_sources)


def test_no_other_module_names_a_page_of_a_provider() -> None:
    hosts = {urlsplit(source.url).hostname or "" for source in SOURCES} - NEUTRAL
    elsewhere = [
        f"{path.relative_to(PACKAGE)}: {host}"
        for path in PACKAGE.rglob("*.py")
        if Path(facts.__file__).parent not in path.parents
        for host in sorted(hosts)
        if f"//{host}/" in path.read_text()
    ]
    assert not elsewhere, f"move these facts to fastroai/usage/facts, with their sources: {elsewhere}"
