"""How good a run was that no failure stopped."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import Final, Literal, TypeAlias

from fastroai.runs.units import BegunUnit
from fastroai.runtime import Scope

Quality: TypeAlias = Literal["clean", "degraded"]

_is_degraded: Final = attrgetter("degraded")


def quality_of(scope: Scope, errors: Collection[object], units: Iterable[BegunUnit]) -> Quality:
    """Of the run in `scope`, with the failures that it went on after, and its steps."""
    degraded = bool(errors) or any(map(_is_degraded, units))
    return "degraded" if degraded or any(record.is_doubtful for record in scope.records) else "clean"
