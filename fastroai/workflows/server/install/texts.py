"""The texts that are installed: instructions for agents, and skills."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

_FOLDER: Final = files("fastroai.workflows.server.install") / "skills"
_INSTRUCTIONS: Final = "instructions.md"


@cache
def instructions() -> str:
    """Return the instructions about workflows for the agents of a project."""
    return (_FOLDER / _INSTRUCTIONS).read_text(encoding="utf-8")


@cache
def skill_texts() -> Mapping[str, str]:
    """Return the texts of the skills, by the names of their folders: `fastroai-…`."""
    skills = sorted(one.name for one in _FOLDER.iterdir() if one.name != _INSTRUCTIONS)
    return {
        f"fastroai-{name.removesuffix('.md')}": (_FOLDER / name).read_text(encoding="utf-8")
        for name in skills
    }
