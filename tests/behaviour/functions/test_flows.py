"""Flows over typed functions: money, failures, budgets, records, spans, codecs, and how they are stopped."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field
from pydantic_ai import UnexpectedModelBehavior
from support.interruptions import RUN, DyingStore, nth
from support.stored_runs import entries_of, raw_log
from support.tracing import RecordingTracer
from support.typed_functions import Sentiment, listed_costs, sentiment

from fastroai import (
    FastroAgent,
    Pipeline,
    PipelineConfig,
    budget_scope,
    compute,
    contract,
    flow,
    infer,
    opaque,
)
from fastroai.errors import (
    BudgetExceeded,
    ConfigurationError,
    ContractViolation,
    CostBudgetExceeded,
    FlowStopped,
    RunStoreUnavailable,
    usage_of,
)
from fastroai.functions import configured, parallel
from fastroai.functions.errors import ParallelFailed, ParseFailure, PostconditionFailed
from fastroai.pipelines import RunEvent
from fastroai.runtime.facts import CallEnded, RequestSent
from fastroai.store import MemoryRunStore, RunHistory
from fastroai.testing import Fault, ModelServer, Reply, ToolCall
from fastroai.tracing import attributes
from fastroai.usage import Budget

MODEL = "openai:gpt-5-mini"


def classifier(server: ModelServer, **options: Any) -> Any:
    @infer(intent="Classify the tone of the text", model=server.model(MODEL), **options)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    return classify


async def test_a_flow_that_is_killed_and_resumed_pays_for_nothing_twice(server: ModelServer) -> None:
    classify = classifier(server)
    server.rule(None, lambda request: sentiment())

    @flow
    async def triage(text: str) -> list[str]:
        first = await classify(text)
        second, third = await parallel(classify(f"{text} two"), classify(f"{text} three"))
        return [first.label, second.label, third.label]

    store = MemoryRunStore()
    with pytest.raises(RunStoreUnavailable):
        await triage.run("one", run_id=RUN, store=DyingStore(store, nth(CallEnded, 3), written=True))
    assert len(server.ledger.entries) == 3
    assert await triage.resume(RUN, store=store) == ["positive"] * 3
    assert len(server.ledger.entries) == 3
    trace = await RunHistory(store).trace(RUN)
    assert trace.usage.cost_usd == listed_costs(server)
    assert sum((call.cost_usd for call in trace.calls), Decimal(0)) == listed_costs(server)
    assert [call.model for call in trace.calls] == ["gpt-5-mini"] * 3


async def test_a_flow_that_failed_asks_anew_where_it_failed_and_nowhere_else(server: ModelServer) -> None:
    good, bad = (
        classifier(server),
        classifier(server, ensure=lambda result: result.confidence > 0.5, retries=1),
    )
    confidence = 0.4
    server.rule(None, lambda request: sentiment(confidence=confidence))

    @flow
    async def triage(text: str) -> float:
        first = await good(text)
        return first.confidence + (await bad(text + "!")).confidence

    store = MemoryRunStore()
    with pytest.raises(PostconditionFailed) as failed:
        await triage.run("one", run_id=RUN, store=store)
    assert len(server.ledger.entries) == 3  # one, and one with its retry
    assert failed.value.usage.cost_usd == listed_costs(server)
    confidence = 0.9
    assert await triage.resume(RUN, store=store) == pytest.approx(1.3)
    assert len(server.ledger.entries) == 4
    trace = await RunHistory(store).trace(RUN)
    assert [call.outcome for call in trace.calls] == ["success", "postcondition_failed", "success"]
    assert [call.requests for call in trace.calls] == [1, 2, 1]
    assert sum(call.cost_usd for call in trace.calls) == trace.usage.cost_usd == listed_costs(server)
    assert [(one.outcome, one.cost_usd) for one in triage.records] == [
        (one.outcome, one.cost_usd) for one in trace.calls
    ]


@pytest.mark.parametrize("written", [True, False])
async def test_records_have_each_call_and_its_cost_once_after_a_resume_in_the_same_process(
    server: ModelServer, written: bool
) -> None:
    classify = classifier(server)
    server.rule(None, lambda request: sentiment())

    @flow
    async def triage(text: str) -> list[str]:
        return [(await classify(text)).label, (await classify(f"{text} two")).label]

    store = MemoryRunStore()
    with pytest.raises(RunStoreUnavailable):
        await triage.run("one", run_id=RUN, store=DyingStore(store, nth(CallEnded, 2), written=written))
    sent = len(triage.records)
    await triage.resume(RUN, store=store)
    made_again = triage.records[sent:]
    assert [call.requests for call in made_again] == ([] if written else [0])  # its answer is on record
    assert len(classify.records) == len(triage.records)
    assert sum(call.cost_usd for call in triage.records) == listed_costs(server)
    trace = await RunHistory(store).trace(RUN)
    assert [call.requests for call in trace.calls] == [1, 1]
    assert sum(call.cost_usd for call in trace.calls) == listed_costs(server)


async def test_a_failure_that_the_body_has_caught_is_the_same_again_at_no_cost(server: ModelServer) -> None:
    bad = classifier(server, ensure=lambda result: result.confidence > 0.5, retries=1)
    good = classifier(server)
    server.rule(None, lambda request: sentiment(confidence=0.4))

    @flow
    async def triage(text: str) -> str:
        try:
            await bad(text)
        except PostconditionFailed as error:
            return f"{(await good(text + '!')).label}: {error.violations[0]}"
        return "good"

    store = MemoryRunStore()
    with pytest.raises(RunStoreUnavailable):
        await triage.run("one", run_id=RUN, store=DyingStore(store, nth(CallEnded, 2), written=True))
    assert len(server.ledger.entries) == 3
    server.rule(None, lambda request: sentiment(confidence=0.9))
    assert (await triage.resume(RUN, store=store)).startswith("positive: ensure: result.confidence > 0.5")
    assert len(server.ledger.entries) == 3


async def test_the_budget_of_a_flow_bounds_all_that_it_calls_and_those_inside_come_on_top(
    server: ModelServer,
) -> None:
    classify = classifier(server)
    server.rule(None, lambda request: sentiment())

    @flow(budget=Budget(requests=2))
    async def inner(text: str) -> str:
        for number in range(3):
            await classify(f"{text} {number}")
        return "never"

    @flow(budget=Budget(requests=3))
    async def outer(text: str) -> list[str]:
        found = []
        for name in ("a", "b"):
            try:
                found.append(await inner(f"{text} {name}"))
            except BudgetExceeded as error:
                found.append("/".join(error.scope_path))
                if error.scope_path == ("outer",):
                    raise
        return found

    with pytest.raises(BudgetExceeded) as stopped:
        await outer("one")
    assert stopped.value.scope_path == ("outer",)
    assert len(server.ledger.entries) == 3
    spent = usage_of(stopped.value)
    assert spent is not None
    assert spent.cost_usd == listed_costs(server)


async def test_records_of_nested_flows_name_the_innermost_flow_and_the_one_around_it(
    server: ModelServer,
) -> None:
    classify = classifier(server)
    server.rule(None, lambda request: sentiment())

    @flow
    async def of_records_inner(text: opaque[str]) -> str:
        return (await classify(text)).label

    @flow
    async def of_records_outer(text: str) -> str:
        await classify(text)
        return await of_records_inner(text + "!")

    await of_records_outer.run("one", run_id="r")
    (outer,), (inner,) = of_records_outer.records, of_records_inner.records
    assert (outer.flow_id, outer.parent_flow_id) == ("r", "")
    assert inner.parent_flow_id == "r"
    assert inner.flow_id.startswith("r:body@1/of_records_inner#")
    assert inner.inputs == {"text": "one!"}
    assert inner.cost_usd + outer.cost_usd == listed_costs(server)
    assert (inner.requests, inner.outcome, inner.attempts) == (1, "success", 1)
    assert isinstance(inner.output, Sentiment)


async def test_the_result_of_a_flow_is_checked_and_opaque_values_are_left_out() -> None:
    @contract
    class Letter(BaseModel):
        body: Annotated[opaque[str], Field(max_length=3)]
        pages: int

    wrong: Any = {"body": "my secret", "pages": "many"}

    @flow
    async def dictate() -> Letter:
        return wrong  # type: ignore[no-any-return]

    with pytest.raises(ContractViolation, match="flow 'dictate': its output does not fit") as caught:
        await dictate()
    assert "secret" not in str(caught.value)
    assert "many" in str(caught.value)


async def test_the_calls_of_a_function_outside_of_flows_are_in_its_records(server: ModelServer) -> None:
    @infer(intent="Count the words", model=server.model(MODEL), retries=0)
    async def count_for_records(text: str) -> int:
        raise NotImplementedError

    @compute
    async def double_for_records(number: int) -> int:
        return 2 * number

    server.script(Reply(data={"response": 2}), Reply(data={"response": "some"}))
    assert await double_for_records(await count_for_records("two words")) == 4
    with pytest.raises(ParseFailure):
        await count_for_records("no words")

    outcomes = [record.outcome for record in count_for_records.records]
    assert outcomes == ["success", "parse_failure"]
    assert sum(record.cost_usd for record in count_for_records.records) == listed_costs(server)
    assert [record.output for record in double_for_records.records] == [4]


async def test_functions_and_flows_of_one_name_have_records_of_their_own() -> None:
    def made(factor: int) -> tuple[Any, Any]:
        @compute
        async def times(number: int) -> int:
            return factor * number

        @flow
        async def calculate(number: int) -> int:
            return await times(number)

        return times, calculate

    (double, doubling), (triple, tripling) = made(2), made(3)
    await doubling(1)
    await tripling(1)
    await triple(5)
    assert [record.output for record in double.records] == [2]
    assert [record.output for record in triple.records] == [3, 15]
    assert [record.output for record in doubling.records] == [2]
    assert [record.output for record in tripling.records] == [3]


async def test_spans_have_the_flow_at_the_root_calls_below_it_and_retries_as_events(
    server: ModelServer,
) -> None:
    classify = classifier(server, ensure=lambda result: result.confidence > 0.5)
    confidences = iter([0.4, 0.9, 0.9, 0.9])
    server.rule(None, lambda request: sentiment(confidence=next(confidences)))

    @compute
    async def shout(text: str) -> str:
        return text.upper()

    @flow
    async def triage(text: str) -> str:
        await classify(text)
        await parallel(classify(text + "2"), classify(text + "3"))
        return await shout(text)

    tracer = RecordingTracer()
    with configured(tracer=tracer):
        await triage.run("one", run_id="r")
    calls = [span for span in tracer.spans if span.path[:-1] == ("flow triage",)]
    assert [span.name for span in calls] == ["infer classify"] * 3 + ["compute shout"]
    assert all(span.ended for span in tracer.spans)
    first = calls[0].attributes
    assert first[attributes.FLOW_ID] == "r"
    assert (first[attributes.FUNCTION_NAME], first[attributes.FUNCTION_OUTCOME]) == ("classify", "success")
    assert first[attributes.FUNCTION_ATTEMPTS] == 2
    assert [type(error) for error in tracer.errors] == [PostconditionFailed]
    assert {span.path[:2] for span in tracer.spans if "chat" in span.name} == {
        ("flow triage", "infer classify")
    }
    root = tracer.spans[0].attributes
    assert root["fastroai.flow.name"] == "triage"
    assert root[attributes.COST_USD] == format(listed_costs(server), "f")


class Reversed:
    """A codec that anybody can tell from plain text."""

    def encode(self, payload: bytes) -> bytes:
        return payload[::-1]

    def decode(self, payload: bytes) -> bytes:
        return payload[::-1]


async def test_with_a_codec_nothing_of_a_call_is_on_record_in_plain_text(server: ModelServer) -> None:
    classify = classifier(server)
    server.rule(None, lambda request: sentiment())
    codec = Reversed()

    @flow(config=PipelineConfig(codec=codec))
    async def triage(text: str) -> str:
        first = await classify(text)
        await classify(text + "!")
        return first.label

    store = MemoryRunStore()
    with pytest.raises(RunStoreUnavailable):
        await triage.run("a secret text", run_id=RUN, store=DyingStore(store, nth(CallEnded, 2)))
    assert b"secret" not in b"".join(await raw_log(store, RUN))
    assert await triage.resume(RUN, store=store) == "positive"
    calls = (await RunHistory(store, codec=codec).trace(RUN)).calls
    assert [call.inputs for call in calls] == [{"text": "a secret text"}, {"text": "a secret text!"}]
    assert calls[0].output == {"label": "positive", "confidence": 0.9}


async def test_a_flow_that_is_asked_to_pause_halts_before_its_next_call(server: ModelServer) -> None:
    classify = classifier(server)
    server.rule(None, lambda request: sentiment())
    store = MemoryRunStore()

    @flow
    async def triage(text: str) -> str:
        await classify(text)
        if not paused:
            paused.append(True)
            await triage.pause(RUN, store=store)
        return (await classify(text + "!")).label

    paused: list[bool] = []
    with pytest.raises(FlowStopped, match="flow 'triage' is paused") as stopped:
        await triage.run("one", run_id=RUN, store=store)
    assert (stopped.value.run_id, len(server.ledger.entries)) == (RUN, 1)
    assert await triage.resume(RUN, store=store) == "positive"
    assert len(server.ledger.entries) == 2


async def test_a_flow_can_be_cancelled_watched_and_recovered(server: ModelServer) -> None:
    classify = classifier(server)
    server.rule(None, lambda request: sentiment())
    store = MemoryRunStore()

    @flow
    async def triage(text: str) -> str:
        return (await classify(text)).label

    async with triage.stream("one", run_id="s", store=store) as stream:
        events = [event async for event in stream]
    assert stream.result == "positive"
    assert sum(isinstance(event, CallEnded) for event in events) == 1
    assert (await triage.get_state("s", store=store)).status == "finished"
    facts = [fact async for _, fact in triage.follow("s", store=store)]
    assert sum(isinstance(fact, CallEnded) for fact in facts) == 1

    with pytest.raises(RunStoreUnavailable):
        await triage.run("one", run_id=RUN, store=DyingStore(store, nth(CallEnded)))
    await triage.cancel(RUN, store=store)
    assert (await triage.get_state(RUN, store=store)).status == "cancelled"
    assert await triage.resume(RUN, store=store) == "positive"


@contract
class Page(BaseModel):
    text: str
    handle: int = Field(exclude=True)


async def test_a_result_of_code_that_cannot_be_stored_is_computed_again() -> None:
    made: list[str] = []

    @compute
    async def page(text: str) -> Page:
        made.append(text)
        return Page(text=text, handle=7)

    @compute
    async def number(text: str) -> int:
        made.append(text)
        return int(text)

    @flow
    async def triage(text: str) -> int:
        found = await page(text)
        return found.handle + await number("2") + await number("3")

    store = MemoryRunStore()
    with pytest.raises(RunStoreUnavailable):
        await triage.run("1", run_id=RUN, store=DyingStore(store, nth(CallEnded, 3)))
    assert await triage.resume(RUN, store=store) == 12
    assert made == ["1", "2", "3", "1", "3"]


async def test_a_flow_with_a_transport_failure_goes_on_after_it(server: ModelServer) -> None:
    classify = classifier(server)
    faults = iter([Reply(fault=Fault.status(500))] * 3)
    server.rule(None, lambda request: next(faults, sentiment()))

    @flow
    async def triage(text: str) -> str:
        return (await classify(text)).label

    store = MemoryRunStore()
    with pytest.raises(Exception, match="500"):
        await triage.run("one", run_id=RUN, store=store)
    assert await triage.resume(RUN, store=store) == "positive"
    sent = sum(isinstance(one, RequestSent) for one in await entries_of(store, RUN))
    assert sent == len(server.ledger.entries) == 4


async def test_a_flow_without_calls_on_record_begins_anew_after_it_failed(server: ModelServer) -> None:
    agent = FastroAgent(server.model(MODEL), output_type=int)
    answers = iter([Reply(data={"response": "many"})] * 2)
    server.rule(None, lambda request: next(answers, Reply(data={"response": 4})))

    @flow
    async def count(text: str) -> int:
        return (await agent.run(text)).output

    store = MemoryRunStore()
    with pytest.raises(UnexpectedModelBehavior):
        await count.run("one", run_id=RUN, store=store)
    assert await count.resume(RUN, store=store) == 4
    explained = (await RunHistory(store).trace(RUN)).explain()
    assert "run 'r1' of flow 'count' began" in explained


async def test_an_agent_call_whose_failure_ended_a_flow_is_made_anew_and_nothing_else(
    server: ModelServer,
) -> None:
    classify, agent = classifier(server), FastroAgent(server.model(MODEL), output_type=int)
    is_good = False
    server.rule(lambda request: "how many" in request.prompt, lambda request: Reply(data={"response": 4}))
    server.rule(
        lambda request: "count" in request.prompt,
        lambda request: Reply(data={"response": 5 if is_good else "many"}),
    )
    server.rule(None, sentiment())

    @compute
    async def count(text: str) -> int:
        await classify(f"{text} in code")
        return (await agent.run("count them in code")).output

    @flow
    async def triage(text: str) -> list[int]:
        await classify(text)
        first = (await agent.run("how many")).output
        if text == "code":
            return [first, await count(text)]
        return [first, (await agent.run("count them")).output]

    store = MemoryRunStore()
    for text in ("text", "code"):
        is_good = False
        with pytest.raises(UnexpectedModelBehavior):
            await triage.run(text, run_id=text, store=store)
        spent = len(server.ledger.entries)
        with pytest.raises(UnexpectedModelBehavior):
            await triage.resume(text, store=store)
        failed = len(server.ledger.entries) - spent
        assert failed == 2  # the request, and PydanticAI's own retry of its output
        is_good = True
        assert await triage.resume(text, store=store) == [4, 5]
        assert len(server.ledger.entries) - spent == failed + 1
    traces = [await RunHistory(store).trace(text) for text in ("text", "code")]
    assert sum((trace.usage.cost_usd for trace in traces), Decimal(0)) == listed_costs(server)


async def test_agent_calls_that_failed_side_by_side_are_all_made_anew(server: ModelServer) -> None:
    classify, agent = classifier(server), FastroAgent(server.model(MODEL), output_type=int, retries=0)
    is_good = False
    server.rule(
        lambda request: "count all" in request.prompt,
        lambda request: Reply(data={"response": 5 if is_good else "many"}),
    )
    server.rule(lambda request: "count" in request.prompt, Reply(data={"response": "many"}))
    server.rule(None, sentiment())

    @flow
    async def triage(text: str) -> int:
        await classify(text)
        (found,) = await parallel(agent.run("count some"), agent.run("count all"), require="any")
        return found.output

    store = MemoryRunStore()
    with pytest.raises(ParallelFailed):
        await triage.run("them", run_id=RUN, store=store)
    is_good, spent = True, len(server.ledger.entries)
    assert await triage.resume(RUN, store=store) == 5
    assert len(server.ledger.entries) - spent == 2
    assert (await RunHistory(store).trace(RUN)).usage.cost_usd == listed_costs(server)


async def test_an_agent_call_whose_failure_the_body_has_caught_fails_again_at_no_cost(
    server: ModelServer,
) -> None:
    agent = FastroAgent(server.model(MODEL), output_type=int)
    is_down = True
    server.rule(None, Reply(data={"response": "many"}))

    @compute
    async def send(text: str) -> str:
        if is_down:
            raise ConnectionError("the mail server is down")
        return text

    @flow
    async def triage(text: str) -> str:
        try:
            return str((await agent.run(text)).output)
        except UnexpectedModelBehavior:
            pass
        return await send("nobody knows")

    store = MemoryRunStore()
    with pytest.raises(ConnectionError):
        await triage.run("count", run_id=RUN, store=store)
    spent, is_down = len(server.ledger.entries), False
    assert await triage.resume(RUN, store=store) == "nobody knows"
    assert len(server.ledger.entries) == spent


async def test_of_agents_inside_each_other_the_innermost_is_asked_anew(server: ModelServer) -> None:
    inner = FastroAgent(server.model(MODEL), output_type=int, name="inner")
    is_good = False

    async def count() -> int:
        """Count them."""
        return (await inner.run("count them")).output

    outer = FastroAgent(server.model(MODEL), tools=[count], name="outer")
    server.rule(
        lambda request: "count them" in request.prompt,
        lambda request: Reply(data={"response": 5 if is_good else "many"}),
    )
    server.rule(lambda request: request.tool_results != (), Reply("five"))
    server.rule(lambda request: request.prompt == "how many", Reply(tool_calls=[ToolCall("count", {})]))
    server.rule(None, sentiment())
    classify = classifier(server)

    @flow
    async def triage(text: str) -> str:
        await classify("first")
        return (await outer.run(text)).output

    store = MemoryRunStore()
    with pytest.raises(UnexpectedModelBehavior):
        await triage.run("how many", run_id=RUN, store=store)
    spent, is_good = len(server.ledger.entries), True
    assert await triage.resume(RUN, store=store) == "five"
    assert len(server.ledger.entries) - spent == 2, "the inner agent, and the answer of the outer one"
    assert (await RunHistory(store).trace(RUN)).usage.cost_usd == listed_costs(server)


async def test_a_flow_reserves_its_budget_as_its_quote(server: ModelServer) -> None:
    classify = classifier(server)
    server.rule(None, sentiment())

    @flow(budget=Budget(usd="0.01"))
    async def triage(text: str) -> str:
        return (await classify(text)).label

    @flow
    async def unbounded(text: str) -> str:
        return (await classify(text)).label

    @flow
    async def around(text: str) -> str:
        return await triage.run(text, reserve="quote")

    assert (await triage.estimate({"text": "one"})).upper_usd == Decimal("0.01")
    assert await triage.run("one", reserve="quote") == await around("two") == "positive"
    sent = len(server.ledger.entries)
    async with budget_scope(Budget(usd="0.009")) as scope:
        for begin in (triage.run("one", reserve="quote"), around("two")):
            with pytest.raises(
                CostBudgetExceeded, match=r"By its quote, the run could cost \$0.01, so it was not started"
            ):
                await begin
        assert scope.remaining.usd == Decimal("0.009")
    with pytest.raises(ConfigurationError, match=r"give it a budget: @flow\(budget=...\)"):
        await unbounded.run("one", reserve="quote")
    assert len(server.ledger.entries) == sent


async def test_the_quote_of_a_function_with_a_body_is_its_budget() -> None:
    @compute(budget=Budget(usd="0.02"))
    async def search(text: str) -> str:
        return text

    quote = await Pipeline("p", {"search": search}).estimate({"text": "one"})
    assert quote.upper_usd == Decimal("0.02")


async def test_a_flow_is_streamed_with_the_arguments_with_which_it_is_run(tmp_path: Path) -> None:
    @flow(config=PipelineConfig(store=tmp_path / "runs.db"))
    async def repeat(text: str, *, times: int = 2) -> str:
        return text * times

    heard = list[RunEvent]()
    async with repeat.stream("ab", times=3, run_id="r", on_event=heard.append) as stream:
        assert [event async for event in stream] == heard
    async with repeat.execute_stream({"text": "ab"}, run_id="s") as stream:
        assert [event.run_id async for event in stream][-1] == "s"
    assert stream.result == "abab"
    assert await repeat.run("ab", times=3, run_id="r", on_existing="return") == "ababab"
    assert {run.run_id for run in await RunHistory(tmp_path / "runs.db").list()} == {"r", "s"}
    with pytest.raises(TypeError, match="unexpected keyword argument 'tiems'"):
        repeat.stream("ab", tiems=3)


async def test_the_result_of_a_flow_has_its_cost_and_trace(server: ModelServer) -> None:
    classify = classifier(server)
    server.rule(None, lambda request: sentiment())
    paused: list[bool] = []

    @flow(budget=Budget(usd="0.05"))
    async def triage(text: str) -> str:
        first = await classify(text)
        if paused:
            await triage.pause(RUN, store=store)
        return f"{first.label} {(await classify(text + '!')).label}"

    @flow
    async def twice(text: str) -> str:
        result = await triage.run_result(text)
        return f"{result.output}: {result.cost_usd}"

    store = MemoryRunStore()
    result = await triage.run_result("fine", tags=["a"])
    assert result.output == await triage("fine")
    assert (result.status, result.usage.request_count, len(result.trace.calls)) == ("finished", 2, 2)
    assert result.cost_usd == sum(record.cost_usd for record in result.trace.calls) > 0
    assert {tag for record in result.usage.records for tag in record.tags} == {"a"}
    assert await twice("fine") == f"{result.output}: {result.cost_usd}"
    with configured(store=store):
        paused.append(True)
        waiting = await triage.run_result(text="fine", run_id=RUN)
        assert (waiting.status, waiting.output) == ("paused", None)
        paused.clear()
        went_on = await triage.run_result(text="fine", run_id=RUN, on_existing="resume")
    assert (went_on.output, went_on.usage.request_count) == (result.output, 2)
    assert went_on.cost_usd == result.cost_usd
    with pytest.raises(TypeError, match="unexpected keyword argument 'txt'"):
        await triage.run_result("fine", txt="fine")
    with pytest.raises(CostBudgetExceeded):
        await triage.run_result("fine", budget=Budget(microcents=1))
