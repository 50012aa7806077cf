"""The name of the distribution is one setting, and the library does not start beside its namesake."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastroai.errors import MissingExtraError
from fastroai.version import DISTRIBUTION, refuse_namesake

ROOT = Path(__file__).parents[2]
FOLDERS = ("fastroai", "docs", "examples", "tests", "benchmarks", ".ci")
NAMED = re.compile(
    r"pip (?P<un>un)?install\s+(?P<words>[^`\n]*)"
    r"|--from (?P<source>\S+)"
    r"|(?P<extra>\bfastroai[\w.-]*)\[[a-z][a-z,-]*\]"
    r"|(?:\bversion|\bdistribution)\(['\"](?P<metadata>fastroai[^'\"]*)"
)
"""The ways to name a distribution: in commands, with extras, and in calls of `importlib.metadata`."""


def distributions_in(text: str) -> Iterator[str]:
    """The names that a text gives to distributions of ours, but those to remove."""
    for found in NAMED.finditer(text):
        words = [*(found["words"] or "").split(), found["source"], found["extra"], found["metadata"]]
        for word in words:
            name = re.match(r"['\"]*(fastroai(?!\.)[\w-]*)", word or "")
            if name and not found["un"]:
                yield name[1]


def test_every_install_line_names_the_distribution_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*") if file.is_file()]
    files += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml")]
    texts = {
        file: file.read_text(encoding="utf-8", errors="replace")
        for file in files
        if file.suffix in {".md", ".py", ".toml", ".txt", ".yaml", ".yml", ".ipynb", ".sh", ""}
        and "__pycache__" not in file.parts
        and file != Path(__file__)
    }
    named = {(file, name) for file, text in texts.items() for name in distributions_in(text)}
    assert {file.name for file, _ in named} >= {"pyproject.toml", "fastapi.md", "server.py"}, "they are found"
    assert {(str(file), name) for file, name in named if name != DISTRIBUTION} == set()
    assert f"pip install '{DISTRIBUTION}[redis]'" in str(MissingExtraError("a store", "redis", "redis"))


@pytest.mark.parametrize(
    "text",
    [
        "pip install -U 'fastroai[web]'",
        "uvx --from fastroai fastroai",
        "fastroai[cli]",
        'version("fastroai")',
    ],
)
def test_another_name_is_found(text: str) -> None:
    assert set(distributions_in(text)) == {"fastroai"}


def install(folder: Path, name: str, **files: str) -> Path:
    metadata = folder / f"{name}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fastroai\nVersion: 0.6.0\n")
    for file, text in files.items():
        (metadata / file.replace("__", ".")).write_text(text)
    return folder


OURS = "[pytest11]\nfastroai = fastroai.testing.pytest_plugin\n"


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"direct_url__json": '{"dir_info": {"editable": true}, "url": "file:///x"}'},
        {"entry_points__txt": OURS},
    ],
    ids=["theirs", "a checkout of theirs", "a wheel of ours from before"],
)
def test_a_start_beside_the_namesake_says_what_to_do(tmp_path: Path, files: dict[str, str]) -> None:
    install(tmp_path, "fastroai-0.6.0", **files)
    started = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.append({str(tmp_path)!r}); import fastroai"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    assert started.returncode == 1
    assert started.stderr.splitlines()[-1] == (
        f"ImportError: the distribution 'fastroai' is installed in {str(tmp_path)!r}. It has the import name "
        "of 'fastroai-runs', so each replaces files of the other. "
        "Run: pip uninstall --yes fastroai fastroai-runs — and install 'fastroai-runs' again"
    )


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("fastroai_runs-0.1.0", {}),
        ("fastroai_other-1.0", {}),
        (
            "fastroai-0.1.0.dev0",
            {"direct_url__json": '{"dir_info": {"editable": true}}', "entry_points__txt": OURS},
        ),
    ],
    ids=["ours", "a package beside it", "a checkout of ours, installed under the name from before"],
)
def test_it_starts_beside_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, files: dict[str, str]
) -> None:
    monkeypatch.syspath_prepend(str(install(tmp_path, name, **files)))
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "missing")])
    refuse_namesake()
