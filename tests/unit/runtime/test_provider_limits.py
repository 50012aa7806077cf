"""Provider limits and circuit breakers as agents and pipelines meet them, in virtual time."""

from __future__ import annotations

import asyncio
import pickle
import threading
from asyncio import Event
from collections.abc import AsyncIterator
from contextlib import nullcontext
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelHTTPError, UnexpectedModelBehavior
from pydantic_ai.messages import AgentStreamEvent, ModelMessage
from support.agents import paid_agent, prompt_of, streaming_agent
from support.leftovers import assert_no_task_is_left
from support.patience import PATIENCE
from support.scripted import Answer, ScriptedModel
from support.tracing import RecordingTracer
from support.virtual_time import in_virtual_time, now

from fastroai.agent import AgentConfig, FastroAgent
from fastroai.agent.requests.permits import ModelCircuitOpenError
from fastroai.errors import (
    BudgetExceeded,
    CircuitOpenError,
    ConfigurationError,
    RequestBudgetExceeded,
    StepExecutionError,
    TimeLimitExceeded,
)
from fastroai.pipelines import Pipeline
from fastroai.runtime import (
    CircuitBreaker,
    CircuitClosed,
    CircuitOpened,
    CircuitState,
    FailureClass,
    ProviderLimit,
    classify,
)
from fastroai.runtime.fact_base import RunEvent
from fastroai.runtime.providers.provider_line import Ticket
from fastroai.runtime.providers.provider_queue import Waiting
from fastroai.runtime.retrying.http_signals import retry_after
from fastroai.steps import PipelineConfig, StepConfig, StepContext, step
from fastroai.usage import Budget, CostCalculator, ModelFallback, NearMissWarning

