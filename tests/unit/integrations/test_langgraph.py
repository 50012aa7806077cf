"""Steps as nodes of LangGraph graphs, and these graphs as steps, with the real LangGraph."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt
from pydantic import BaseModel
from support.agents import paid_agent

import fastroai.integrations.langgraph
from fastroai import Budget, FastroAgent, budget_scope
from fastroai.errors import (
    ConfigurationError,
    ContractViolation,
    CostBudgetExceeded,
    LangGraphStopped,
    MissingExtraError,
    StepExecutionError,
    TimeLimitExceeded,
)
from fastroai.integrations.langgraph import as_node, graph_step, worth_retrying
from fastroai.pipelines import (
    ConversationState,
    ConversationStatus,
    Pipeline,
    PipelineConfig,
    StepConfig,
    StepContext,
    step,
)
from fastroai.store import MemoryRunStore
from fastroai.testing import ModelServer, Reply

AT_ONCE = RetryPolicy(max_attempts=3, initial_interval=0, backoff_factor=1, jitter=False)


class State(TypedDict, total=False):
    text: str
    said: Annotated[list[str], operator.add]
    item: str
    approved: str


def graph_of(
    *nodes: tuple[str, Any],
    retry_policy: RetryPolicy | None = None,
    checkpointer: Any = None,
    state: Any = State,
) -> Any:
    """Nodes one after the other."""
    builder = StateGraph(state)
    before = START
    for name, node in nodes:
        builder.add_node(name, node, retry_policy=retry_policy)
        builder.add_edge(before, name)
        before = name
    builder.add_edge(before, END)
    return builder.compile(checkpointer=checkpointer)


def side_by_side(*nodes: tuple[str, Any]) -> Any:
    builder = StateGraph(State)
    for name, node in nodes:
        builder.add_node(name, node)
        builder.add_edge(START, name)
    return builder.compile()


def asks(agent: FastroAgent[Any, str], key: str = "text") -> Any:
    """A step that asks an agent, and adds its answer to what was said."""

    @step
    async def ask(ctx: StepContext) -> dict[str, list[str]]:
        return {"said": [(await ctx.run(agent, str(ctx.get_input(key)))).output]}

    return ask


def paid(step_id: str, microcents: int = 100, **options: Any) -> tuple[str, Any]:
    return step_id, as_node(asks(paid_agent(microcents)), step_id=step_id, **options)


async def failure(
    graph: Any, state: Any, kind: type[BaseException] = StepExecutionError, **options: Any
) -> Any:
    with pytest.raises(kind) as caught:
        await graph.ainvoke(state, **options)
    return caught.value


# --- state ---


@step
async def shout(ctx: StepContext) -> str:
    return str(ctx.get_input("text")).upper()


@step
async def tell(ctx: StepContext) -> list[str]:
    return sorted(ctx.inputs)


async def test_a_step_reads_the_state_and_writes_a_key_of_it() -> None:
    graph = graph_of(("shout", as_node(shout, writes="text")))
    assert await graph.ainvoke({"text": "hello"}) == {"text": "HELLO", "said": []}


async def test_a_step_sees_only_what_it_reads() -> None:
    graph = graph_of(("tell", as_node(tell, reads=["text", "item"], writes="said")))
    assert (await graph.ainvoke({"text": "hello", "approved": "yes"}))["said"] == ["text"]


class Model(BaseModel):
    text: str
    said: Annotated[list[str], operator.add] = []


async def test_a_step_may_read_nothing_and_give_any_mapping() -> None:
    @step
    async def count(ctx: StepContext) -> Mapping[str, str]:
        return MappingProxyType({"text": str(len(ctx.inputs))})

    graph = graph_of(("count", as_node(count, reads=[])))
    assert (await graph.ainvoke({"text": "hello"}))["text"] == "0"


async def test_a_failure_never_becomes_an_output() -> None:
    @step(on_error="continue")
    async def fails(ctx: StepContext) -> str:
        raise ValueError("inside")

    error = await failure(graph_of(("fails", as_node(fails, writes="text"))), {"text": ""})
    assert str(error) == "step 'fails' failed: ValueError: inside"


@dataclass
class Data:
    text: str
    said: Annotated[list[str], operator.add]


@pytest.mark.parametrize("kind", [Model, Data])
async def test_states_can_be_models_and_dataclasses(kind: type) -> None:
    graph = graph_of(
        ("tell", as_node(tell, writes="said")), ("shout", as_node(shout, writes="text")), state=kind
    )
    assert await graph.ainvoke({"text": "hello", "said": []}) == {"text": "HELLO", "said": ["said", "text"]}


async def test_a_model_a_dataclass_and_nothing_are_updates_of_keys_of_the_same_names() -> None:
    @step
    async def model(ctx: StepContext) -> Model:
        return Model(text="of a model", said=["model"])

    @step
    async def data(ctx: StepContext) -> Data:
        return Data(text="of data", said=["data"])

    @step
    async def nothing(ctx: StepContext) -> None: ...

    graph = graph_of(("model", as_node(model)), ("data", as_node(data)), ("nothing", as_node(nothing)))
    assert await graph.ainvoke({"text": ""}) == {"text": "of data", "said": ["model", "data"]}


async def test_a_command_goes_where_it_says() -> None:
    @step
    async def choose(ctx: StepContext) -> Command[str]:
        return Command(update={"said": ["chosen"]}, goto="right")

    builder = StateGraph(State)
    builder.add_node("choose", as_node(choose), destinations=("left", "right"))
    builder.add_node("left", as_node(shout, writes="item"))
    builder.add_node("right", as_node(shout, writes="text"))
    builder.add_edge(START, "choose")
    assert await builder.compile().ainvoke({"text": "hello"}) == {"text": "HELLO", "said": ["chosen"]}


async def test_a_conversation_that_needs_more_is_written_as_it_is() -> None:
    state: ConversationState[str] = ConversationState(status=ConversationStatus.INCOMPLETE, data="so far")

    @step
    async def collect(ctx: StepContext) -> ConversationState[str]:
        return state

    graph = graph_of(("collect", as_node(collect, writes="item")))
    assert (await graph.ainvoke({"text": ""}))["item"] == state
    with pytest.raises(ConfigurationError, match="it gives 'ConversationState'"):
        as_node(collect)


def test_an_output_that_is_no_update_needs_a_key_when_the_node_is_made() -> None:
    with pytest.raises(
        ConfigurationError, match=r"writes=None: expected the key .* step 'shout': it gives 'str'"
    ):
        as_node(shout)


async def test_an_output_that_is_no_update_needs_a_key_when_the_node_runs() -> None:
    @step
    async def untyped(ctx: StepContext) -> Any:
        return 42

    error = await failure(graph_of(("untyped", as_node(untyped))), {"text": ""}, ConfigurationError)
    assert "it gives 'int'" in str(error)


async def test_what_is_sent_to_a_node_must_have_keys() -> None:
    builder = StateGraph(State)
    builder.add_node("tell", as_node(tell, writes="said"))
    builder.add_conditional_edges(START, lambda state: [Send("tell", "bare")], ["tell"])
    error = await failure(builder.compile(), {"text": ""}, ConfigurationError)
    assert "state='bare': expected a dict" in str(error)


def test_options_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"step_id=None: expected a name"):
        as_node(paid_agent().as_step("hello"), writes="text")
    with pytest.raises(ConfigurationError, match=r"reads='text': expected a list of keys: \['text'\]"):
        as_node(shout, reads="text", writes="text")
    with pytest.raises(ConfigurationError, match=r"expected a compiled graph: builder\.compile\(\)"):
        graph_step(StateGraph(State))  # type: ignore[call-overload]


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"as_node needs langgraph: .*langgraph"):
        as_node(shout, writes="text")
    with pytest.raises(MissingExtraError, match=r"graph_step needs langgraph"):
        graph_step(graph_of(("shout", lambda state: state)))


def test_langgraph_is_imported_only_when_it_is_used() -> None:
    module = ast.parse(inspect.getsource(fastroai.integrations.langgraph))
    imported = {node.module for node in module.body if isinstance(node, ast.ImportFrom)}
    assert "fastroai.pipelines" in imported
    assert not any(name.startswith(("langgraph", "langchain")) for name in imported if name)


async def test_a_node_can_be_called_by_itself() -> None:
    assert await as_node(shout, writes="text").ainvoke({"text": "hello"}) == {"text": "HELLO"}


async def test_the_context_of_the_graph_is_deps_unless_they_are_given() -> None:
    @step
    async def who(ctx: StepContext[str]) -> dict[str, list[str]]:
        return {"said": [ctx.deps]}

    graph = graph_of(("theirs", as_node(who, step_id="theirs")), ("ours", as_node(who, deps="Grace")))
    assert (await graph.ainvoke({"text": ""}, context="Ada"))["said"] == ["Ada", "Grace"]


# --- contracts, retries, time ---


async def test_a_violated_contract_fails_the_node_and_is_not_retried() -> None:
    @step(accepts={"text": int}, retries=2)
    async def number(ctx: StepContext) -> dict[str, str]:
        return {"text": str(ctx.get_input("text") + 1)}

    graph = graph_of(("number", as_node(number)), retry_policy=AT_ONCE._replace(retry_on=worth_retrying))
    assert (await graph.ainvoke({"text": "41"}))["text"] == "42"
    error = await failure(graph, {"text": "many"})
    assert isinstance(error.original_error, ContractViolation)
    assert "text: Input should be a valid integer" in str(error)


async def test_what_our_retries_have_used_up_is_not_repeated_by_those_of_langgraph() -> None:
    tries: list[int] = []

    @step(retries=1, retry_delay=0)
    async def flaky(ctx: StepContext) -> dict[str, str]:
        tries.append(ctx.attempt)
        raise ConnectionError("down")

    policy = AT_ONCE._replace(retry_on=worth_retrying)
    await failure(graph_of(("flaky", as_node(flaky)), retry_policy=policy), {"text": ""})
    assert tries == [1, 2]


async def test_without_retries_of_ours_langgraph_may_have_its_own() -> None:
    tries: list[str] = []

    @step
    async def flaky(ctx: StepContext) -> dict[str, str]:
        tries.append(ctx.idempotency_key)
        if len(tries) < 3:
            raise ConnectionError("down")
        return {"text": "up"}

    policy = AT_ONCE._replace(retry_on=worth_retrying)
    graph = graph_of(("flaky", as_node(flaky)), retry_policy=policy)
    assert (await graph.ainvoke({"text": ""}))["text"] == "up"
    assert len(tries) == 3
    assert len(set(tries)) == 1, "a retry is the same visit of the node"


async def test_a_node_on_record_that_was_cut_off_repeats_no_request_that_was_answered() -> None:
    asked, cut_off = asyncio.Event(), [True]

    @step
    async def asks_and_waits(ctx: StepContext) -> dict[str, list[str]]:
        answer = (await ctx.run(paid_agent(100), "hello")).output
        asked.set()
        if cut_off:
            await asyncio.Event().wait()
        return {"said": [answer]}

    node = as_node(asks_and_waits, pipeline_config=PipelineConfig(store=MemoryRunStore()))
    graph = graph_of(("asks", node), checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "one"}}
    task = asyncio.create_task(graph.ainvoke({"text": ""}, config))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    cut_off.clear()
    async with budget_scope(Budget(requests=1)) as scope:
        assert (await graph.ainvoke(None, config))["said"] == ["answer to hello"]
    assert scope.usage.request_count == 0, "it was paid for before"


@pytest.mark.parametrize("in_threads", [False, True])
async def test_langgraph_may_retry_a_node_on_record(in_threads: bool) -> None:
    tries: list[str] = []

    @step
    async def flaky(ctx: StepContext) -> dict[str, str]:
        tries.append(ctx.idempotency_key)
        if len(tries) < 3:
            raise ConnectionError("down")
        return {"text": "up"}

    node = as_node(flaky, pipeline_config=PipelineConfig(store=MemoryRunStore()))
    graph = graph_of(("flaky", node), retry_policy=AT_ONCE)
    call = asyncio.to_thread(graph.invoke, {"text": ""}) if in_threads else graph.ainvoke({"text": ""})
    assert (await call)["text"] == "up"
    assert len(set(tries)) == 1


async def test_a_timeout_ends_the_node() -> None:
    stopped = asyncio.Event()

    @step
    async def waits(ctx: StepContext) -> dict[str, str]:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return {}

    graph = graph_of(("waits", as_node(waits, config=StepConfig(timeout=0.01))))
    error = await failure(graph, {"text": ""})
    assert isinstance(error.original_error, TimeLimitExceeded)
    assert stopped.is_set()


async def test_cancelling_the_graph_cancels_its_nodes() -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    @step
    async def waits(ctx: StepContext) -> dict[str, str]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return {}

    graph = graph_of(("waits", as_node(waits)))
    pipeline = Pipeline[Any, Any]("outer", {"graph": graph_step(graph)})
    for run in (graph.ainvoke({"text": ""}), pipeline.execute({"text": ""})):
        begun.clear()
        stopped.clear()
        task = asyncio.ensure_future(run)
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert stopped.is_set()


# --- account and budgets ---


async def test_all_nodes_of_a_graph_are_on_one_account_and_each_on_its_own(model_server: ModelServer) -> None:
    model_server.script(Reply("billing"), model="gpt-5-nano")
    model_server.script(Reply("Sorry."), Reply("Goodbye."), model="gpt-5-mini")
    small = FastroAgent(model_server.model("openai:gpt-5-nano"))
    large = FastroAgent(model_server.model("openai:gpt-5-mini"))
    graph = graph_of(
        ("classify", as_node(asks(small), step_id="classify")),
        ("reply", as_node(asks(large), step_id="reply")),
        ("close", as_node(asks(large), step_id="close")),
    )
    async with budget_scope(Budget(usd="0.50")) as scope:
        final = await graph.ainvoke({"text": "I was charged twice"})
    assert final["said"] == ["billing", "Sorry.", "Goodbye."]
    assert [record.step_id for record in scope.records] == ["classify", "reply", "close"]
    assert scope.usage.request_count == len(model_server.ledger.entries) == 3
    assert scope.usage.cost_usd > 0
    assert scope.usage.input_tokens == sum(entry.usage.input_tokens for entry in model_server.ledger.entries)


@pytest.mark.parametrize("in_threads", [False, True])
async def test_a_budget_holds_for_parallel_branches(in_threads: bool) -> None:
    graph = side_by_side(*(paid(f"branch{number}") for number in range(5)))
    async with budget_scope(Budget(microcents=300)) as scope:
        with pytest.raises(CostBudgetExceeded) as stop:
            if in_threads:
                await asyncio.to_thread(graph.invoke, {"text": "hello"})
            else:
                await graph.ainvoke({"text": "hello"})
    assert scope.usage.cost_microcents <= 300
    assert stop.value.budget_microcents == 300


def test_a_budget_holds_for_sync_code() -> None:
    graph = side_by_side(*(paid(f"branch{number}") for number in range(3)))
    with budget_scope(Budget(microcents=300)) as scope:
        graph.invoke({"text": "hello"})
    assert {record.step_id for record in scope.records} == {"branch0", "branch1", "branch2"}
    assert scope.usage.cost_microcents == 300


async def test_a_budget_of_the_step_fails_the_node_with_what_it_spent() -> None:
    @step(cost_budget=150)
    async def twice(ctx: StepContext) -> dict[str, str]:
        agent = paid_agent(100)
        await ctx.run(agent, "one")
        return {"text": (await ctx.run(agent, "two")).output}

    error = await failure(graph_of(("twice", as_node(twice))), {"text": ""})
    assert isinstance(error.original_error, CostBudgetExceeded)
    assert error.usage.cost_microcents == 100


async def test_loops_and_what_is_sent_are_all_charged() -> None:
    builder = StateGraph(State)
    builder.add_node(*paid("ask"))
    builder.add_node(*paid("each", 10, config=StepConfig(timeout=60)))
    builder.add_edge(START, "ask")

    def route(state: State) -> Any:
        if len(state["said"]) < 3:
            return "ask"
        return [Send("each", {"text": text}) for text in ("a", "b", "c")]

    builder.add_conditional_edges("ask", route, ["ask", "each"])
    async with budget_scope(Budget(usd=1)) as scope:
        final = await builder.compile().ainvoke({"text": "hello"})
    assert final["said"][3:] == ["answer to a", "answer to b", "answer to c"]
    assert scope.usage.cost_microcents == 330


# --- a graph as a step ---


async def test_a_graph_is_a_step_among_others_and_its_cost_is_the_steps() -> None:
    graph = graph_of(paid("first"), paid("second", 50))
    pipeline = Pipeline[Any, Any, str](
        "desk",
        {
            "shout": shout,
            "graph": graph_step(
                graph,
                inputs=lambda ctx: {"text": ctx.get_dependency("shout")},
                output=lambda final: " ".join(final["said"]),
            ),
            "after": asks(paid_agent(7), "text"),
        },
        {"graph": ["shout"], "after": ["graph"]},
        output_step="graph",
    )
    result = await pipeline.execute({"text": "hello"})
    assert result.output == "answer to HELLO answer to HELLO"
    assert result.usage.steps["graph"].cost_microcents == 150
    assert result.usage.cost_microcents == 157


async def test_by_default_it_gets_inputs_and_outputs_of_dependencies_and_gives_its_state() -> None:
    @step
    async def item(ctx: StepContext) -> str:
        return "from a step"

    graph = graph_of(("tell", as_node(tell, writes="said")))
    pipeline = Pipeline[Any, Any]("outer", {"item": item, "graph": graph_step(graph)}, {"graph": ["item"]})
    result = await pipeline.execute({"text": "hello"}, deps="anything")
    assert result.output == {"text": "hello", "item": "from a step", "said": ["item", "said", "text"]}


async def run_alone(one: Any, **options: Any) -> Any:
    pipeline = Pipeline[Any, Any]("outer", {"graph": one}, config=PipelineConfig(**options))
    return await pipeline.execute({"text": "hi"})


async def test_its_output_can_be_a_key_of_the_final_state() -> None:
    assert (await run_alone(graph_step(graph_of(paid("ask")), output="said"))).output == ["answer to hi"]
    with pytest.raises(StepExecutionError, match=r"output='sad': expected a key of the final state: text"):
        await run_alone(graph_step(graph_of(paid("ask")), output="sad"))


async def test_the_type_that_its_output_function_gives_is_checked() -> None:
    def count(final: State) -> int:
        return final["text"]  # type: ignore[return-value]

    with pytest.raises(StepExecutionError, match="Input should be a valid integer"):
        await run_alone(graph_step(graph_of(paid("ask")), output=count))


async def test_deps_are_the_context_of_the_graph() -> None:
    @step
    async def who(ctx: StepContext[str]) -> dict[str, list[str]]:
        return {"said": [ctx.deps]}

    pipeline = Pipeline[str, Any](
        "outer", {"graph": graph_step(graph_of(("who", as_node(who))), output="said")}
    )
    assert (await pipeline.execute({"text": ""}, deps="Ada")).output == ["Ada"]


async def test_the_budget_of_the_step_stops_inside_the_graph() -> None:
    one = graph_step(graph_of(paid("first"), paid("second")), config=StepConfig(cost_budget=150))
    with pytest.raises(StepExecutionError) as caught:
        await run_alone(one)
    assert isinstance(caught.value.original_error, CostBudgetExceeded)
    assert caught.value.usage.cost_microcents == 100


async def test_the_budget_of_the_run_stops_the_run() -> None:
    with pytest.raises(CostBudgetExceeded) as caught:
        await run_alone(graph_step(graph_of(paid("first"), paid("second"))), cost_budget=150)
    assert caught.value.usage.cost_microcents == 100


async def test_its_timeout_reaches_its_nodes() -> None:
    stopped = asyncio.Event()

    async def waits(state: State) -> State:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return state

    with pytest.raises(StepExecutionError) as caught:
        await run_alone(graph_step(graph_of(("waits", waits)), config=StepConfig(timeout=0.01)))
    assert isinstance(caught.value.original_error, TimeLimitExceeded)
    assert stopped.is_set()


async def test_a_failure_inside_is_retried_by_one_level_only() -> None:
    tries: list[int] = []

    @step(retries=1, retry_delay=0)
    async def flaky(ctx: StepContext) -> dict[str, str]:
        tries.append(ctx.attempt)
        raise ConnectionError("down")

    one = graph_step(graph_of(("flaky", as_node(flaky))), config=StepConfig(retries=2, retry_delay=0))
    with pytest.raises(StepExecutionError, match="step 'graph' failed: .* step 'flaky' failed"):
        await run_alone(one)
    assert tries == [1, 2]


async def test_a_graph_that_does_not_end_says_how_to_raise_the_limit() -> None:
    builder = StateGraph(State)
    builder.add_node("again", as_node(shout, writes="text"))
    builder.add_edge(START, "again")
    builder.add_edge("again", "again")
    one = graph_step(builder.compile(), graph_config={"recursion_limit": 3}, config=StepConfig(retries=2))
    with pytest.raises(StepExecutionError) as caught:
        await run_alone(one)
    stop = caught.value.original_error
    assert isinstance(stop, LangGraphStopped)
    assert stop.reason == "recursion limit"
    assert "recursion limit (3)" in str(stop)


async def test_a_graph_can_be_a_node_of_another() -> None:
    inner = graph_step(graph_of(paid("ask")), output=lambda final: {"said": final["said"]})
    graph = graph_of(("inner", as_node(inner, step_id="inner", reads=["text"])))
    async with budget_scope(Budget(usd=1)) as scope:
        assert (await graph.ainvoke({"text": "hi"}))["said"] == ["answer to hi"]
    assert scope.usage.cost_microcents == 100


# --- checkpoints and runs on record ---


async def test_a_retry_goes_on_from_the_last_checkpoint() -> None:
    tries: list[int] = []

    async def flaky(state: State) -> State:
        tries.append(1)
        if len(tries) < 2:
            raise ConnectionError("down")
        return {"said": ["up"]}

    graph = graph_of(paid("ask"), ("flaky", flaky), checkpointer=InMemorySaver())
    result = await run_alone(graph_step(graph, output="said", config=StepConfig(retries=1, retry_delay=0)))
    assert result.output == ["answer to hi", "up"]
    assert result.usage.cost_microcents == 100


def ask_and_send(last: Any, checkpointer: Any) -> Any:
    """A loop, then what is sent to a node twice, then a last node; four requests, for 220 microcents."""

    def route(state: State) -> Any:
        if len(state["said"]) < 2:
            return "ask"
        return [Send("each", {"text": "a"}), Send("each", {"text": "b"})]

    builder = StateGraph(State)
    builder.add_node(*paid("ask"))
    builder.add_node(*paid("each", 10))
    builder.add_node("last", as_node(last))
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", route, ["ask", "each"])
    builder.add_edge("each", "last")
    return builder.compile(checkpointer=checkpointer)


EVERYTHING = ["answer to hi", "answer to hi", "answer to a", "answer to b", "up"]


async def test_after_a_failure_a_graph_with_a_checkpointer_goes_on_where_it_was() -> None:
    broken = [True]

    @step
    async def breaks(ctx: StepContext) -> dict[str, list[str]]:
        if broken:
            raise ConnectionError("down")
        return {"said": ["up"]}

    one = graph_step(ask_and_send(breaks, InMemorySaver()), output="said")
    pipeline = Pipeline[Any, Any]("outer", {"graph": one}, config=PipelineConfig(store=MemoryRunStore()))
    with pytest.raises(StepExecutionError):
        await pipeline.execute({"text": "hi"}, run_id="run")
    broken.clear()
    result = await pipeline.resume("run")
    assert result.output == EVERYTHING
    assert result.usage.cost_microcents == 220


@pytest.mark.parametrize("checkpointer", [None, InMemorySaver()], ids=["no checkpointer", "checkpointer"])
async def test_a_run_that_was_cut_off_repeats_nothing_that_was_paid(checkpointer: Any) -> None:
    reached, cut_off = asyncio.Event(), [True]

    @step
    async def waits(ctx: StepContext) -> dict[str, list[str]]:
        reached.set()
        if cut_off:
            await asyncio.Event().wait()
        return {"said": ["up"]}

    one = graph_step(ask_and_send(waits, checkpointer), output="said")
    pipeline = Pipeline[Any, Any]("outer", {"graph": one}, config=PipelineConfig(store=MemoryRunStore()))
    task = asyncio.create_task(pipeline.execute({"text": "hi"}, run_id="run"))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    cut_off.clear()
    result = await pipeline.resume("run")
    assert result.output == EVERYTHING
    assert (result.usage.cost_microcents, result.usage.request_count) == (220, 4)


async def test_a_graph_inside_of_a_graph_is_on_the_same_record() -> None:
    inner = graph_of(paid("ask"))
    graph = graph_of(("one", inner), ("two", inner))
    pipeline = Pipeline[Any, Any](
        "outer", {"graph": graph_step(graph, output="said")}, config=PipelineConfig(store=MemoryRunStore())
    )
    result = await pipeline.execute({"text": "hi"}, run_id="run")
    assert result.usage.cost_microcents == 200
    places = {entry.place for entry in result.trace.entries if entry.kind == "step_finished"}
    assert len(places) == 3, "each visit has a place of its own"


async def test_a_graph_that_had_ended_is_not_run_again() -> None:
    store, broken = MemoryRunStore(), [True]

    def output(final: State) -> list[str]:
        if broken:
            raise ConnectionError("down")
        return final["said"]

    graph = graph_of(("tell", as_node(tell, reads=["text"], writes="said")), checkpointer=InMemorySaver())
    pipeline = Pipeline[Any, Any](
        "outer", {"graph": graph_step(graph, output=output)}, config=PipelineConfig(store=store)
    )
    with pytest.raises(StepExecutionError):
        await pipeline.execute({"text": "hi"}, run_id="run")
    broken.clear()
    assert (await pipeline.resume("run")).output == ["text"]


@step(retries=3, retry_delay=0)
async def approve(ctx: StepContext) -> dict[str, str]:
    return {"approved": interrupt("Send it?")}


async def test_a_graph_that_waits_for_an_answer_says_so_and_goes_on_with_it() -> None:
    graph = graph_of(paid("ask"), ("approve", as_node(approve)), paid("send"), checkpointer=InMemorySaver())
    one = graph_step(graph, output="approved", answer=lambda ctx, questions: ctx.get_input("answer", None))
    pipeline = Pipeline[Any, Any]("outer", {"graph": one}, config=PipelineConfig(store=MemoryRunStore()))
    for attempt in (lambda: pipeline.execute({"text": "hi"}, run_id="run"), lambda: pipeline.resume("run")):
        with pytest.raises(StepExecutionError, match=r"waits for an answer to 'Send it\?'\. Pass a function"):
            await attempt()
    result = await pipeline.resume("run", inputs={"answer": "yes"})
    assert result.output == "yes"
    assert result.usage.cost_microcents == 200


async def test_runs_can_share_a_thread_of_ones_own() -> None:
    graph = graph_of(paid("ask"), checkpointer=InMemorySaver())
    one = graph_step(graph, output="said", graph_config={"configurable": {"thread_id": "mine"}})
    assert repr(one) == "<step of LangGraph's 'LangGraph'>"
    await run_alone(one)
    assert (await run_alone(one)).output == ["answer to hi", "answer to hi"]


async def test_a_run_may_answer_what_an_earlier_one_asked_on_the_same_thread_or_begin_again() -> None:
    graph = graph_of(("approve", as_node(approve)), checkpointer=InMemorySaver())
    one = graph_step(
        graph,
        output="approved",
        answer=lambda ctx, questions: ctx.get_input("answer", None),
        graph_config={"configurable": {"thread_id": "mine"}},
    )
    pipeline = Pipeline[Any, Any]("outer", {"graph": one})
    for _ in range(2):
        with pytest.raises(StepExecutionError, match="waits for an answer"):
            await pipeline.execute({"text": "hi"})
    assert (await pipeline.execute({"answer": "yes"})).output == "yes"


async def test_langgraphs_own_runs_can_be_interrupted_in_a_step() -> None:
    graph = graph_of(("approve", as_node(approve)), checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "one"}}
    asked = await graph.ainvoke({"text": "hi"}, config)
    assert [question.value for question in asked["__interrupt__"]] == ["Send it?"]
    assert (await graph.ainvoke(Command(resume="yes"), config))["approved"] == "yes"


async def test_spending_of_other_models_is_recorded_by_the_step() -> None:
    @step
    async def chat(ctx: StepContext) -> dict[str, str]:
        ctx.record_usage(model="some-model", cost_usd="0.25")
        return {}

    async with budget_scope(Budget(usd=1)) as scope:
        await graph_of(("chat", as_node(chat))).ainvoke({"text": ""})
    assert scope.usage.cost_usd == Decimal("0.25")
