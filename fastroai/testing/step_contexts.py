"""A context for a unit test of one step, without a pipeline."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from time import perf_counter
from types import MappingProxyType
from typing import Any

from typing_extensions import TypeVar

from fastroai.human.asking import PreparedAnswers, prepared_answers
from fastroai.runtime import Scope, current_scope
from fastroai.steps import PipelineConfig, StepConfig, StepContext
from fastroai.steps.attempt import AttemptState
from fastroai.steps.config import resolve
from fastroai.steps.context import RunData, StepData
from fastroai.steps.execution import map_step
from fastroai.steps.outputs import Outputs
from fastroai.steps.shared import Shared

DepsT = TypeVar("DepsT", default=None)


@asynccontextmanager
async def step_context(
    inputs: Mapping[str, Any] | None = None,
    deps: DepsT = None,  # type: ignore[assignment]  # as the default of the type variable says
    *,
    outputs: Mapping[str, Any] | None = None,
    answers: Mapping[str, Any] | Callable[[object], object] | None = None,
    context: MutableMapping[str, Any] | None = None,
    config: StepConfig | None = None,
    step_id: str = "step",
) -> AsyncGenerator[StepContext[DepsT], None]:
    """Open a real `StepContext` for a unit test of one step, without a pipeline and without a store.

        async with step_context({"text": "Where is it?"}, outputs={"classify": "delivery"}) as ctx:
            assert await reply(ctx) == "On its way."
            assert ctx.usage.request_count == 1

    The costs of agents that the step calls are counted in `ctx.usage`, and budgets hold. Requests go to the
    models that the agents have, so real models cost money. You call the step yourself, once, without retries,
    time limits or contracts. After the block, calls of agents in the context raise `ScopeClosedError`.

    Args:
        inputs: The values that the step reads with `ctx.get_input`; none by default.
        deps: The `ctx.deps` of the step.
        outputs: Outputs of the steps that it depends on, by step id, for `ctx.get_dependency`.
        answers: Answers to what the step asks people, with `ctx.ask` or `await_human`: by the text of the
            question, or by its `name=`; or a function that is called with the question and returns the
            answer. They are checked like answers of people. Runs that begin in the context get them, too. A
            question that has no answer here, or one that does not fit, raises `ConfigurationError` in the
            step; so does every question by default.
        context: The mapping that the step has as `ctx.shared`; a new one by default.
        config: Settings for the calls of agents in the step, and its budget; the defaults of a step if it is
            `None`.
        step_id: The id of the step.
    """
    resolved = resolve(config or StepConfig(), pipeline=PipelineConfig())
    before = dict(outputs or {})
    seen = Outputs({step_id: tuple(before), **dict.fromkeys(before, ())})
    seen.values.update(before)
    async with Scope("pipeline", "test", parent=current_scope()) as run:
        prepared_answers[run] = PreparedAnswers(answers if callable(answers) else dict(answers or {}))
        shared = Shared.of(context)
        data = StepData(RunData(run.name, run.path, shared), MappingProxyType(dict(inputs or {})), seen)
        async with Scope("step", step_id, parent=run, limits=resolved.limits, deps=deps) as scope:
            attempt = AttemptState(scope)
            ctx = StepContext(attempt, data, deps, resolved, perf_counter(), map_step)
            try:
                yield ctx
            finally:
                attempt.is_over = True
