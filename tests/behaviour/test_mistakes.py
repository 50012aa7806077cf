"""Mistakes that newcomers make: the error says what was wrong, where, and what to write."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.models.test import TestModel

from fastroai import (
    Budget,
    FastroAgent,
    MemoryRunStore,
    Pipeline,
    PipelineConfig,
    SpendLimit,
    SQLiteRunStore,
    StepContext,
    StepExecutionError,
    compute,
    step,
)
from fastroai.errors import ConfigurationError, PipelineValidationError, ValueNotStorable
from fastroai.functions import CompileError
from fastroai.usage import SpendBook


class Opaque: ...


@step
async def one(ctx: StepContext) -> int:
    return 1


@step
async def deep(ctx: StepContext) -> dict[str, object]:
    return {"rows": [date(2026, 1, 2), {"cell": Opaque()}]}


@step(retries=2, retry_delay=0.0)
async def broken(ctx: StepContext) -> None:
    raise RuntimeError("soon")


def said(called: Any, *args: Any, **options: Any) -> str:
    with pytest.raises((ValueError, TypeError)) as raised:
        called(*args, **options)
    return str(raised.value)


def test_what_is_deep_in_an_output_of_any_objects_is_named_with_what_to_do() -> None:
    with pytest.raises(StepExecutionError) as failed:
        Pipeline("p", {"deep": deep}).run_sync(store=MemoryRunStore())
    told = str(failed.value.original_error)
    assert "Opaque at rows[1].cell: Unable to serialize unknown type" in told
    assert "(dict[str, object]); declare a type that says what is there, or convert the value" in told


def test_an_input_that_cannot_be_stored_says_where_the_types_of_inputs_are_declared() -> None:
    with pytest.raises(ValueNotStorable, match=r"declare the type of the input \(accepts=\), or convert"):
        Pipeline("p", {"one": one}).run_sync({"x": Opaque()}, store=MemoryRunStore())


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    assert f"such as '{tmp_path}/runs.db'; that is a folder" in said(SQLiteRunStore, tmp_path)
    assert "that is a folder" in said(PipelineConfig, store=str(tmp_path))


async def test_a_spend_limit_takes_the_path_of_its_store_as_runs_do(tmp_path: Path) -> None:
    place = tmp_path / "spend.db"
    limit = SpendLimit(usd=1, store=str(place))
    await FastroAgent(TestModel(), budget=SpendLimit(usd=1, store=place, on_unpriced="allow")).run("hi")
    assert (await limit.status()).spent_usd == 0
    assert [status.key for status in await SpendBook(str(place)).list()] == ["default"]
    assert "'mysql://host'" in said(SpendLimit, usd=1, store="mysql://me:secret@host")
    assert "the path or URL of one" in said(SpendLimit, usd=1, store=5)


def test_an_id_of_a_run_is_text() -> None:
    assert "run_id=5: expected text of 1 to 200 characters" in said(
        Pipeline("p", {"one": one}).run_sync, run_id=5
    )


def test_a_budget_of_time_takes_a_timedelta() -> None:
    assert Budget(ms=timedelta(seconds=5)) == Budget(ms=5_000)
    assert "here, it is ms=, which takes a timedelta" in said(Budget, seconds=5)
    assert "at least 1" in said(Budget, ms=timedelta(microseconds=5))


def test_a_dependency_that_is_like_no_step_is_told_the_steps() -> None:
    with pytest.raises(PipelineValidationError, match=r"is not a step\. The steps are 'one', 'deep'\.$"):
        Pipeline("p", {"one": one, "deep": deep}, {"one": ["classify"]})


def test_a_condition_that_is_text_is_one_problem() -> None:
    with pytest.raises(CompileError, match="^function 'half': ensure='r > 1': expected a list of functions"):

        @compute(ensure="r > 1")  # type: ignore[call-overload]
        def half(number: int) -> float:
            return number / 2


def test_a_step_that_misses_its_deps_notes_that_the_run_was_given_none() -> None:
    @step
    async def asks(ctx: StepContext[Any]) -> str:
        return str(ctx.deps.name)

    note = "ctx.deps of step 'asks' is None: the run was given no deps="
    for deps, notes in ((None, [note]), (object(), [])):
        with pytest.raises(StepExecutionError) as failed:
            Pipeline("p", {"asks": asks}).run_sync(deps=deps)
        assert getattr(failed.value.original_error, "__notes__", []) == notes


def test_a_run_that_goes_on_after_failures_counts_them() -> None:
    pipeline = Pipeline(
        "p", {"broken": broken, "one": one}, output_step="one", config=PipelineConfig(on_error="continue")
    )
    ended = pipeline.run_sync().trace.ended
    assert ended is not None
    assert ended.reason == "every step that could run has run, and 1 failed"


def test_other_options_with_such_errors_are_as_before() -> None:
    with pytest.raises(ConfigurationError, match="tenant=5: expected printable text"):
        Pipeline("p", {"one": one}).run_sync(tenant=5)  # type: ignore[call-overload]
