"""How good a run was that no failure stopped."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal, TypeAlias

from fastroai.runtime import Scope

Quality: TypeAlias = Literal["clean", "degraded"]


def quality_of(scope: Scope, errors: Collection[object], steps: Iterable[Scope]) -> Quality:
    """Of the run in `scope`, with the failures that it went on after, and the scopes of its steps."""
    degraded = bool(errors) or any(step.degraded for step in steps)
    return "degraded" if degraded or any(record.is_doubtful for record in scope.records) else "clean"
