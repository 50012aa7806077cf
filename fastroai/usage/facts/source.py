"""Sources of facts about providers, with the day on which they were read; and the shapes of facts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Final

from pydantic import BeforeValidator, ConfigDict, ValidationInfo

STRICT: Final = ConfigDict(extra="forbid")
"""Of what is read from a file: no other keys."""


def named(table: str) -> BeforeValidator:
    """Let a file name what a table of it has, as in `source = "models"`."""

    def look_up(value: object, info: ValidationInfo) -> object:
        if not isinstance(value, str):
            return value
        known = (info.context or {}).get(table, {})
        if value not in known:
            raise ValueError(f"one of [{table}]: {', '.join(known)}")
        return known[value]

    return BeforeValidator(look_up)


@dataclass(frozen=True, slots=True)
class Source:
    """A page that documents a fact."""

    __pydantic_config__ = STRICT
    url: str
    checked: date
    """The day on which the page, or a copy of it, was last read."""
    note: str = ""
    """The text of the page, in short, where the fact is not a plain copy of it."""


NamedSource = Annotated[Source, named("sources")]


@dataclass(frozen=True, slots=True)
class Names:
    """Names that an API gives to settings, tools, headers or the like."""

    names: frozenset[str]
    sources: tuple[Source, ...]

    @classmethod
    def of(cls, names: str, *sources: Source) -> Names:
        """Return names that are given as one text, with spaces between them."""
        return cls(frozenset(names.split()), sources)


@dataclass(frozen=True, slots=True)
class NamePattern:
    """Models or URLs that share a property, identified by their names."""

    names: re.Pattern[str]
    sources: tuple[Source, ...]

    @classmethod
    def of(cls, names: str, *sources: Source) -> NamePattern:
        """Return a pattern that is given as text."""
        return cls(re.compile(names), sources)


@dataclass(frozen=True, slots=True)
class Units:
    """The units by which things are sold, by the names that an API gives to these things."""

    of: Mapping[str, str]
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Factor:
    """How many times a listed price something costs."""

    times: Decimal
    source: Source


@dataclass(frozen=True, slots=True)
class TokenCount:
    """A number of tokens."""

    tokens: int
    source: Source | None = None
    """The page of the number. `None`: no page documents it, and it is larger than every number seen."""
