"""The texts that are installed: instructions for agents, and skills."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

SKILLS: Final = (
    "onboard",
    "plan",
    "feature",
    "review",
    "debug",
    "refactor",
    "migrate",
    "test",
    "learn",
    "build",
    "speckit",
)
"""The skills; each is installed as `fastroai-…`."""


@cache
def instructions() -> str:
    """Return the instructions about workflows for the agents of a project."""
    return _text("instructions.md")


@cache
def skill_texts() -> Mapping[str, str]:
    """Return the texts of the skills, by the names of their folders."""
    return {f"fastroai-{name}": _text(f"{name}.md") for name in SKILLS}


def _text(name: str) -> str:
    return (files("fastroai.workflows.server.install") / "skills" / name).read_text(encoding="utf-8")
