"""Tool calls that need approval, or a result from outside, as questions in the inbox, and their answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import time
from typing import Any, Final

import pytest
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    RunContext,
    Tool,
    ToolApproved,
    ToolDenied,
    ToolReturn,
)
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model
from pydantic_ai.tools import DeferredToolResults, ToolDefinition
from pydantic_ai.toolsets import ExternalToolset
from support.run_stores import run_stores
from support.stored_runs import entries_of

from fastroai import (
    Edge,
    FastroAgent,
    Graph,
    Inbox,
    MemoryRunStore,
    Metered,
    Node,
    Pipeline,
    PipelineConfig,
    StepContext,
    step,
)
from fastroai.agent import AskPeople
from fastroai.errors import (
    AnswerRejected,
    ConfigurationError,
    QuestionTimedOut,
    StepExecutionError,
    ValueNotStorable,
)
from fastroai.runtime.facts import QuestionAsked, ToolEnded
from fastroai.testing import ModelServer, Reply, ToolCall
from fastroai.testing.requests import ServedRequest

CHAT: Final = "openai-chat:gpt-5-mini"
DONE: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with run_stores(request.param, request, tmp_path) as open_store:
        opened = open_store()
        yield opened
        if request.param != "memory":
            asyncio.run(opened.aclose())


def refund(order: str, amount: int) -> str:
    """Refund an order."""
    DONE[f"refund {order} {amount}"] += 1
    return f"refunded {amount}"


def look_up(order: str) -> str:
    """Look an order up."""
    DONE[f"look up {order}"] += 1
    return f"{order}: 120 dollars"


APPROVED = Tool(refund, requires_approval=True)
CALL = ToolCall("refund", {"order": "o-1", "amount": 120}, "call_1")


def calls(server: ModelServer, *asked: ToolCall) -> None:
    """The model calls these tools, and then says what they returned."""

    def answer(request: ServedRequest) -> Reply:
        if request.tool_results:
            return Reply(" & ".join(one.text for one in request.tool_results))
        return Reply(tool_calls=asked)

    server.rule(None, answer)


def clerk(model: Model, *tools: Any, **options: Any) -> FastroAgent[Any, Any]:
    given = {"tools": tools or (APPROVED,), "capabilities": [AskPeople(to="finance")], **options}
    return FastroAgent(model, name="clerk", **given)


def desk(agent: FastroAgent[Any, Any]) -> Pipeline[Any, Any]:
    return Pipeline("desk", {"handle": agent.as_step("Refund order o-1.")})


# --- asked ---


async def test_a_call_that_needs_approval_halts_the_run_and_is_made_when_a_person_approves_it(
    server: ModelServer, model: Model, store: Any
) -> None:
    calls(server, CALL)
    paused = await desk(clerk(model)).execute(run_id="r", store=store)
    assert (paused.status, paused.output, DONE) == ("paused", None, Counter())
    (asked,) = await Inbox(store).list()
    assert paused.questions == (asked,)
    assert (asked.node, asked.to) == ("handle", "finance")
    assert asked.question == {
        "kind": "approval",
        "agent": "clerk",
        "tool_name": "refund",
        "args": {"order": "o-1", "amount": 120},
        "tool_call_id": "call_1",
        "metadata": {},
    }
    assert await Inbox(store).answer(asked.id, True, reviewer="Mia", rationale="they are right")
    result = await desk(clerk(model)).resume("r", store=store)
    assert (result.output, DONE) == ("refunded 120", Counter({"refund o-1 120": 1}))
    assert len(server.ledger.entries) == result.usage.request_count == 2
    assert result.trace.replay(desk(clerk(model))) is None


async def asked_once(pipeline: Pipeline[Any, Any], store: Any, answer: object) -> Any:
    """The result of a run that asks one question, after this answer."""
    paused = await pipeline.execute(run_id="r", store=store)
    (asked,) = paused.questions
    await Inbox(store).answer(asked.id, answer)
    return await pipeline.resume("r", store=store)


@pytest.mark.parametrize(
    ("answer", "said", "done"),
    [
        (False, "The tool call was denied.", {}),
        (ToolDenied("it is too much"), "it is too much", {}),
        ({"kind": "tool-denied", "message": "it is too much"}, "it is too much", {}),
        (ToolApproved(), "refunded 120", {"refund o-1 120": 1}),
        (ToolApproved(override_args={"order": "o-1", "amount": 60}), "refunded 60", {"refund o-1 60": 1}),
        (
            {"kind": "tool-approved", "override_args": {"order": "o-1", "amount": 60}},
            "refunded 60",
            {"refund o-1 60": 1},
        ),
    ],
)
async def test_a_person_denies_a_call_or_changes_its_arguments(
    server: ModelServer, answer: object, said: str, done: dict[str, int]
) -> None:
    calls(server, CALL)
    result = await asked_once(desk(clerk(server.model(CHAT))), MemoryRunStore(), answer)
    assert (result.output, DONE) == (said, done)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("yes", "of the type string, not boolean or it is of the type string, not object"),
        (1, "of the type integer, not boolean"),
        ({"message": "no"}, "kind is missing: 'tool-approved' or 'tool-denied'"),
        ({"kind": "approved"}, "kind is none of 'tool-approved', 'tool-denied'"),
        ({"kind": "tool-denied", "message": 3}, "message is of the type integer, not string"),
    ],
)
async def test_an_answer_that_is_none_to_an_approval_is_rejected(
    server: ModelServer, answer: object, why: str
) -> None:
    calls(server, CALL)
    store = MemoryRunStore()
    (asked,) = (await desk(clerk(server.model(CHAT))).execute(run_id="r", store=store)).questions
    with pytest.raises(AnswerRejected, match=why):
        await Inbox(store).answer(asked.id, answer)
    assert await Inbox(store).get(asked.id) == asked


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("done by hand", "done by hand"),
        ({"refunded": 120}, '{"refunded":120}'),
        (ToolReturn("as a return"), "as a return"),
        ({"kind": "tool-failed", "message": "the bank is closed"}, '{"error":"the bank is closed"}'),
    ],
)
async def test_the_result_of_a_call_that_is_made_elsewhere_is_its_answer(
    server: ModelServer, answer: object, said: str
) -> None:
    calls(server, CALL)
    parameters = {
        "type": "object",
        "properties": {"order": {"type": "string"}, "amount": {"type": "integer"}},
    }
    elsewhere = ExternalToolset([ToolDefinition(name="refund", parameters_json_schema=parameters)])
    agent = clerk(server.model(CHAT), look_up, toolsets=[elsewhere])
    store = MemoryRunStore()
    paused = await desk(agent).execute(run_id="r", store=store)
    assert paused.questions[0].question["kind"] == "call"
    assert (await asked_again(agent, store, paused, answer)).output == said


async def asked_again(agent: FastroAgent[Any, Any], store: Any, paused: Any, answer: object) -> Any:
    await Inbox(store).answer(paused.questions[0].id, answer)
    return await desk(agent).resume("r", store=store)


async def test_a_result_from_outside_can_ask_the_model_to_try_again(server: ModelServer) -> None:
    def answer(request: ServedRequest) -> Reply:
        if not request.tool_results:
            return Reply(tool_calls=(CALL,))
        if "no such order" in request.tool_results[-1].text:
            return Reply(tool_calls=(ToolCall("refund", {"order": "o-2", "amount": 5}, "call_2"),))
        return Reply(request.tool_results[-1].text)

    def elsewhere(order: str, amount: int) -> str:
        raise CallDeferred

    server.rule(None, answer)
    agent, store = clerk(server.model(CHAT), Tool(elsewhere, name="refund")), MemoryRunStore()
    paused = await desk(agent).execute(run_id="r", store=store)
    retry = {"kind": "model-retry", "message": "no such order"}
    paused = await asked_again(agent, store, paused, retry)
    assert paused.questions[0].question["args"] == {"order": "o-2", "amount": 5}
    assert (await asked_again(agent, store, paused, "refunded 5")).output == "refunded 5"
    assert len(server.ledger.entries) == 3


# --- tools that defer their calls themselves ---


async def test_a_tool_that_has_begun_a_job_elsewhere_does_not_begin_it_again(
    server: ModelServer, model: Model, store: Any
) -> None:
    def begin(order: str, amount: int) -> str:
        DONE["begun"] += 1
        raise CallDeferred(metadata={"job": f"job-{DONE['begun']}"})

    calls(server, CALL, ToolCall("look_up", {"order": "o-1"}, "call_2"))
    agent = clerk(model, Tool(begin, name="refund"), look_up)
    paused = await desk(agent).execute(run_id="r", store=store)
    assert paused.questions[0].question["metadata"] == {"job": "job-1"}
    paused = await desk(agent).resume("r", store=store)
    assert paused.questions[0].question["metadata"] == {"job": "job-1"}
    result = await asked_again(agent, store, paused, "refunded")
    assert sorted(result.output.split(" & ")) == ["o-1: 120 dollars", "refunded"]
    assert Counter({"begun": 1, "look up o-1": 1}) == DONE
    deferred = [one.deferred for one in result.trace.entries if isinstance(one, ToolEnded)]
    assert sorted(map(str, deferred)) == ["None", "call"]


async def test_a_tool_that_asks_for_approval_itself_goes_on_when_it_has_it(server: ModelServer) -> None:
    def pay(ctx: RunContext[object], order: str, amount: int) -> str:
        if not ctx.tool_call_approved:
            DONE["asked"] += 1
            raise ApprovalRequired(metadata={"limit": 100})
        DONE["paid"] += 1
        return f"paid {amount}"

    calls(server, CALL)
    agent = clerk(server.model(CHAT), Tool(pay, name="refund"))
    result = await asked_once(desk(agent), MemoryRunStore(), True)
    assert (result.output, DONE) == ("paid 120", {"asked": 1, "paid": 1})


async def test_metadata_that_is_no_json_cannot_be_stored(server: ModelServer) -> None:
    def begin(order: str, amount: int) -> str:
        raise CallDeferred(metadata={"job": object()})

    calls(server, CALL)
    agent = clerk(server.model(CHAT), Tool(begin, name="refund"))
    with pytest.raises(StepExecutionError) as caught:
        await desk(agent).execute(run_id="r", store=MemoryRunStore())
    assert isinstance(caught.value.original_error, ValueNotStorable)
    assert "the metadata of the deferred tool call" in str(caught.value.original_error)


# --- several ---


async def test_people_see_all_calls_of_one_answer_and_the_agent_goes_on_when_all_are_answered(
    server: ModelServer, model: Model, store: Any
) -> None:
    second = ToolCall("refund", {"order": "o-2", "amount": 5}, "call_2")
    calls(server, CALL, second, ToolCall("look_up", {"order": "o-1"}, "call_3"))
    agent, inbox = clerk(model, APPROVED, look_up), Inbox(store)
    first, other = (await desk(agent).execute(run_id="r", store=store)).questions
    assert [one.question["args"]["order"] for one in (first, other)] == ["o-1", "o-2"]
    assert not await inbox.answer(other.id, False)
    paused = await desk(agent).resume("r", store=store)
    assert [one.id for one in paused.questions] == [first.id]
    assert await inbox.answer(first.id, True)
    result = await desk(agent).resume("r", store=store)
    expected = ["The tool call was denied.", "o-1: 120 dollars", "refunded 120"]
    assert sorted(result.output.split(" & ")) == expected
    assert Counter({"look up o-1": 1, "refund o-1 120": 1}) == DONE
    assert len(server.ledger.entries) == 2


async def test_an_approval_is_for_one_call_even_if_the_model_repeats_its_id(server: ModelServer) -> None:
    def answer(request: ServedRequest) -> Reply:
        return Reply("done") if len(request.tool_results) == 2 else Reply(tool_calls=(CALL,))

    server.rule(None, answer)
    agent, store = clerk(server.model(CHAT)), MemoryRunStore()
    first = await desk(agent).execute(run_id="r", store=store)
    second = await asked_again(agent, store, first, True)
    assert second.status == "paused"
    assert first.questions[0].id != second.questions[0].id
    assert Counter({"refund o-1 120": 1}) == DONE
    assert (await asked_again(agent, store, second, True)).output == "done"
    assert Counter({"refund o-1 120": 2}) == DONE


async def test_capabilities_before_it_answer_first(server: ModelServer) -> None:
    def small(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        ids = [one.tool_call_id for one in requests.approvals if one.args_as_dict()["amount"] < 10]
        return requests.build_results(approvals=dict.fromkeys(ids, True))

    calls(server, CALL, ToolCall("refund", {"order": "o-2", "amount": 5}, "call_2"))
    policy = HandleDeferredToolCalls(handler=small)
    agent = clerk(server.model(CHAT), capabilities=[policy, AskPeople()])
    store = MemoryRunStore()
    paused = await desk(agent).execute(run_id="r", store=store)
    assert [one.question["args"]["order"] for one in paused.questions] == ["o-1"]
    assert sorted((await asked_again(agent, store, paused, True)).output.split(" & ")) == [
        "refunded 120",
        "refunded 5",
    ]


# --- where agents run ---


@pytest.mark.parametrize("way", ["run", "run_stream", "agent.run", "agent.run_stream_events"])
async def test_each_way_to_run_an_agent_in_a_step_asks(server: ModelServer, model: Model, way: str) -> None:
    calls(server, CALL)
    agent, store = clerk(model), MemoryRunStore()

    @step
    async def handle(ctx: StepContext[Any]) -> Any:
        match way:
            case "run":
                return (await ctx.run(agent, "go")).output
            case "run_stream":
                async with ctx.run_stream(agent, "go") as stream:
                    return "".join([text async for text in stream.stream_text(delta=True)])
            case "agent.run":
                return (await agent.run("go")).output
            case _:
                async with agent.run_stream_events("go") as events:
                    return [event async for event in events][-1].response.output

    result = await asked_once(Pipeline("desk", {"handle": handle}), store, True)
    assert (result.output, DONE) == ("refunded 120", {"refund o-1 120": 1})
    assert len(server.ledger.entries) == result.usage.request_count == 2


async def test_a_plain_agent_in_a_tool_asks_too(server: ModelServer) -> None:
    def answer(request: ServedRequest) -> Reply:
        if request.tool_results:
            return Reply(request.tool_results[-1].text)
        outer = request.prompt == "Refund order o-1."
        return Reply(tool_calls=(ToolCall("delegate", {}, "call_0") if outer else CALL,))

    server.rule(None, answer)
    plain = Agent(
        server.model(CHAT), name="plain", tools=[APPROVED], capabilities=[Metered(), AskPeople(to="finance")]
    )

    async def delegate() -> str:
        return (await plain.run("inner")).output

    agent, store = FastroAgent(server.model(CHAT), tools=[delegate]), MemoryRunStore()
    paused = await desk(agent).execute(run_id="r", store=store)
    assert paused.questions[0].question["agent"] == "plain"
    assert (await asked_again(agent, store, paused, True)).output == "refunded 120"
    assert len(server.ledger.entries) == 4


async def test_each_item_of_a_map_asks_for_itself(server: ModelServer) -> None:
    def answer(request: ServedRequest) -> Reply:
        if request.tool_results:
            return Reply(request.tool_results[-1].text)
        return Reply(tool_calls=(ToolCall("refund", {"order": request.prompt, "amount": 1}, "call_1"),))

    server.rule(None, answer)
    agent, store = clerk(server.model(CHAT)), MemoryRunStore()

    @step
    async def each(ctx: StepContext[Any]) -> list[Any]:
        return [one.output for one in await ctx.map(agent, ["a", "b"])]

    pipeline = Pipeline("desk", {"each": each})
    paused = await pipeline.execute(run_id="r", store=store)
    answers = {one.id: one.question["args"]["order"] == "a" for one in paused.questions}
    result = await pipeline.resume("r", store=store, answers=answers)
    assert result.output == ["refunded 1", "The tool call was denied."]


async def test_each_visit_to_a_node_of_a_graph_asks_for_itself(server: ModelServer) -> None:
    calls(server, CALL)
    nodes = {"handle": Node(clerk(server.model(CHAT)).as_step("Refund order o-1."), max_visits=2), "end": end}
    edges = [
        Edge("handle", "end", when="conditional", condition="has(visited)"),
        Edge("handle", "again", "always"),
        Edge("again", "handle"),
    ]
    graph = Graph(
        "desk",
        nodes={**nodes, "again": Node(again, writes=["visited"])},
        edges=edges,
        entry="handle",
        conversation="isolated",
    )
    store = MemoryRunStore()
    first = await graph.run({}, run_id="r", store=store)
    await Inbox(store).answer(first.questions[0].id, True)
    second = await graph.resume("r", store=store)
    assert [(one.node, one.visit) for one in (*first.questions, *second.questions)] == [
        ("handle", 1),
        ("handle", 2),
    ]
    await Inbox(store).answer(second.questions[0].id, True)
    assert (await graph.resume("r", store=store)).output == "end"
    assert Counter({"refund o-1 120": 2}) == DONE


@step
async def again(ctx: StepContext[Any]) -> bool:
    return True


@step
async def end(ctx: StepContext[Any]) -> str:
    return "end"


async def test_the_decider_of_a_graph_cannot_wait_for_people(server: ModelServer) -> None:
    calls(server, CALL)
    graph = Graph(
        "desk",
        nodes={"begin": again, "end": end, "other": end},
        edges=[Edge("begin", "end", "llm_decide"), Edge("begin", "other", "llm_decide", fallback=True)],
        decider=clerk(server.model(CHAT)),
    )
    result = await graph.run({}, run_id="r", store=MemoryRunStore())
    assert (result.status, DONE) == ("failed", {})
    assert isinstance(result.error, ConfigurationError)
    assert "an agent that does not ask people" in str(result.error)


# --- without a store, without a run ---


async def test_a_run_that_no_store_keeps_cannot_wait_for_people(server: ModelServer) -> None:
    calls(server, CALL)
    with pytest.raises(StepExecutionError) as caught:
        await desk(clerk(server.model(CHAT))).execute()
    assert isinstance(caught.value.original_error, ConfigurationError)
    assert "a store that keeps the run, which waits for the answer" in str(caught.value.original_error)


async def test_outside_of_runs_the_caller_gets_the_calls_as_in_pydantic_ai(server: ModelServer) -> None:
    calls(server, CALL)
    agent = clerk(server.model(CHAT), output_type=[str, DeferredToolRequests])
    first = await agent.run("Refund order o-1.")
    assert [one.tool_name for one in first.output.approvals] == ["refund"]
    results = first.output.build_results(approve_all=True)
    second = await agent.run(message_history=first.all_messages(), deferred_tool_results=results)
    assert second.output == "refunded 120"
    with pytest.raises(UserError, match="DeferredToolRequests"):
        await clerk(server.model(CHAT)).run("Refund order o-1.")


async def test_without_it_a_step_gets_the_calls_itself(server: ModelServer) -> None:
    calls(server, CALL)
    agent = clerk(server.model(CHAT), output_type=[str, DeferredToolRequests], capabilities=[])

    @step
    async def handle(ctx: StepContext[Any]) -> Any:
        first = await ctx.run(agent, "Refund order o-1.")
        if not await ctx.ask(first.output.approvals[0].tool_name, bool):
            return "no"
        results = first.output.build_results(approve_all=True)
        again = agent.run(message_history=first.all_messages(), deferred_tool_results=results)
        return (await again).output

    result = await asked_once(Pipeline("desk", {"handle": handle}), MemoryRunStore(), True)
    assert (result.output, len(server.ledger.entries)) == ("refunded 120", 2)


# --- options ---


async def test_after_its_time_an_approval_is_denied_and_the_model_is_told(server: ModelServer) -> None:
    def elsewhere(order: str) -> str:
        raise CallDeferred

    calls(server, CALL, ToolCall("elsewhere", {"order": "o-1"}, "call_2"))
    people = AskPeople(timeout=0.02, on_timeout="nobody was there")
    pipeline = desk(clerk(server.model(CHAT), APPROVED, elsewhere, capabilities=[people]))
    store = MemoryRunStore()
    paused = await pipeline.execute(run_id="r", store=store)
    assert paused.questions[-1].deadline is not None
    while time() <= paused.questions[-1].deadline.timestamp():
        await asyncio.sleep(0)
    result = await pipeline.resume("r", store=store)
    assert (result.output, DONE) == ('nobody was there & {"error":"nobody was there"}', {})


async def test_without_a_message_for_that_case_the_step_fails_in_time(server: ModelServer) -> None:
    calls(server, CALL)
    pipeline = desk(clerk(server.model(CHAT), capabilities=[AskPeople(timeout=0.02)]))
    store = MemoryRunStore()
    paused = await pipeline.execute(run_id="r", store=store)
    assert paused.questions[0].deadline is not None
    while time() <= paused.questions[0].deadline.timestamp():
        await asyncio.sleep(0)
    with pytest.raises(StepExecutionError) as caught:
        await pipeline.resume("r", store=store)
    assert isinstance(caught.value.original_error, QuestionTimedOut)


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": -1},
        {"timeout": "soon"},
        {"to": 3},
        {"on_timeout": "late"},
        {"timeout": 5, "on_timeout": False},
    ],
)
def test_an_invalid_option_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(reversed(options))):
        AskPeople(**options)


async def test_arguments_go_through_the_codec(server: ModelServer) -> None:
    calls(server, CALL)
    agent, store = clerk(server.model(CHAT)), MemoryRunStore()
    pipeline: Pipeline[Any, Any] = Pipeline(
        "desk", {"handle": agent.as_step("go")}, config=PipelineConfig(codec=Reversed(), store=store)
    )
    (asked,) = (await pipeline.execute(run_id="r")).questions
    assert asked.question["args"]["order"] == "o-1"
    (stored,) = [one for one in await entries_of(store, "r") if isinstance(one, QuestionAsked)]
    assert "o-1" not in repr(stored)


class Reversed:
    def encode(self, payload: bytes) -> bytes:
        return payload[::-1]

    def decode(self, payload: bytes) -> bytes:
        return payload[::-1]
