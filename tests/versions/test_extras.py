"""Whether what each extra needs can be installed, and all extras together. Asks the index, through uv."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def resolve(*extras: str) -> str:
    """What would be installed with some extras, one package a line."""
    asked = [f"--extra={extra}" for extra in extras]
    uv = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-annotate", "--no-header"]
    command = [*uv, *asked, "pyproject.toml"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, f"{', '.join(extras)} cannot be installed together: {found.stderr}"
    return found.stdout


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_resolves(extra: str) -> None:
    assert "pydantic-ai-slim==2." in resolve(extra)


def test_all_extras_resolve_together_those_of_development_among_them() -> None:
    # pydantic-evals pins one version of PydanticAI, which is not always the newest.
    assert "pydantic-ai-slim==2." in resolve(*(extra for extra in EXTRAS if extra != "evals"))
