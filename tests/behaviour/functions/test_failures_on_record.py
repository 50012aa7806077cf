"""A failure that the code of a run has handled is on record, and is given back when the run is resumed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic_ai import ModelHTTPError, ModelRateLimitError
from pydantic_ai.models import Model
from support.accounting import listed_cost
from support.interruptions import RUN, DyingStore, nth
from support.stored_runs import entries_of
from support.typed_functions import Sentiment, sentiment

from fastroai import FastroAgent, Pipeline, StepContext, compute, flow, infer, step
from fastroai.errors import RecordedError, RunStoreUnavailable
from fastroai.functions import ConsensusFailure, ParallelFailed, parallel
from fastroai.runtime.facts import CallEnded
from fastroai.store import MemoryRunStore, RunHistory
from fastroai.testing import Fault, ModelServer, Reply, ServedRequest

MODEL = "openai:gpt-5-mini"


class Desk:
    """What the flows of these tests call. The first model is down until the run is resumed."""

    def __init__(self, server: ModelServer) -> None:
        self.server, self.is_down, self.sent, self.is_mailing = server, True, list[str](), False
        model = server.model(MODEL)
        self.agent = FastroAgent(model, name="agent", retries=0)
        server.rule(lambda request: "first" in request.prompt, self.answer)
        server.rule(None, sentiment())

        @infer(intent="Classify", model=model)
        async def classify(text: str) -> Sentiment:
            raise NotImplementedError

        @infer(intent="Classify", model=model, quorum=2, threshold=2, agree_on="label")
        async def agreed(text: str) -> Sentiment:
            raise NotImplementedError

        @compute
        async def send(text: str) -> str:
            self.sent.append(text)
            if "first" in text or not self.is_mailing:
                raise ConnectionError(110, f"cannot send {text}")
            return text

        self.classify, self.agreed, self.send = classify, agreed, send

    def answer(self, request: ServedRequest) -> Reply:
        return Reply(fault=Fault.status(429)) if self.is_down else sentiment("neutral")


@pytest.fixture
def desk(server: ModelServer) -> Desk:
    return Desk(server)


async def by_function(desk: Desk) -> str:
    try:
        return (await desk.classify("first")).label
    except ModelHTTPError as error:
        return f"{error.status_code} of {error.model_name}: {isinstance(error, ModelRateLimitError)}"


async def by_quorum(desk: Desk) -> str:
    try:
        return (await desk.agreed("first")).label
    except ConsensusFailure as error:
        return f"{error.agreed} of {error.threshold}: {[type(one).__name__ for one in error.errors]}"


async def by_agent(desk: Desk) -> str:
    try:
        return (await desk.agent.run("first")).output
    except ModelRateLimitError as error:
        return f"{error}: {isinstance(error, ModelHTTPError)}"


async def by_code(desk: Desk) -> str:
    try:
        return await desk.send("first")
    except ConnectionError as error:
        return f"{error.errno}: {error.strerror}"


async def side_by_side(desk: Desk) -> str:
    (second,) = await parallel(desk.classify("first"), desk.classify("second"), require="any")
    return second.label


async def all_fail(desk: Desk) -> str:
    try:
        await parallel(desk.classify("first"), desk.agent.run("first, too"), desk.send("first"))
    except (ParallelFailed, ModelHTTPError, ConnectionError) as error:
        return type(error).__name__
    return "none"


@pytest.mark.parametrize(
    "attempt", [by_function, by_quorum, by_agent, by_code, side_by_side, all_fail], ids=lambda it: it.__name__
)
@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_flow_gets_the_failure_that_it_has_handled_again(
    desk: Desk, attempt: Callable[[Desk], Awaitable[str]], is_killed: bool
) -> None:
    results: list[str] = []

    @flow
    async def triage() -> str:
        results.append(await attempt(desk))
        try:
            await desk.classify("second")
        except ModelHTTPError:
            raise AssertionError("it does not fail") from None
        return await desk.send("mail")

    store, ends = MemoryRunStore(), 0
    if is_killed:
        desk.is_mailing = True
        with pytest.raises(RunStoreUnavailable):
            await triage.run(run_id=RUN, store=DyingStore(store, lambda entries: _is_sent(entries)))
    else:
        with pytest.raises(ConnectionError):
            await triage.run(run_id=RUN, store=store)
    sent, mails = len(desk.server.ledger.entries), len(desk.sent)
    desk.is_down, desk.is_mailing = False, True
    assert await triage.resume(RUN, store=store) == "mail"
    first, again = results
    assert again == first
    assert len(desk.server.ledger.entries) == sent
    assert desk.sent[mails:] == ["mail"]
    trace = await RunHistory(store).trace(RUN)
    assert trace.usage.cost_usd == sum(map(listed_cost, desk.server.ledger.entries))
    ends = sum(isinstance(one, CallEnded) for one in await entries_of(store, RUN))
    assert ends == len(trace.calls)


def _is_sent(entries: Any) -> bool:
    return any(isinstance(one, CallEnded) and "send" in one.place and one.failure is None for one in entries)


@pytest.mark.parametrize("kind", ["function", "agent", "code"])
@pytest.mark.parametrize(
    "how", ["raised", "raised from", "raised while handling", "raised after cleaning up"]
)
async def test_a_call_whose_failure_ended_the_flow_is_made_again(desk: Desk, kind: str, how: str) -> None:
    def call() -> Awaitable[Any]:
        return {"function": desk.classify, "agent": desk.agent.run, "code": desk.send}[kind](
            "mail" if kind == "code" else "first"
        )

    @flow
    async def triage() -> str:
        await desk.classify("second")
        try:
            await call()
        except Exception as error:
            match how:
                case "raised":
                    raise
                case "raised from":
                    raise LookupError("no mood") from error
                case "raised while handling":
                    raise LookupError("no mood")  # noqa: B904
                case _:
                    await desk.classify("clean up")
                    raise
        return (await desk.classify("third")).label

    store = MemoryRunStore()
    with pytest.raises((ModelHTTPError, ConnectionError, LookupError)):
        await triage.run(run_id=RUN, store=store)
    desk.is_down, desk.is_mailing = False, True
    sent, mails = len(desk.server.ledger.entries), len(desk.sent)
    assert await triage.resume(RUN, store=store) == "positive"
    assert len(desk.server.ledger.entries) - sent == (1 if kind == "code" else 2)
    assert len(desk.sent) - mails == (kind == "code")


@pytest.mark.parametrize("what_fails", ["a call", "the code"])
@pytest.mark.parametrize("where", ["flow", "flow in a flow", "function in a flow"])
async def test_agent_calls_that_were_answered_before_the_code_around_them_failed_are_kept(
    desk: Desk, where: str, what_fails: str
) -> None:
    """A new attempt began if no call of a typed function was on record, and bought their answers again."""

    async def body() -> str:
        await desk.agent.run("second")
        await desk.agent.run("third")
        if what_fails == "the code" and desk.is_down:
            raise LookupError("no customer")
        return (await desk.agent.run("first")).output

    kinds: dict[str, Callable[[], Awaitable[str]]] = {
        "flow": body,
        "flow in a flow": flow(body),
        "function in a flow": compute(body),
    }
    inside = kinds[where]

    @flow
    async def triage() -> str:
        return await inside()

    store = MemoryRunStore()
    with pytest.raises((ModelHTTPError, LookupError)):
        await triage.run(run_id=RUN, store=store)
    sent, desk.is_down = len(desk.server.ledger.entries), False
    await triage.resume(RUN, store=store)
    assert len(desk.server.ledger.entries) - sent == 1
    trace = await RunHistory(store).trace(RUN)
    assert trace.usage.cost_usd == sum(map(listed_cost, desk.server.ledger.entries))


async def test_a_call_that_failed_while_an_error_was_handled_is_made_again_and_the_other_one_is_not(
    desk: Desk,
) -> None:
    @flow
    async def triage() -> str:
        try:
            return (await desk.classify("first")).label
        except ModelHTTPError:
            return await desk.send("mail")

    store = MemoryRunStore()
    with pytest.raises(ConnectionError):
        await triage.run(run_id=RUN, store=store)
    sent, desk.is_down, desk.is_mailing = len(desk.server.ledger.entries), False, True
    assert await triage.resume(RUN, store=store) == "mail"
    assert len(desk.server.ledger.entries) == sent


async def test_a_step_gets_the_failures_of_its_calls_again(desk: Desk) -> None:
    seen: list[list[str]] = []

    @step
    async def read(context: StepContext[None]) -> str:
        found: list[str] = []
        for call in (context.run(desk.agent, "first"), desk.classify("first"), desk.send("first")):
            try:
                await call
            except (ModelRateLimitError, ConnectionError) as error:
                found.append(str(error))
        found += [type(one).__name__ for one in await context.map(desk.agent, ["first"], on_error="continue")]
        seen.append(found)
        return await desk.send("mail")

    support, store = Pipeline("support", {"read": read}), MemoryRunStore()
    desk.is_mailing = True
    with pytest.raises(RunStoreUnavailable):
        await support.execute({}, run_id=RUN, store=DyingStore(store, _is_sent))
    sent, mails, desk.is_down = len(desk.server.ledger.entries), len(desk.sent), False
    assert (await support.resume(RUN, store=store)).output == "mail"
    first, again = seen
    assert len(first) == 4
    assert again == first
    assert len(desk.server.ledger.entries) == sent
    assert desk.sent[mails:] == ["mail"]


class Odd(Exception):
    """Its attribute cannot be stored."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.handle = object()


async def test_an_exception_that_cannot_be_stored_is_given_back_as_far_as_it_is_on_record(
    server: ModelServer, model: Model
) -> None:
    made: list[str] = []

    @compute
    async def open_it(text: str) -> str:
        made.append(text)
        raise Odd(f"cannot open {text}")

    @compute
    async def send(text: str) -> str:
        made.append(text)
        return text

    @flow
    async def triage() -> str:
        try:
            return await open_it("one")
        except Odd as error:
            found = f"{error}, {isinstance(error, RecordedError)}"
        await send("mail")
        return found

    store = MemoryRunStore()
    with pytest.raises(RunStoreUnavailable):
        await triage.run(run_id=RUN, store=DyingStore(store, nth(CallEnded, 2)))
    assert await triage.resume(RUN, store=store) == "cannot open one, True"
    assert made == ["one", "mail", "mail"]
