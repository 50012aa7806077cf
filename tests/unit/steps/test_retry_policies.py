"""Retries by failure class: in steps, in agent calls, in requests."""

from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError, UnexpectedModelBehavior
from support.agents import paid_agent
from support.steps import failure_of, run_alone
from support.virtual_time import in_virtual_time, now

from fastroai.errors import ConfigurationError, StepExecutionError, records_of
from fastroai.pipelines import Pipeline, PipelineConfig, StepConfig, StepContext, StepRetried, step
from fastroai.runtime import (
    DEFAULT_RETRY,
    FailureClass,
    FailureContext,
    RetriesUsed,
    RetryPolicy,
)

RECOVERABLE, TERMINAL, AMBIGUOUS = FailureClass.RECOVERABLE, FailureClass.TERMINAL, FailureClass.AMBIGUOUS

EXACT = {
    RECOVERABLE: RetryPolicy(3, backoff=1, jitter="none"),
    AMBIGUOUS: RetryPolicy(1, backoff=10, jitter="none"),
}
"""The ready-made policies, but with waits that can be told."""


class Script:
    """Fails with one exception after the other, then succeeds; notes when."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.times: list[float] = []

    async def __call__(self, *_: object) -> str:
        self.times.append(now())
        if self.failures:
            raise self.failures.pop(0)
        return "done"


def refused() -> Exception:
    return ConnectionRefusedError("refused")


@in_virtual_time
async def test_a_step_has_the_retries_of_each_class() -> None:
    script = Script(refused(), ValueError(), refused(), refused())
    assert (await run_alone(step(retry=EXACT)(script))).output == "done"
    assert script.times == [0, 1, 11, 13, 17]


@in_virtual_time
async def test_what_a_classifier_calls_terminal_is_not_tried_again() -> None:
    seen: list[tuple[str | None, int]] = []

    def final(error: BaseException, context: FailureContext) -> FailureClass | None:
        seen.append((context.step_id, context.attempt))
        return TERMINAL if isinstance(error, LookupError) else None

    script = Script(ValueError(), LookupError("final"))
    error = await failure_of(step(retries=5, classifiers=[final])(script))
    assert str(error) == "final"
    assert seen == [("alone", 1), ("alone", 2)]


# --- agent calls ---


@in_virtual_time
async def test_an_agent_call_has_the_policies_of_its_step_and_the_step_repeats_nothing_of_it() -> None:
    script = Script(*[UnexpectedModelBehavior("nonsense") for _ in range(9)])

    @step(retry=EXACT)
    async def asks(ctx: StepContext) -> None:
        await ctx.run(paid_agent(before=script), "hello")

    assert isinstance(await failure_of(asks), UnexpectedModelBehavior)
    assert script.times == [0, 10]


@pytest.mark.parametrize("sync", [False, True])
def test_policies_said_for_the_call_win(sync: bool) -> None:
    @in_virtual_time
    async def story() -> None:
        script = Script(ValueError(), ValueError())
        policy = RetryPolicy(2, backoff=3, jitter="none")

        def asks_in_thread(ctx: StepContext) -> str:
            return ctx.run_sync(paid_agent(before=script), "hello", retry=policy).output

        async def asks(ctx: StepContext) -> str:
            return (await ctx.run(paid_agent(before=script), "hello", retry=policy)).output

        await run_alone(step(retries=0)(asks_in_thread if sync else asks))
        assert script.times == [0, 3, 9]

    story()


@in_virtual_time
async def test_retries_said_for_the_call_win_over_policies_of_the_step() -> None:
    script = Script(ValueError(), ValueError())

    @step(retry=RetryPolicy(5))
    async def asks(ctx: StepContext) -> None:
        await ctx.run(paid_agent(before=script), "hello", retries=1, retry_delay=0)

    await failure_of(asks)
    assert len(script.times) == 2


@pytest.mark.parametrize("beside", [{"retries": 1}, {"retry_delay": 1}])
async def test_a_call_takes_one_of_the_two(beside: dict[str, Any]) -> None:
    async def asks(ctx: StepContext) -> None:
        await ctx.run(paid_agent(), "hello", retry=DEFAULT_RETRY, **beside)

    error = await failure_of(asks)
    assert isinstance(error, ConfigurationError)
    assert "no value with retry=" in str(error)


# --- requests ---


@in_virtual_time
async def test_requests_wait_as_the_recoverable_policy_says_and_it_is_on_the_record() -> None:
    script = Script(*[ModelHTTPError(503, "m") for _ in range(9)])

    @step(retry=EXACT)
    async def asks(ctx: StepContext) -> None:
        await ctx.run(paid_agent(before=script, request_retries=0), "hello")

    error = await failure_of(asks)
    assert isinstance(error, ModelHTTPError)
    assert script.times == [0, 1, 3, 7], "and neither the call nor the step begins again"
    records = records_of(error)
    assert [(record.attempt, record.backoff_ms) for record in records] == [
        (1, 0),
        (2, 1000),
        (3, 2000),
        (4, 4000),
    ]


@in_virtual_time
async def test_classifiers_have_their_say_about_requests_too() -> None:
    script = Script(*[ModelHTTPError(503, "m") for _ in range(9)])

    @step(classifiers=[lambda error, context: TERMINAL])
    async def asks(ctx: StepContext) -> None:
        await ctx.run(paid_agent(before=script, request_retries=5), "hello")

    await failure_of(asks)
    assert len(script.times) == 1


# --- on the record, and for a resumed run ---


@in_virtual_time
async def test_each_retry_is_told_with_its_class_its_wait_and_what_is_used() -> None:
    call = Script(UnexpectedModelBehavior("nonsense"))
    failures: list[Exception] = [refused(), ValueError("the step")]

    @step(retry=EXACT)
    async def asks(ctx: StepContext) -> None:
        await ctx.run(paid_agent(before=call), "hello")
        if failures:
            raise failures.pop(0)

    events = [event async for event in Pipeline[None, Any, None]("p", {"asks": asks}).stream()]
    told = [event for event in events if isinstance(event, StepRetried)]
    assert [(event.unit, event.failure_class, event.delay, event.attempt) for event in told] == [
        ("call", AMBIGUOUS, 10, 1),
        ("step", RECOVERABLE, 1, 1),
        ("step", AMBIGUOUS, 10, 2),
    ]
    assert [(event.step_id, str(event.error)) for event in told] == [
        ("asks", "nonsense"),
        ("asks", "refused"),
        ("asks", "the step"),
    ]
    assert told[-1].used == RetriesUsed(attempt=3, recoverable=1, ambiguous=1)


# --- policies of several places ---


def waits(retries: int, backoff: float) -> RetryPolicy:
    return RetryPolicy(retries, backoff=backoff, jitter="none")


@in_virtual_time
async def test_a_class_that_the_step_does_not_name_has_the_policy_of_the_pipeline() -> None:
    script = Script(refused(), ValueError(), refused(), ValueError("second"))
    careful = step(retry={AMBIGUOUS: waits(1, 50)})(script)
    error = await failure_of(
        careful, config=PipelineConfig(retry={RECOVERABLE: waits(2, 1), AMBIGUOUS: waits(9, 1)})
    )
    assert str(error) == "second"
    assert script.times == [0, 1, 51, 53]


@in_virtual_time
async def test_a_class_that_a_call_does_not_name_has_the_policy_of_the_step() -> None:
    script = Script(refused(), ValueError(), ValueError("second"))

    @step(retry={RECOVERABLE: waits(1, 1)})
    async def asks(ctx: StepContext) -> None:
        await ctx.run(paid_agent(before=script), "hello", retry={AMBIGUOUS: waits(1, 10)})

    assert str(await failure_of(asks)) == "second"
    assert script.times == [0, 1, 11]


@in_virtual_time
async def test_retries_between_two_places_keep_them_apart() -> None:
    script = Script(refused())
    named = StepConfig(retry={AMBIGUOUS: waits(1, 1)})
    steps = {"alone": step(retries=5)(script)}
    config = PipelineConfig(retry={RECOVERABLE: waits(3, 1)})
    pipeline = Pipeline[None, Any, str]("p", steps, step_configs={"alone": named}, config=config)
    with pytest.raises(StepExecutionError):
        await pipeline.execute()
    assert script.times == [0]
