"""The quality of a run that no failure stopped."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import Final

from fastroai.runs.running.units import BegunUnit
from fastroai.runtime import Scope
from fastroai.store.reading.run_quality import Quality

_is_degraded: Final = attrgetter("degraded")


def quality_of(scope: Scope, errors: Collection[object], units: Iterable[BegunUnit]) -> Quality:
    """Return the quality of the run in `scope`, which went on after `errors` and has these units."""
    is_degraded = bool(errors) or any(map(_is_degraded, units))
    if not is_degraded and scope.has_spent:
        is_degraded = any(charge.record.is_doubtful for charge in scope.spending.charges)
    return "degraded" if is_degraded else "clean"
