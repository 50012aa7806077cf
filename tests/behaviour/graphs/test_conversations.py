"""What agents in the nodes of a graph are sent, in each of the three protocols."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIResponsesModelSettings
from support.agents import paid_agent
from support.visiting import Branch

from fastroai import FastroAgent, StepContext, step
from fastroai.calls.call import AgentCall
from fastroai.errors import CostBudgetExceeded
from fastroai.graphs.conversation.conversation import GraphConversation
from fastroai.graphs.conversation.talk import Talk
from fastroai.graphs.conversation.thread import Phase, Thread
from fastroai.runtime import Scope
from fastroai.steps import StepConfig
from fastroai.testing import ModelServer, Reply, ToolCall
from fastroai.testing.requests import ServedRequest
from fastroai.usage import Budget
from fastroai.usage.limits import limits_of

PAGE = "word " * 400


class City(BaseModel):
    name: str


@pytest.fixture
def any_model(server: ModelServer) -> Model:
    """For what is not about the protocol."""
    return server.model("openai:gpt-5-mini")


@pytest.fixture
def served(server: ModelServer) -> list[ServedRequest]:
    """All requests, answered: to "read", and to "again" later, with two calls of the tool that reads."""
    requests: list[ServedRequest] = []

    @server.rule()
    def answer(request: ServedRequest) -> Reply:
        requests.append(request)
        tools = {tool.name for tool in request.tools}
        if "read" in tools and len(request.tool_results) == 2 * request.prompt.count("again"):
            return Reply(tool_calls=(ToolCall("read", {"page": 1}), ToolCall("read", {"page": 2})))
        if request.output_tool is not None:
            return Reply(tool_calls=(ToolCall(request.output_tool.name, {"name": "Paris"}),))
        return Reply(text=f"answer {len(requests)}")

    return requests


def reader(model: Model, **options: Any) -> FastroAgent[Any, Any]:
    """An agent with a tool whose results are long."""

    def read(page: int) -> str:
        return f"{page}: {PAGE}"

    return FastroAgent(model, name="reader", tools=[read], **options)


def asks(agent: FastroAgent[Any, Any], *prompts: str) -> Any:
    """A node that asks an agent, once or more, and gives the last output."""

    @step
    async def node(ctx: StepContext[Any]) -> Any:
        for prompt in prompts:
            output = (await ctx.run(agent, prompt)).output
        return output

    return node


def user_texts(request: ServedRequest) -> list[str]:
    return [message.text for message in request.messages if message.role == "user"]


def assert_calls_and_results_match(request: ServedRequest) -> None:
    assert [call.id for call in request.tool_calls] == [result.call_id for result in request.tool_results]


# --- what is sent ---


async def test_a_node_hears_what_was_said_before_and_not_as_whom(
    model: Model, served: list[ServedRequest]
) -> None:
    first = reader(model, system_prompt="I am Ann.", instructions="Ann obeys.", output_type=City)
    second = FastroAgent(model, name="second", system_prompt="I am Bob.", instructions="Bob obeys.")
    branch = Branch.begin(goal="find a city")
    await branch.visit("find", asks(first, "where?"), focus="the best one")
    await branch.visit("praise", asks(second, "praise it"), focus="two lines")
    last = served[-1]
    assert "Ann" not in str(last.body)
    assert "I am Bob." in last.system
    layers = [
        "Bob obeys.",
        "Its goal: find a city",
        "Done so far:\n- find: wrote find",
        "Your focus now: two lines",
    ]
    positions = [last.system.index(layer) for layer in layers]
    assert positions == sorted(positions)
    text = "\n".join(user_texts(last))
    transition = "Done: node 'find' wrote find = {\"name\":\"Paris\"}.\nNext: node 'praise'. Focus: two lines"
    order = [text.index(part) for part in ("where?", transition, "praise it")]
    assert order == sorted(order)
    assert {result.name for result in last.tool_results} == {"read", "final_result"}
    assert_calls_and_results_match(last)


async def test_the_first_call_is_that_of_an_agent_alone_but_for_its_layers(
    any_model: Model, served: list[ServedRequest]
) -> None:
    await Branch.begin().visit("only", asks(FastroAgent(any_model, system_prompt="I am Ann."), "hello"))
    assert served[0].system == "I am Ann."
    assert user_texts(served[0]) == ["hello"]


async def test_calls_in_one_visit_go_on_from_each_other(model: Model, served: list[ServedRequest]) -> None:
    agent = FastroAgent(model, system_prompt="I am Ann.")
    await Branch.begin().visit("talk", asks(agent, "one", "two", "three"))
    assert [message.text for message in served[-1].messages] == [
        "one",
        "answer 1",
        "two",
        "answer 2",
        "three",
    ]
    assert served[-1].system == "I am Ann."


async def test_the_layers_do_not_pile_up(any_model: Model, served: list[ServedRequest]) -> None:
    branch = Branch.begin(goal="count")
    for _ in range(4):
        await branch.visit(
            "loop", asks(FastroAgent(any_model, instructions="Count."), "next"), focus="the number"
        )
    assert str(served[-1].body).count("Its goal: count") == 1
    assert served[-1].system.count("the number") == 1
    assert "- loop (3 visits): wrote loop" in served[-1].system


async def test_isolated_calls_hear_goal_and_focus_and_nothing_of_each_other(
    any_model: Model, served: list[ServedRequest]
) -> None:
    branch = Branch.begin("isolated", goal="count")
    await branch.visit("a", asks(FastroAgent(any_model, system_prompt="I am Ann."), "one", "two"))
    await branch.visit("b", asks(FastroAgent(any_model, system_prompt="I am Bob."), "three"), focus="b alone")
    assert [user_texts(request) for request in served] == [["one"], ["two"], ["three"]]
    assert "I am Bob." in served[-1].system
    assert "count" in served[-1].system
    assert "Your focus now: b alone" in served[-1].system
    assert "Done" not in str(served[-1].body)


async def test_branches_do_not_hear_each_other_and_the_join_hears_of_both(
    any_model: Model, served: list[ServedRequest]
) -> None:
    agent = FastroAgent(any_model)
    before = Branch.begin()
    await before.visit("split", asks(agent, "begin"))
    left, right = before.fork(), before.fork()
    await left.visit("left", asks(agent, "go left"))
    await right.visit("right", asks(agent, "go right"))
    assert "left" not in str(served[-1].body).replace("go right", "")
    before.join(left=left, right=right)
    await before.visit("merge", asks(agent, "end"))
    text = "\n".join(user_texts(served[-1]))
    assert "go left" not in text
    marks = ["Done in the branch 'left'", "Done in the branch 'right'", "Next: node 'merge'"]
    positions = [text.index(mark) for mark in marks]
    assert positions == sorted(positions)


async def test_what_has_its_own_history_takes_no_part(any_model: Model, served: list[ServedRequest]) -> None:
    agent = FastroAgent(any_model)

    async def apart(ctx: StepContext[Any]) -> str:
        await ctx.run(agent, "alone", message_history=())
        await ctx.map(agent, ["each"])
        return (await ctx.run(agent, "together")).output

    branch = Branch.begin()
    await branch.visit("a", asks(agent, "first"))
    await branch.visit("b", apart)
    assert [user_texts(request) for request in served[1:3]] == [["alone"], ["each"]]
    text = "\n".join(user_texts(served[-1]))
    assert "first" in text
    assert "alone" not in text
    assert "each" not in text


async def test_an_attempt_that_failed_leaves_nothing_behind(
    any_model: Model, served: list[ServedRequest]
) -> None:
    agent = FastroAgent(any_model)

    async def flaky(ctx: StepContext[Any]) -> str:
        output = (await ctx.run(agent, f"attempt {ctx.attempt}")).output
        if ctx.attempt == 1:
            raise ConnectionResetError("gone")
        return output

    branch = Branch.begin()
    await branch.visit("flaky", flaky, config=StepConfig(retries=1, retry_delay=0))
    await branch.visit("next", asks(agent, "go on"))
    assert "attempt 1" not in str(served[-1].body)
    assert "attempt 2" in str(served[-1].body)


async def test_calls_at_once_have_the_same_history_and_are_both_heard(
    any_model: Model, served: list[ServedRequest]
) -> None:
    agent = FastroAgent(any_model)

    async def both(ctx: StepContext[Any]) -> int:
        await asyncio.gather(ctx.run(agent, "left"), ctx.run(agent, "right"))
        return 2

    branch = Branch.begin()
    await branch.visit("a", asks(agent, "first"))
    await branch.visit("both", both)
    await branch.visit("c", asks(agent, "last"))
    assert len({len(request.messages) for request in served[1:3]}) == 1
    said = user_texts(served[-1])
    assert "left" in "\n".join(said)
    assert "right" in "\n".join(said)


async def test_a_thread_from_the_record_asks_the_same(model: Model, served: list[ServedRequest]) -> None:
    agent = reader(model, system_prompt="I am Ann.")
    branch = Branch.begin(GraphConversation(compact_above=300, keep_phases=1), goal="read")
    for node in ("a", "b", "c"):
        await branch.visit(node, asks(agent, "again" if node == "c" else "read"))
    thread = Thread(branch.thread.conversation)
    for phase in branch.phases:
        thread = thread.add(Phase.from_json(json.loads(json.dumps(phase.to_json()))))
    assert any(phase.compaction for phase in branch.phases)
    resumed = Branch(thread, "read", None, dict(branch.visits))
    for one in (branch, resumed):
        await one.visit("d", asks(FastroAgent(model), "end"))
    assert served[-1].body == served[-2].body


# --- compaction ---


async def test_above_the_limit_tool_results_of_older_phases_are_dropped(
    model: Model, served: list[ServedRequest], caplog: pytest.LogCaptureFixture
) -> None:
    agent = reader(model)
    branch = Branch.begin(GraphConversation(compact_above=1_500, keep_phases=2))
    for node in ("a", "b"):
        await branch.visit(node, asks(agent, "read" if node == "a" else "again"))
    await branch.visit("c", asks(FastroAgent(model), "so?"))
    assert "dropped" not in str(served[-1].body)
    assert "above compact_above=1500" in caplog.text
    await branch.visit("d", asks(FastroAgent(model), "and?"))
    last = served[-1]
    dropped = [result.text for result in last.tool_results if "dropped to save space" in result.text]
    assert dropped == ["[dropped to save space: a result of 2,003 characters]"] * 2
    assert len([result for result in last.tool_results if PAGE.strip() in result.text]) == len(
        [result for result in last.tool_results if result.text not in dropped]
    )
    assert_calls_and_results_match(last)


async def test_a_summary_takes_the_place_of_older_phases_and_is_charged_to_the_node(
    model: Model, served: list[ServedRequest]
) -> None:
    summarizer = paid_agent(70, answer=lambda prompt: f"  summary of {prompt.count('returns')} results ")
    branch = Branch.begin(
        GraphConversation(compact_above=1_000, summarizer=summarizer, keep_phases=2), goal="read it all"
    )
    agent = FastroAgent(model, system_prompt="I am Bob.")
    await branch.visit("a", asks(reader(model), "read"))
    await branch.visit("b", asks(agent, "second"))
    await branch.visit("c", asks(agent, "third"))
    async with Scope("graph", "graph", parent=None) as scope:
        branch.scope = scope
        await branch.visit("d", asks(agent, "fourth", "fifth"))
    assert scope.spent().cost_microcents > 70
    assert scope.spent().request_count == 3
    last = served[-1]
    text = "\n".join(user_texts(last))
    assert "summary of 2 results" in text
    assert PAGE.strip() not in str(last.body)
    assert "read" not in user_texts(last)
    assert "I am Bob." in last.system
    positions = [text.index(part) for part in ("summary of", "second", "third", "fourth", "fifth")]
    assert positions == sorted(positions)
    assert last.tool_results == ()
    assert branch.phases[-1].compaction is not None


async def test_the_summarizer_reads_the_older_phases_as_text(
    any_model: Model, served: list[ServedRequest]
) -> None:
    prompts: list[str] = []
    summarizer = paid_agent(1, answer=lambda prompt: prompts.append(prompt) or "short")  # type: ignore[func-returns-value]
    branch = Branch.begin(
        GraphConversation(compact_above=100, summarizer=summarizer, keep_phases=1), goal="win"
    )
    await branch.visit("a", asks(reader(any_model), "read"))
    await branch.visit("b", asks(FastroAgent(any_model), "b"))
    await branch.visit("c", asks(FastroAgent(any_model), "c"))
    await branch.visit("d", asks(reader(any_model), "again", "d"))
    assert "The goal of the work: win" in prompts[0]
    assert 'user: read\nassistant calls read: {"page":1}' in prompts[0]
    assert "read returns: 1: word word" in prompts[0]
    assert prompts[1:]
    assert "summary of what was before: short" in prompts[1]


@pytest.mark.parametrize("answer", ["", "raise"])
async def test_where_the_summary_fails_tool_results_are_dropped(
    any_model: Model, served: list[ServedRequest], caplog: pytest.LogCaptureFixture, answer: str
) -> None:
    def say(prompt: str) -> str:
        if answer == "raise":
            raise ValueError("no summary today")
        return " "

    branch = Branch.begin(
        GraphConversation(compact_above=100, summarizer=paid_agent(1, answer=say), keep_phases=1)
    )
    await branch.visit("a", asks(reader(any_model), "read"))
    await branch.visit("b", asks(FastroAgent(any_model), "b"))
    await branch.visit("c", asks(FastroAgent(any_model), "c"))
    assert "the conversation could not be summarized" in caplog.text
    assert "dropped to save space" in str(served[-1].body)


async def test_a_visit_asks_for_a_summary_once_though_that_fails(
    any_model: Model, served: list[ServedRequest], caplog: pytest.LogCaptureFixture
) -> None:
    branch = Branch.begin(
        GraphConversation(compact_above=1, summarizer=paid_agent(1, answer=lambda prompt: " "), keep_phases=1)
    )
    for node in ("a", "b"):
        await branch.visit(node, asks(FastroAgent(any_model), node))
    await branch.visit("c", asks(FastroAgent(any_model), "one", "two", "three"))
    assert caplog.text.count("the conversation could not be summarized") == 1
    assert branch.phases[-1].compaction is None


async def test_a_budget_above_the_node_that_the_summary_meets_stops_it(
    any_model: Model, served: list[ServedRequest]
) -> None:
    branch = Branch.begin(GraphConversation(compact_above=100, summarizer=paid_agent(10_000), keep_phases=1))
    await branch.visit("a", asks(reader(any_model), "read"))
    await branch.visit("b", asks(FastroAgent(any_model), "b"))
    sent = len(served)
    async with Scope(
        "graph", "graph", parent=None, limits=limits_of(Budget(microcents=5_000), None)
    ) as scope:
        branch.scope = scope
        with pytest.raises(CostBudgetExceeded) as stop:
            await branch.visit("c", asks(FastroAgent(any_model), "c"))
    assert stop.value.scope_path == ("graph",)
    assert len(served) == sent


async def test_a_compaction_that_was_paid_for_outlives_the_failure_of_its_node(
    any_model: Model, served: list[ServedRequest]
) -> None:
    async def fails(ctx: StepContext[Any]) -> None:
        await ctx.run(FastroAgent(any_model), "c")
        raise ValueError("no")

    summarizer = paid_agent(1, answer=lambda prompt: "short")
    branch = Branch.begin(GraphConversation(compact_above=100, summarizer=summarizer, keep_phases=1))
    await branch.visit("a", asks(reader(any_model), "read"))
    await branch.visit("b", asks(FastroAgent(any_model), "b"))
    with pytest.raises(ValueError, match="no"):
        await branch.visit("c", fails)
    assert branch.thread.summary == "short"


# --- details of calls ---


async def test_what_a_call_says_itself_stays_in_front() -> None:
    talk = Talk(branch_with_history(), "b", 1, focus="now", goal="win")
    own = ReinjectSystemPrompt[Any](id="own")
    context: Any = None  # nothing is compacted
    texts: list[tuple[str | Sequence[str] | None, int]]
    texts = [(None, 0), ("mine", 1), (["mine", "too"], 2), (("mine",), 1)]
    for said, expected in texts:
        call = AgentCall(prompt="x", options={"instructions": said, "capabilities": [own]})
        prepared = await talk.prepare(call, context)
        instructions, capabilities = prepared.options["instructions"], prepared.options["capabilities"]
        assert isinstance(instructions, list)
        assert instructions[:expected] == ["mine", "too"][:expected]
        assert len(instructions) == expected + 3
        assert capabilities is not None
        assert capabilities[0] is own
    bare = await Talk(Thread(), "a", 1).prepare(
        AgentCall(prompt="x", options={"instructions": "mine"}), context
    )
    assert bare == AgentCall(prompt="x", options={"instructions": "mine"})


def branch_with_history() -> Thread:
    thread = Thread()
    return thread.add(Talk(thread, "a", 1).phase({"a": 1}))


async def test_no_response_id_of_another_node_is_gone_on_from(
    server: ModelServer, served: list[ServedRequest]
) -> None:
    """The provider would go on with the other agent's system prompt, or refuse an id that is not stored."""
    settings = OpenAIResponsesModelSettings(openai_previous_response_id="auto")
    first = FastroAgent(server.model("openai:gpt-5-mini"), system_prompt="I am Ann.")
    second = FastroAgent(server.model("openai:gpt-5-mini"), model_settings=settings)
    branch = Branch.begin()
    await branch.visit("a", asks(first, "first"))
    await branch.visit("b", asks(second, "second"))
    assert "previous_response_id" not in served[-1].body
    assert user_texts(served[-1])[0] == "first"
