"""Loops of a step: when they end, and the items that are gathered in them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from pydantic import JsonValue

from fastroai.workflows.spec.document import IterationSpec

IterationOutcome: TypeAlias = Literal["continue", "exit_success", "exit_max", "exit_abort"]
"""The effect of a report or an abort on a loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The outcome of a report to a loop."""

    iteration: int
    outcome: IterationOutcome
    exit_criterion_met: bool = False
    """Whether the exit criterion holds."""
    exit_criterion_error: str | None = None
    """Why the exit criterion could not be evaluated."""
    accumulated_count: int | None = None
    new_count: int | None = None
    dry_streak: int | None = None
    extraction_error: str | None = None
    """Why no items could be read from the result."""
    reason: str = ""


@dataclass(slots=True)
class Loop:
    """The loop of one entry of a step."""

    visit: int
    """Number of the visit in which the loop began."""
    count: int = 0
    outcome: IterationOutcome = "continue"
    items: list[JsonValue] = field(default_factory=list)
    """Items gathered so far, each once."""
    seen: set[str] = field(default_factory=set)
    dry_streak: int = 0
    """Number of reports in a row that brought no new item."""

    @property
    def is_active(self) -> bool:
        """Whether the loop takes reports."""
        return self.outcome == "continue"

    def copied(self) -> Loop:
        """Return a copy that shares nothing that can change."""
        return replace(self, items=[*self.items], seen={*self.seen})

    def report(self, spec: IterationSpec, result: JsonValue) -> Reported:
        """Take in a result, and return what it means for the loop."""
        self.count += 1
        data: dict[str, object] = {"result": result}
        new, error = None, None
        if spec.accumulate is not None:
            found, error = _items(spec, result)
            new = self._gather(found)
            if error is None:
                self.dry_streak = 0 if new else self.dry_streak + 1
            data |= {
                "accumulator": self.items,
                "accumulated_count": len(self.items),
                "new_count": new,
                "dry_streak": self.dry_streak,
            }
        is_met, criterion_error = False, None
        if spec.exit_criterion is not None:
            outcome = spec.exit_criterion.test(data)
            is_met = outcome.holds
            if outcome.missing is not None or outcome.problem is not None:
                criterion_error = outcome.explain()
        if is_met:
            self.outcome = "exit_success"
        elif self.count >= spec.max_iterations:
            self.outcome = "exit_max"
        gathers = spec.accumulate is not None
        return Reported(
            iteration=self.count,
            outcome=self.outcome,
            exit_criterion_met=is_met,
            exit_criterion_error=criterion_error,
            accumulated_count=len(self.items) if gathers else None,
            new_count=new,
            dry_streak=self.dry_streak if gathers else None,
            extraction_error=error,
        )

    def abort(self, reason: str) -> Reported:
        """End the loop early."""
        self.outcome = "exit_abort"
        return Reported(iteration=self.count, outcome="exit_abort", reason=reason)

    def _gather(self, found: list[tuple[str, JsonValue]]) -> int:
        new = 0
        for key, item in found:
            if key not in self.seen:
                self.seen.add(key)
                self.items.append(item)
                new += 1
        return new


def merged(spec: IterationSpec, loop: Loop, result: JsonValue) -> JsonValue:
    """Return the result of a step with everything that its loop has gathered: see `ACCUMULATED_FIELDS`.

    Items that only the result has come after the items of the loop.
    """
    if spec.accumulate is None or not isinstance(result, dict):
        return result
    whole = loop.copied()
    whole._gather(_items(spec, result)[0])
    gathered: dict[str, JsonValue] = {"accumulated": [*whole.items], "accumulated_count": len(whole.items)}
    return {**result, spec.accumulate: whole.items, **gathered}


def _items(spec: IterationSpec, result: JsonValue) -> tuple[list[tuple[str, JsonValue]], str | None]:
    """Return the items of a result, each with the key by which equal items are found; or why it has none."""
    assert spec.accumulate is not None
    if not isinstance(result, dict):
        return [], f"the result is {_type(result)}, not an object with {spec.accumulate!r}"
    if spec.accumulate not in result:
        return [], f"the result has no field {spec.accumulate!r}"
    items = result[spec.accumulate]
    if not isinstance(items, list):
        return [], f"{spec.accumulate!r} is {_type(items)}, not an array"
    found: list[tuple[str, JsonValue]] = []
    for number, item in enumerate(items):
        if spec.accumulate_key is None:
            found.append((_canonical(item), item))
        elif isinstance(item, dict) and spec.accumulate_key in item:
            found.append((_canonical(item[spec.accumulate_key]), item))
        else:
            return [], f"{spec.accumulate}[{number}] has no field {spec.accumulate_key!r}"
    return found, None


def _canonical(value: JsonValue) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _type(value: JsonValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case dict():
            return "an object"