PROVIDER = "function"
"""What PydanticAI calls the provider of the models here."""
PRICES = CostCalculator(
    pricing_overrides={
        f"scripted:{name}": {"input_per_mtok": 1, "output_per_mtok": 1} for name in ("paid", "cheap")
    }
)


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits go by the time of the loop."""
    for module in ("provider_limits", "circuit_breaker"):
        monkeypatch.setattr(f"fastroai.runtime.providers.{module}.monotonic", now)


def is_free(limit: ProviderLimit, provider: str = PROVIDER) -> bool:
    status = limit.status(provider)
    desk = limit.queue(provider)
    return (status.in_flight, status.waiting, len(desk._alarms)) == (0, 0, 0)


PER_REQUEST = {
    "function:paid": {"input_per_mtok": 0, "output_per_mtok": 0, "per_request": Decimal("0.0001")},
    "scripted:cheap": {"input_per_mtok": 0, "output_per_mtok": 0, "per_request": Decimal("0.00001")},
}


class Traffic:
    """Requests that take their time, and how many there were at once."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds, self.at_once, self.most = seconds, 0, 0
        self.started: list[tuple[str, float]] = []

    async def __call__(self, prompt: str) -> None:
        self.started.append((prompt, now()))
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.at_once -= 1


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel it and see its end."""
    task.cancel()
    await asyncio.wait([task])


# --- concurrency ---


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_agents_and_pipelines_that_share_a_limit_share_its_places_in_the_order_of_coming() -> None:
    traffic, limit = Traffic(), ProviderLimit(max_concurrency=2)
    one = paid_agent(before=traffic, provider_limits={PROVIDER: limit})
    other = paid_agent(before=traffic)

    @step
    async def ask(ctx: StepContext[None]) -> str:
        return (await ctx.run(other, "from a step")).output

    pipeline = Pipeline("p", {"ask": ask}, config=PipelineConfig(provider_limits={"*": limit}))
    calls = [asyncio.ensure_future(one.run(f"{number}")) for number in range(4)]
    await asyncio.sleep(0)
    await asyncio.gather(pipeline.execute(), *calls)
    assert traffic.most == 2
    assert [prompt for prompt, _ in traffic.started] == ["0", "1", "2", "3", "from a step"]
    assert now() == 3.0
    assert is_free(limit)
    assert_no_task_is_left()


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_a_request_under_two_limits_keeps_both_and_under_one_twice_takes_one_place() -> None:
    traffic, narrow, wide = Traffic(), ProviderLimit(max_concurrency=1), ProviderLimit(max_concurrency=3)
    one = paid_agent(before=traffic, provider_limits={PROVIDER: narrow})
    two = paid_agent(before=traffic, provider_limits={PROVIDER: wide})

    @step
    async def ask(ctx: StepContext[None]) -> None:
        await asyncio.gather(ctx.run(one, "1"), ctx.run(one, "2"), ctx.run(two, "3"))

    for limits in ({PROVIDER: wide}, {PROVIDER: narrow}):
        await Pipeline("p", {"ask": ask}, config=PipelineConfig(provider_limits=limits)).execute()
    assert [at for _, at in traffic.started] == [0.0, 0.0, 1.0, 2.0, 3.0, 4.0]
    assert is_free(narrow)
    assert is_free(wide)


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_each_provider_without_a_key_has_a_limit_of_its_own() -> None:
    limit = ProviderLimit(max_concurrency=1)
    scripted = ScriptedModel(lambda name, messages, most: Answer(1, seconds=1.0))
    elsewhere = FastroAgent(scripted, cost_calculator=PRICES, provider_limits={"*": limit})
    here = paid_agent(before=Traffic(), provider_limits={"*": limit})
    free = paid_agent(before=Traffic(), provider_limits={"another": limit})
    await asyncio.gather(elsewhere.run("a"), here.run("b"), *(free.run("c") for _ in range(3)))
    assert now() == 1.0


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_waiting_does_not_run_the_clock_of_an_attempt() -> None:
    traffic, limit = Traffic(seconds=1.0), ProviderLimit(max_concurrency=1)
    agent = paid_agent(before=traffic, timeout=1.5, provider_limits={PROVIDER: limit})
    await asyncio.gather(*(agent.run(f"{number}") for number in range(4)))
    assert now() == 4.0


async def test_the_record_and_the_span_of_a_request_say_how_long_it_waited() -> None:
    limit, tracer, asked, gate = ProviderLimit(max_concurrency=1), RecordingTracer(), Event(), Event()

    async def wait(prompt: str) -> None:
        asked.set()
        await gate.wait()

    agent = paid_agent(before=wait, provider_limits={PROVIDER: limit})
    first = asyncio.ensure_future(agent.run("first"))
    await asked.wait()
    second = asyncio.ensure_future(agent.run("second", tracer=tracer))
    while not limit.status(PROVIDER).waiting:
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    gate.set()
    await first
    waited = (await second).records[0].waited_ms
    assert waited > 45
    span = next(span for span in tracer.spans if span.name == "chat paid")
    assert span.attributes["fastroai.limit.waited_ms"] == waited


async def test_the_loading_of_what_reads_responses_is_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 0.0

    async def load(*_: object, **__: object) -> None:
        nonlocal seconds
        seconds += 100

    monkeypatch.setattr("fastroai.agent.requests.request_attempt.load_response_types", load)
    monkeypatch.setattr("fastroai.agent.requests.request_attempt.perf_counter", lambda: seconds)
    assert (await paid_agent().run("?")).records[0].waited_ms == 0


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_deadlines_of_steps_hold_while_a_request_waits() -> None:
    traffic, limit = Traffic(seconds=10.0), ProviderLimit(max_concurrency=1)
    agent = paid_agent(before=traffic, provider_limits={PROVIDER: limit})
    holder = asyncio.ensure_future(agent.run("holder"))
    await asyncio.sleep(0.1)

    @step
    async def ask(ctx: StepContext[None]) -> None:
        await ctx.run(agent, "late")

    for config in (StepConfig(total_timeout=1.0), StepConfig(budget=Budget(ms=1000))):
        with pytest.raises(StepExecutionError):
            await Pipeline("p", {"ask": ask}, step_configs={"ask": config}).execute()
    assert now() == pytest.approx(2.1)
    assert limit.status(PROVIDER).waiting == 0
    await holder
    assert [prompt for prompt, _ in traffic.started] == ["holder"]


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_whoever_is_cancelled_in_line_leaves_it() -> None:
    traffic, limit = Traffic(), ProviderLimit(max_concurrency=1)
    agent = paid_agent(before=traffic, provider_limits={PROVIDER: limit})
    calls = [asyncio.ensure_future(agent.run(f"{number}")) for number in range(3)]
    await asyncio.sleep(0.5)
    await cancelled(calls[1])
    await asyncio.wait(calls)
    assert [prompt for prompt, _ in traffic.started] == ["0", "2"]
    assert is_free(limit)
    assert_no_task_is_left()


async def test_whoever_is_cancelled_when_it_was_their_turn_lets_the_next_one_go() -> None:
    limit, went = ProviderLimit(max_concurrency=1, requests_per_minute=3), list[str]()
    desk = limit.queue(PROVIDER)

    async def go(name: str) -> Ticket:
        ticket = Ticket(0)
        await desk.wait_turn(ticket, Waiting(lambda: None, lambda wake: nullcontext(), nullcontext))
        went.append(name)
        return ticket

    first = await go("first")
    desk.send(first)
    unlucky, lucky = asyncio.ensure_future(go("unlucky")), asyncio.ensure_future(go("lucky"))
    await asyncio.sleep(0)
    desk.end(first, None)
    unlucky.cancel()  # it is its turn, and it has not noticed
    desk.give_back(await lucky)
    assert went == ["first", "lucky"]
    assert limit.status(PROVIDER).requests_last_minute == 1, "what was not sent was given back"
    assert is_free(limit)


# --- rates ---


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_no_more_requests_leave_in_a_minute_than_the_provider_takes() -> None:
    traffic, limit = Traffic(seconds=0.0), ProviderLimit(requests_per_minute=3)
    agent = paid_agent(before=traffic, provider_limits={PROVIDER: limit})
    await agent.run("0")
    await asyncio.sleep(20.0)
    await asyncio.gather(*(agent.run(f"{number}") for number in range(1, 8)))
    assert [at for _, at in traffic.started] == [0.0, 20.0, 20.0, 60.0, 80.0, 80.0, 120.0, 140.0]
    assert [prompt for prompt, _ in traffic.started] == [f"{number}" for number in range(8)]
    assert is_free(limit)


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_tokens_are_expected_and_then_corrected_by_what_was_used() -> None:
    started: list[float] = []

    def plan(name: str, messages: list[ModelMessage], most: int | None) -> Answer:
        started.append(now())
        return Answer(50, input_tokens=50)

    limit = ProviderLimit(tokens_per_minute=1_000)
    agent = FastroAgent(
        ScriptedModel(plan), cost_calculator=PRICES, max_tokens=700, provider_limits={"scripted": limit}
    )
    await asyncio.gather(*(agent.run("hi") for _ in range(3)))
    assert started == [0.0, 0.0, 0.0], "one after the other, as each turned out to be short"
    assert limit.status("scripted").tokens_last_minute == 300
    await asyncio.gather(*(agent.run("hi") for _ in range(4)))
    assert started == [0.0] * 7, "what answers have had counts, and not max_tokens"


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_a_request_larger_than_the_limit_goes_alone() -> None:
    traffic, limit = Traffic(), ProviderLimit(tokens_per_minute=100)
    agent = paid_agent(60, before=traffic, max_tokens=10_000, provider_limits={PROVIDER: limit})
    await asyncio.gather(agent.run("a"), agent.run("b"))
    assert [at for _, at in traffic.started] == [0.0, 60.0], "when nothing else was in the minute"
    await agent.run("as long as the others, it is supposed now, and so there is room for it")
    assert now() == 62.0


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_a_request_that_a_budget_refuses_gives_everything_back() -> None:
    traffic = Traffic(seconds=0.0)
    limit = ProviderLimit(max_concurrency=1, requests_per_minute=1, tokens_per_minute=1_000)
    agent = paid_agent(before=traffic, provider_limits={PROVIDER: limit})
    await agent.run("first")
    await asyncio.sleep(60.0)
    refused = paid_agent(before=traffic, provider_limits={PROVIDER: limit}, budget=Budget(usd="0.00001"))
    with pytest.raises(Exception, match="budget .*too small"):
        await refused.run("too dear")
    assert limit.status(PROVIDER).requests_last_minute == 0
    assert limit.status(PROVIDER).tokens_last_minute == 0
    await agent.run("second")
    assert now() == 60.0
    assert is_free(limit)


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_a_minute_begins_when_a_request_is_sent_not_while_it_waits_for_its_budget() -> None:
    traffic, limit = Traffic(seconds=30.0), ProviderLimit(requests_per_minute=2)
    agent = paid_agent(100, before=traffic, provider_limits={PROVIDER: limit})

    @step
    async def ask(ctx: StepContext[None]) -> None:
        await asyncio.gather(*(ctx.run(agent, f"{number}") for number in range(3)))

    config = PipelineConfig(budget=Budget(usd="0.0005", requests=5, tokens=10**9))
    narrow = Pipeline("p", {"ask": ask}, config=config, step_configs={"ask": StepConfig(cost_budget=300)})

    async def serial() -> None:
        slow = paid_agent(200, before=traffic, model_name="slow", provider_limits={PROVIDER: limit})

        @step
        async def both(ctx: StepContext[None]) -> None:
            await asyncio.gather(ctx.run(slow, "a"), ctx.run(slow, "b"))

        budget = PipelineConfig(cost_budget=399)
        with pytest.raises(StepExecutionError):  # the second one waits for the first, and then is refused
            await Pipeline("serial", {"both": both}, config=budget).execute()

    await narrow.execute()
    starts = [at for _, at in traffic.started]
    assert starts == [0.0, 0.0, 60.0]


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_retry_after_holds_everybody_back() -> None:
    started: list[tuple[str, float]] = []

    def plan(name: str, messages: list[ModelMessage], most: int | None) -> Answer:
        started.append((prompt_of(messages), now()))
        refusal = ModelHTTPError(429, name, headers={"Retry-After": "20"}) if len(started) == 1 else None
        return Answer(1, failure=refusal)

    limit = ProviderLimit(max_concurrency=9)
    agent = FastroAgent(ScriptedModel(plan), cost_calculator=PRICES, provider_limits={"scripted": limit})
    first = asyncio.ensure_future(agent.run("first"))
    await asyncio.sleep(1.0)
    assert limit.status("scripted").held_back_for == 19.0
    await asyncio.gather(first, agent.run("second"))
    assert [at for _, at in started] == [0.0, 20.0, 20.0]


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_a_budget_that_steps_down_to_another_model_waits_for_that_one() -> None:
    started: list[str] = []

    def plan(name: str, messages: list[ModelMessage], most: int | None) -> Answer:
        started.append(name)
        return Answer(1)

    async def count(prompt: str) -> None:
        started.append(prompt)

    limits = {PROVIDER: ProviderLimit(max_concurrency=1), "scripted": ProviderLimit(requests_per_minute=1)}
    cheap = ScriptedModel(plan, "cheap")
    budget = Budget(usd="0.00015", fallback=ModelFallback(0.5, use=cheap))
    prices = CostCalculator(pricing_overrides=PER_REQUEST)
    agent = paid_agent(100, cost_calculator=prices, provider_limits=limits, before=count)

    @step
    async def ask(ctx: StepContext[None]) -> None:
        await asyncio.gather(ctx.run(agent, "dear"), ctx.run(agent, "too dear"))

    config = PipelineConfig(budget=budget, provider_limits=limits)
    await Pipeline("p", {"ask": ask}, config=config).execute()
    assert started == ["dear", "cheap"]
    assert limits["scripted"].status("scripted").requests_last_minute == 1
    assert is_free(limits[PROVIDER])


# --- streams, and what is made inside of them ---


async def words(prompt: str) -> AsyncIterator[str]:
    for number in range(3):
        yield f"{prompt} {number} "
        await asyncio.sleep(1.0)


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_a_stream_keeps_its_place_until_it_has_ended_or_is_left() -> None:
    limit = ProviderLimit(max_concurrency=1)
    agent = streaming_agent(words, provider_limits={PROVIDER: limit})
    async with agent.run_stream("long") as stream:
        async for _ in stream:
            break
        assert limit.status(PROVIDER).in_flight == 1
    assert is_free(limit)
    async for _ in agent.run_stream("whole"):
        assert limit.status(PROVIDER).in_flight <= 1
    assert is_free(limit)
    assert_no_task_is_left()


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_a_request_made_inside_a_stream_does_not_wait_for_its_end() -> None:
    limit = ProviderLimit(max_concurrency=1)
    outer = streaming_agent(words, provider_limits={PROVIDER: limit})
    inner = paid_agent(before=Traffic(), provider_limits={PROVIDER: limit})
    asked = 0
    waiting = Event()

    async def wait_outside() -> None:
        await waiting.wait()
        await inner.run("not one of the stream, and not before its end")

    outside = asyncio.ensure_future(wait_outside())
    async for chunk in outer.run_stream("read"):
        if not asked and chunk.content:
            waiting.set()
            await asyncio.sleep(0.1)
            assert limit.status(PROVIDER).waiting == 1
            await inner.run("by the reader")
            await asyncio.gather(inner.run("by a task"), inner.run("of the reader"))
            asked += 3
    assert asked == 3
    await outside
    assert is_free(limit)


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_a_handler_of_events_can_make_requests() -> None:
    limit = ProviderLimit(max_concurrency=1, requests_per_minute=2)
    inner, asked = paid_agent(before=Traffic(), provider_limits={PROVIDER: limit}), 0

    async def handle(context: RunContext[None], events: AsyncIterator[AgentStreamEvent]) -> None:
        nonlocal asked
        async for _ in events:
            if not asked:
                asked += 1
                await inner.run("what do you make of this?")

    outer = streaming_agent(words, provider_limits={PROVIDER: limit})
    await outer.run("read", event_stream_handler=handle)
    assert asked == 1
    assert is_free(limit)


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_a_request_inside_a_stream_does_not_wait_for_one_that_waits_for_its_budget() -> None:
    """The outer stream holds the budget, another request the last rate; the inner one needs both."""
    limit = ProviderLimit(requests_per_minute=2)
    outer = streaming_agent(words, provider_limits={PROVIDER: limit}, model_name="stream")
    plain = paid_agent(before=Traffic(0.0), provider_limits={PROVIDER: limit})

    @step
    async def read(ctx: StepContext[None]) -> int:
        other: asyncio.Task[Any] | None = None
        stops, refused_at = 0, 0.0
        async for _ in ctx.run_stream(outer, "read", budget=None):
            if other is None:
                other = asyncio.get_running_loop().create_task(ctx.run(plain, "other"))
                await asyncio.sleep(0.1)
                try:
                    await ctx.run(plain, "inner")
                except RequestBudgetExceeded:
                    stops, refused_at = stops + 1, now()
        assert other is not None
        stops += isinstance((await asyncio.gather(other, return_exceptions=True))[0], RequestBudgetExceeded)
        assert refused_at == 0.1, "not when the stream was found to be held up by it"
        return stops

    config = PipelineConfig(budget=Budget(requests=1))
    result = await Pipeline("p", {"read": read}, config=config).execute()
    assert result.output == 2
    assert is_free(limit)


# --- threads and loops ---


def test_many_event_loops_share_the_places() -> None:
    limit, lock, at_once, most = ProviderLimit(max_concurrency=3), threading.Lock(), 0, 0

    async def busy(prompt: str) -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        await asyncio.sleep(0.002)
        with lock:
            at_once -= 1

    def work() -> None:
        agent = paid_agent(before=busy, provider_limits={PROVIDER: limit})

        async def ask_often() -> None:
            await asyncio.gather(*(agent.run("x") for _ in range(8)))

        asyncio.run(ask_often())

    agent = paid_agent(before=busy, provider_limits={PROVIDER: limit})
    threads = [threading.Thread(target=work) for _ in range(3)]
    threads += [threading.Thread(target=partial(agent.run_sync, "x")) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=PATIENCE)
    assert most == 3
    assert is_free(limit)


def test_a_loop_that_is_closed_while_somebody_waits_there_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = 0.0
    monkeypatch.setattr("fastroai.runtime.providers.provider_limits.monotonic", lambda: clock)
    limit = ProviderLimit(requests_per_minute=1)
    agent = paid_agent(provider_limits={PROVIDER: limit})
    gone = asyncio.new_event_loop()
    gone.run_until_complete(agent.run("first"))
    lost = gone.create_task(agent.run("lost"))

    async def until_it_waits() -> None:
        while limit.status(PROVIDER).waiting != 1:
            await asyncio.sleep(0)

    gone.run_until_complete(until_it_waits())
    gone.close()

    async def ask() -> str:
        nonlocal clock
        call = asyncio.ensure_future(agent.run("second"))
        await asyncio.sleep(0.01)
        clock = 60.0
        limit.queue(PROVIDER)._look_again()
        return (await call).output

    assert asyncio.run(asyncio.wait_for(ask(), PATIENCE)) == "answer to second"
    lost._log_destroy_pending = False  # type: ignore[attr-defined]  # that is what it is here for


# --- circuit breakers ---


class Clinic:
    """A provider that is ill while there are failures, and an agent that asks it."""

    def __init__(self, **options: Any) -> None:
        self.failures: list[BaseException | None] = []
        self.asked = 0
        self.seconds = 0.0
        self.model = ScriptedModel(self.plan)
        options.setdefault("request_retries", 0)
        options.setdefault("cost_calculator", PRICES)
        self.agent = FastroAgent(self.model, name="doctor", **options)

    def plan(self, name: str, messages: list[ModelMessage], most: int | None) -> Answer:
        self.asked += 1
        return Answer(1, failure=self.failures.pop(0) if self.failures else None, seconds=self.seconds)

    async def fails(self, *failures: BaseException) -> None:
        self.failures = list(failures)
        for failure in failures:
            with pytest.raises(type(failure)):
                await self.agent.run("ask")


def ill(status: int = 500) -> ModelHTTPError:
    return ModelHTTPError(status, "paid")


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_a_circuit_opens_after_failures_and_closes_after_a_probe() -> None:
    breaker = CircuitBreaker(failures=2, window=60.0, cooldown=30.0)
    clinic = Clinic(circuit_breaker=breaker)
    states: list[CircuitState] = [breaker.state]
    await clinic.fails(ill(), ill(503))
    states.append(breaker.state)
    await asyncio.sleep(10.0)
    with pytest.raises(
        CircuitOpenError,
        match="no request was sent to 'scripted': it keeps failing, so the circuit breaker of agent 'doctor'",
    ) as e:
        await clinic.agent.run("refused")
    assert (e.value.opens_in, e.value.retry_after, retry_after(e.value)) == (20.0, 20.0, 20.0)
    assert "503" in e.value.last_failure
    assert classify(e.value) is FailureClass.RECOVERABLE
    assert e.value.usage.failed_requests == 0, "nothing was sent, and nothing is on record"
    assert clinic.asked == 2
    await asyncio.sleep(20.0)
    states.append(breaker.state_of("scripted"))
    await clinic.agent.run("probe")
    states.append(breaker.state)
    assert states == ["closed", "open", "half-open", "closed"]


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_failures_that_are_far_apart_do_not_open_it_and_those_of_a_probe_do_at_once() -> None:
    breaker = CircuitBreaker(failures=2, window=10.0, cooldown=30.0)
    clinic = Clinic(circuit_breaker=breaker)
    await clinic.fails(ill())
    await asyncio.sleep(10.0)
    await clinic.fails(ill())
    assert breaker.state == "closed"
    await clinic.fails(ill())
    assert breaker.state == "open"
    await asyncio.sleep(30.0)
    await clinic.fails(ill())
    assert breaker.state == "open"


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_what_says_nothing_of_the_provider_does_not_open_it() -> None:
    breaker = CircuitBreaker(failures=1)
    clinic = Clinic(circuit_breaker=breaker)
    await clinic.fails(ill(429), ill(400), ill(404), UnexpectedModelBehavior("what?"))
    clinic.seconds = 5.0
    call = asyncio.ensure_future(clinic.agent.run("cancelled"))
    await asyncio.sleep(1.0)
    await cancelled(call)
    assert breaker.state == "closed"
    with pytest.raises(TimeLimitExceeded):
        await clinic.agent.run("too slow", timeout=1.0)
    assert breaker.state == "open"


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_a_probe_that_is_cancelled_gives_its_place_back_and_others_fail_meanwhile() -> None:
    breaker = CircuitBreaker(failures=1, cooldown=30.0, probes=1)
    clinic = Clinic(circuit_breaker=breaker)
    await clinic.fails(ill())
    await asyncio.sleep(30.0)
    clinic.seconds = 5.0
    probe = asyncio.ensure_future(clinic.agent.run("probe"))
    await asyncio.sleep(1.0)
    with pytest.raises(CircuitOpenError, match="a test request is running") as refused:
        await clinic.agent.run("too many")
    assert refused.value.retry_after is None
    await cancelled(probe)
    await clinic.agent.run("another probe")
    assert breaker.state == "closed"


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_a_probe_that_a_budget_refuses_gives_its_place_back() -> None:
    clinic = Clinic(circuit_breaker=CircuitBreaker(failures=1, cooldown=30.0), max_tokens=50)
    await clinic.fails(ill())
    await asyncio.sleep(30.0)
    with pytest.raises(BudgetExceeded):
        await clinic.agent.run("probe", cost_budget=1)
    await clinic.agent.run("probe")


def test_an_open_circuit_can_be_sent_to_another_process() -> None:
    error = ModelCircuitOpenError("gpt-5-mini", "openai", 12.0, "ModelServerError: 500", "writer")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.model_name, copy.args) == (ModelCircuitOpenError, "gpt-5-mini", error.args)
    assert str(copy) == copy.message == str(error)


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_those_who_wait_in_line_fail_at_once_when_the_circuit_opens() -> None:
    breaker = CircuitBreaker(failures=1, cooldown=30.0)
    limit = ProviderLimit(max_concurrency=1, requests_per_minute=1, circuit_breaker=breaker)
    clinic = Clinic(provider_limits={"scripted": limit})
    clinic.seconds, clinic.failures = 5.0, [ill()]
    errors = await asyncio.gather(*(clinic.agent.run("x") for _ in range(4)), return_exceptions=True)
    assert now() == 5.0
    assert [isinstance(error, CircuitOpenError) for error in errors] == [False, True, True, True]
    assert (clinic.asked, breaker.state) == (1, "open")
    assert is_free(limit, "scripted")


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_a_breaker_of_agent_and_limit_is_passed_once_and_each_provider_has_a_circuit() -> None:
    breaker = CircuitBreaker(failures=2)
    limit = ProviderLimit(circuit_breaker=breaker)
    clinic = Clinic(provider_limits={"*": limit}, circuit_breaker=breaker)
    await clinic.fails(ill())
    assert breaker.state == "closed"
    await clinic.fails(ill())
    assert breaker.state == "open"
    other = paid_agent(circuit_breaker=breaker)
    await other.run("well")
    assert (breaker.state_of(PROVIDER), breaker.state_of("scripted")) == ("closed", "open")


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_a_run_is_told_when_circuits_open_and_close() -> None:
    breaker = CircuitBreaker(failures=1, cooldown=30.0)
    clinic = Clinic(circuit_breaker=breaker)
    clinic.failures = [ill()]

    @step
    async def ask(ctx: StepContext[None]) -> None:
        with pytest.raises(ModelHTTPError):
            await ctx.run(clinic.agent, "fails")
        await asyncio.sleep(30.0)
        await ctx.run(clinic.agent, "probe")

    told: list[RunEvent] = [event async for event in Pipeline("p", {"ask": ask}).stream()]
    opened = next(event for event in told if isinstance(event, CircuitOpened))
    assert (opened.provider, opened.agent, opened.cooldown) == ("scripted", "doctor", 30.0)
    assert "500" in opened.last_failure
    closed = next(event for event in told if isinstance(event, CircuitClosed))
    assert told.index(opened) < told.index(closed)
    assert (closed.provider, closed.agent) == ("scripted", "doctor")


@pytest.mark.usefixtures("virtual")
@in_virtual_time
async def test_a_stream_that_opens_closes_the_circuit_before_it_ends() -> None:
    breaker = CircuitBreaker(failures=1, cooldown=30.0)
    clinic = Clinic(circuit_breaker=breaker)
    await clinic.fails(ill())
    await asyncio.sleep(30.0)
    clinic.seconds = 9.0
    async with clinic.agent.run_stream("probe") as stream:
        async for _ in stream:
            break
        assert breaker.state == "closed"


# --- options ---


@pytest.mark.parametrize(
    "option",
    [
        {"max_concurrency": 0},
        {"requests_per_minute": 0},
        {"tokens_per_minute": 1.5},
        {"circuit_breaker": 5},
    ],
)
def test_a_limit_that_cannot_be_meant_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(option))):
        ProviderLimit(**option)


@pytest.mark.parametrize(
    "option", [{"failures": 0}, {"window": 0.0}, {"cooldown": None}, {"probes": None}, {"window": "60"}]
)
def test_a_breaker_that_cannot_be_meant_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(option))):
        CircuitBreaker(**option)


def test_a_limit_without_a_limit_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="ProviderLimit needs a limit: max_concurrency="):
        ProviderLimit()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("openia", "openai"),
        ("OpenAI", "openai"),
        ("openai-responses", "openai"),
        ("openai:gpt-5-mini", "openai"),
    ],
)
@pytest.mark.parametrize("config", [AgentConfig, PipelineConfig])
def test_a_provider_that_is_probably_misspelt_is_a_warning(
    config: type[AgentConfig] | type[PipelineConfig], name: str, meant: str
) -> None:
    limit = ProviderLimit(max_concurrency=1)
    with pytest.warns(NearMissWarning, match=rf"provider_limits\['{name}'\].*Did you mean '{meant}'"):
        config(provider_limits={name: limit})
    config(provider_limits={meant: limit, "acme": limit, "*": limit})


@pytest.mark.parametrize(
    "limits", [ProviderLimit(max_concurrency=1), {"openai": 5}, {5: ProviderLimit(max_concurrency=1)}]
)
def test_what_is_no_mapping_of_limits_is_refused(limits: Any) -> None:
    for refuses in (paid_agent, PipelineConfig, AgentConfig):
        with pytest.raises(ConfigurationError, match="a mapping of providers to ProviderLimits"):
            refuses(provider_limits=limits)
    for takes_breaker in (paid_agent, AgentConfig):
        with pytest.raises(ConfigurationError, match="a CircuitBreaker"):
            takes_breaker(circuit_breaker=limits)


def test_limits_and_breakers_say_what_they_are() -> None:
    limit = ProviderLimit(max_concurrency=2, circuit_breaker=CircuitBreaker(window=5))
    assert repr(limit) == (
        "ProviderLimit(max_concurrency=2, "
        "circuit_breaker=CircuitBreaker(failures=5, window=5, cooldown=30, probes=1))"
    )
    config = PipelineConfig(provider_limits={"*": limit})
    assert hash(config) == hash(PipelineConfig(provider_limits={"*": limit}))


@in_virtual_time
async def test_a_config_brings_limits_and_breaker_to_its_agents() -> None:
    limit, breaker = ProviderLimit(requests_per_minute=9), CircuitBreaker(failures=1)
    clinic = Clinic(config=AgentConfig(provider_limits={"*": limit}, circuit_breaker=breaker))
    await clinic.fails(ill())
    assert limit.status("scripted").requests_last_minute == 1, "the provider may have counted it"
    assert breaker.state == "open"
