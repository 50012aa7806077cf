"""Evaluators over the results of a variant: a run of rows for each, so that what they spend is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Final, cast

from pydantic import BaseModel, ConfigDict, JsonValue

from fastroai.contracts.annotations import Annotation
from fastroai.evaluation.cases import Evaluator, EvaluatorContext, NamedCase, PydanticEvaluator, free_name
from fastroai.evaluation.code import code_digest, plain
from fastroai.evaluation.results import CaseResult, EvaluationResult
from fastroai.evaluation.tasks import CodeRows, call_in_thread
from fastroai.records import Usage
from fastroai.rows.table import RowTable
from fastroai.rows.target import RowCall
from fastroai.store.reading.as_json import json_text
from fastroai.store.record.declarations import digest

_SEEN: Final = ("cost_usd", "total_tokens", "request_count", "attempts")
"""The metrics that tell one result from another. Those that a later version adds evaluate nothing again."""


class _Value(BaseModel):
    """A value of an evaluator on record."""

    model_config = ConfigDict(strict=True)
    value: bool | int | float | str
    reason: str | None = None


@dataclass(frozen=True)
class ToEvaluate:
    """One output, and an evaluator for it."""

    result: CaseResult
    evaluator: Evaluator


@dataclass(frozen=True)
class EvaluatorRows(CodeRows):
    """An evaluator as what rows are given to: each is the result of a case."""

    name: str
    kind: str = "evaluator"
    returns: Annotation | None = dict[str, _Value]

    def as_json(self, inputs: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Return the name of the case, and a hash of all that the evaluator sees of it, and of its code."""
        one: ToEvaluate = inputs["one"]
        result = one.result
        metrics = {name: result.metrics[name] for name in _SEEN}
        seen = (result.inputs, result.metadata, result.expected_output, result.output, metrics)
        return {
            "case": result.name,
            "seen": digest(json_text(plain([*seen, result.duration_ms]))),
            "evaluator": code_digest(one.evaluator),
        }

    def declares(self) -> Mapping[str, str]:
        """Return nothing: each row says which code it is evaluated by."""
        return {}

    async def call(self, inputs: Mapping[str, Any], how: RowCall) -> dict[str, _Value]:
        """Evaluate one output.

        Raises:
            TypeError: the evaluator has returned something else than values.
        """
        one: ToEvaluate = inputs["one"]
        given = await self._evaluated(one)
        by_name = given if isinstance(given, Mapping) else {self.name: given}
        return {str(name): self._checked(value) for name, value in by_name.items()}

    async def _evaluated(self, one: ToEvaluate) -> Any:
        evaluator, result = cast("Any", one.evaluator), one.result
        of_pydantic = isinstance(evaluator, PydanticEvaluator)
        context: EvaluatorContext = EvaluatorContext(
            name=result.name,
            inputs=result.inputs,
            metadata=result.metadata,
            output=result.output,
            duration=result.duration_ms / 1000,
            metrics=result.metrics,
            reader="" if of_pydantic else self.name,
            given=result.expected_output,
        )
        if of_pydantic:
            return await evaluator.evaluate_async(context)
        return await call_in_thread(evaluator, context, f"evaluator {self.name!r}")

    def _checked(self, given: Any) -> _Value:
        value, reason = given, None
        if not isinstance(given, bool | int | float | str):
            value, reason = getattr(given, "value", given), getattr(given, "reason", None)
        if not isinstance(value, bool | int | float | str) or (
            isinstance(value, float) and not isfinite(value)
        ):
            raise TypeError(
                f"evaluator {self.name!r} returned {value!r}; a value is a bool, a finite number or a text"
            )
        return _Value(value=value, reason=reason)


@dataclass
class Evaluated:
    """The results of a variant, and what evaluators say of them."""

    results: dict[str, CaseResult]
    usage: Usage = field(default_factory=Usage)

    def rows(self, cases: Sequence[NamedCase]) -> Mapping[str, Sequence[ToEvaluate]]:
        """Return what each evaluator has to evaluate, by the name of the evaluator."""
        rows: dict[str, list[ToEvaluate]] = {}
        for case in cases:
            result = self.results.get(case.name)
            if result is not None and result.failure is None:
                for name, evaluator in case.evaluators.items():
                    rows.setdefault(name, []).append(ToEvaluate(result, evaluator))
        return rows

    async def include(self, evaluator: str, table: RowTable[Any], rows: Sequence[ToEvaluate]) -> None:
        """Take in what an evaluator has said of each case."""
        self.usage = self.usage + table.usage
        failures = {one.result.name: f"not evaluated: {table.reason or table.status}" for one in rows}
        async for row in table:
            del failures[row.key]
            if row.failure is not None:
                failures[row.key] = str(row.failure)
            else:
                self._add(evaluator, row.key, row.output or {})
        for name, reason in failures.items():
            known = self.results[name]
            told = {**known.evaluator_failures, evaluator: reason}
            self.results[name] = replace(known, evaluator_failures=told)

    def _add(self, evaluator: str, name: str, given: Mapping[str, _Value]) -> None:
        values = dict(self.results[name].evaluations)
        for label, one in given.items():
            found = EvaluationResult(value=one.value, reason=one.reason, source=evaluator)
            values[free_name(label, values)] = found
        self.results[name] = replace(self.results[name], evaluations=values)
