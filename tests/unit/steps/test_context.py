"""What a step reads, knows, and records."""

import asyncio
from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, Any, Dict, List, Literal, NewType, Optional, Tuple, Union  # noqa: UP035

import pytest
from pydantic_ai import RunContext, UsageLimits
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage
from support.agents import TOKEN_IS_MICROCENT, paid_agent
from support.steps import failure_of, run_alone
from support.tracing import RecordingTracer
from typing_extensions import TypeAliasType

from fastroai.agent import FastroAgent
from fastroai.errors import (
    ConfigurationError,
    CostBudgetExceeded,
    DependencyTypeError,
    InputTypeError,
    MissingDependencyError,
    MissingInputError,
    ScopeClosedError,
)
from fastroai.pipelines import Pipeline, PipelineConfig, StepContext, step
from fastroai.tracing import NoOpTracer
from fastroai.usage import Budget, UnpricedModelWarning

# --- facts ---


async def test_a_step_knows_where_it_is() -> None:
    seen: dict[str, Any] = {}
    tracer = RecordingTracer()

    @step(timeout=3)
    async def look(ctx: StepContext[str]) -> None:
        seen.update(
            step_id=ctx.step_id,
            run_id=ctx.run_id,
            attempt=ctx.attempt,
            deps=ctx.deps,
            tracer=ctx.tracer,
            config=ctx.config,
            shown=repr(ctx),
        )

    result = await run_alone(
        look, deps="the deps", tracer=tracer, config=PipelineConfig(retries=2, timeout=9)
    )
    assert seen["step_id"] == "alone"
    assert seen["run_id"] == result.run_id
    assert (seen["attempt"], seen["deps"], seen["tracer"]) == (1, "the deps", tracer)
    assert (seen["config"].timeout, seen["config"].retries) == (3, 2)
    assert seen["shown"] == "<StepContext of step 'alone' in 'p', attempt 1>"


async def test_without_a_tracer_there_is_one_that_does_nothing() -> None:
    async def look(ctx: StepContext) -> None:
        async with ctx.tracer.span("mine", number=1) as trace_id:
            ctx.tracer.log_metric(trace_id, "n", 1)
        assert isinstance(ctx.tracer, NoOpTracer)

    await run_alone(look)


async def test_usage_is_what_the_step_has_spent_so_far() -> None:
    async def spend(ctx: StepContext) -> None:
        assert ctx.usage.request_count == 0
        await ctx.run(paid_agent(100), "one")
        before = ctx.usage
        assert (before.cost_microcents, before.request_count, before.agent_call_count) == (100, 1, 1)
        await ctx.run(paid_agent(50), "two")
        assert ctx.usage.cost_microcents == 150
        assert before.cost_microcents == 100
        assert ctx.usage.processing_time_ms >= before.processing_time_ms > 0

    result = await run_alone(spend)
    assert result.usage.steps["alone"].cost_microcents == 150


# --- inputs ---


async def test_an_input_is_read_by_its_name() -> None:
    async def read(ctx: StepContext) -> Any:
        return [ctx.get_input("text"), ctx.get_input("nothing"), ctx.get_input("text", "unused")]

    inputs = {"text": "hello", "nothing": None}
    assert (await run_alone(read, inputs=inputs)).output == ["hello", None, "hello"]


@pytest.mark.parametrize("default", [None, 0, "", "something"])
async def test_a_missing_input_may_have_any_default(default: Any) -> None:
    async def read(ctx: StepContext) -> Any:
        return ctx.get_input("text", default)

    assert (await run_alone(read)).output is default


async def test_without_a_default_a_missing_input_says_what_was_given() -> None:
    async def read(ctx: StepContext) -> Any:
        return ctx.get_input("txt")

    error = await failure_of(read, inputs={"text": 1, "user": 2})
    assert isinstance(error, MissingInputError)
    assert "step 'alone' asked for input 'txt'" in str(error)
    assert "given: 'text', 'user'. Did you mean 'text'?" in str(error)


async def test_all_inputs_can_be_read_and_not_changed() -> None:
    async def read(ctx: StepContext) -> Any:
        assert isinstance(ctx.inputs, MappingProxyType)
        return dict(ctx.inputs)

    inputs = {"a": 1}
    result = await run_alone(read, inputs=inputs)
    assert result.output == {"a": 1}


async def test_what_the_caller_does_to_its_dict_later_is_not_seen() -> None:
    inputs = {"a": 1}

    async def read(ctx: StepContext) -> Any:
        inputs["a"] = 2
        return ctx.get_input("a")

    assert (await run_alone(read, inputs=inputs)).output == 1


# --- outputs of other steps ---


@step
async def number(ctx: StepContext) -> int:
    return 20


@step
async def middle(ctx: StepContext) -> str:
    return "middle"


def with_sources(reader: Any, **dependencies: list[str]) -> Pipeline[Any, Any]:
    """`number` before `middle` before `reader`, and `beside`, which only waits for `number`."""
    return Pipeline(
        "p",
        {"number": number, "middle": middle, "beside": middle, "reader": step(reader)},
        {"middle": ["number"], "beside": ["number"], "reader": ["middle"]},
        output_step="reader",
    )


async def test_outputs_of_all_ancestors_can_be_read_with_their_types() -> None:
    async def reader(ctx: StepContext) -> int:
        text = ctx.get_dependency("middle", str)
        return ctx.get_dependency("number", int) + len(text)

    assert (await with_sources(reader).execute()).output == 26


async def test_an_output_of_another_type_is_an_error_that_names_both() -> None:
    async def reader(ctx: StepContext) -> None:
        with pytest.raises(DependencyTypeError, match="expected str from 'number', whose output is int"):
            ctx.get_dependency("number", str)
        with pytest.raises(DependencyTypeError):
            ctx.get_dependency_or_none("number", str)

    await with_sources(reader).execute()


async def test_an_input_may_be_asked_for_by_its_type() -> None:
    @step
    async def reader(ctx: StepContext) -> list[object]:
        with pytest.raises(InputTypeError, match="expected str as input 'number', which is int"):
            ctx.get_input("number", str)
        with pytest.raises(InputTypeError):
            ctx.get_input("words", list[int])
        with pytest.raises(MissingInputError):
            ctx.get_input("missing", str)
        return [
            ctx.get_input("number", int),
            ctx.get_input("number", str | int),
            ctx.get_input("words", list[str]),
            ctx.get_input("missing", "a default"),
        ]

    result = await Pipeline("p", {"reader": reader}).execute({"number": 1, "words": ["a"]})

    assert result.output == [1, 1, ["a"], "a default"]


Alias = TypeAliasType("Alias", int)


@pytest.mark.parametrize(
    "kind",
    [
        *(Optional[int], Union[int, None], int | None, Optional[FastroAgent]),  # noqa: UP007, UP045
        *(list[int], List[int], Dict[str, int], Tuple[int, ...]),  # noqa: UP006
        *(Literal[1], Annotated[int, "words"], NewType("Number", int), Alias),
    ],
)
async def test_every_form_of_a_type_is_one(kind: Any) -> None:
    @step
    async def reader(ctx: StepContext) -> None:
        with pytest.raises(InputTypeError):
            ctx.get_input("text", kind)
        with pytest.raises(MissingInputError):
            ctx.get_input("missing", kind)

    await Pipeline("p", {"reader": reader}).execute({"text": "one"})


async def test_reading_a_step_beside_is_a_race_even_when_its_output_is_there() -> None:
    async def reader(ctx: StepContext) -> None:
        for read in (ctx.get_dependency, ctx.get_dependency_or_none):
            with pytest.raises(MissingDependencyError, match=r"'reader': \['middle', 'beside'\]"):
                read("beside")

    await with_sources(reader).execute()


async def test_or_none_gives_the_output_or_none_for_a_step_that_does_not_exist() -> None:
    async def reader(ctx: StepContext) -> list[Any]:
        return [
            ctx.get_dependency_or_none("number"),
            ctx.get_dependency_or_none("number", int),
            ctx.get_dependency_or_none("optional"),
        ]

    assert (await with_sources(reader).execute()).output == [20, 20, None]


async def test_a_misspelt_dependency_is_an_error_with_the_nearest_name() -> None:
    async def reader(ctx: StepContext) -> None:
        with pytest.raises(MissingDependencyError, match="Did you mean 'middle'"):
            ctx.get_dependency("midle")

    await with_sources(reader).execute()


# --- calling agents ---


async def test_a_step_asks_an_agent_and_gets_the_whole_response() -> None:
    async def ask(ctx: StepContext) -> str:
        response = await ctx.run(paid_agent(100), "hello")
        assert response.cost_microcents == 100
        return response.output

    assert (await run_alone(ask)).output == "answer to hello"


async def test_agents_get_the_steps_deps_unless_others_are_given() -> None:
    seen: list[Any] = []

    def instructions(ctx: RunContext[Any]) -> str:
        seen.append(ctx.deps)
        return ""

    agent: FastroAgent[Any, str] = FastroAgent(TestModel(), instructions=instructions)

    async def ask(ctx: StepContext[str]) -> None:
        await ctx.run(agent, "one")
        await ctx.run(agent, "two", deps="other deps")
        await ctx.run(agent, "three", deps=None)

    await run_alone(ask, deps="the deps")
    assert seen == ["the deps", "other deps", None]


async def test_what_pydantic_ai_takes_is_passed_through() -> None:
    seen: list[tuple[list[ModelMessage], AgentInfo]] = []

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append((messages, info))
        return ModelResponse(parts=[TextPart("ok")])

    async def ask(ctx: StepContext) -> None:
        first = await ctx.run(paid_agent(), "first")
        await ctx.run(
            paid_agent(),
            "second",
            model=FunctionModel(respond),
            message_history=first.all_messages(),
            model_settings={"temperature": 0.5},
        )
        with pytest.raises(UsageLimitExceeded):
            await ctx.run(paid_agent(), "third", usage_limits=UsageLimits(request_limit=0))

    await run_alone(ask)
    [(messages, info)] = seen
    assert len(messages) == 3
    assert info.model_settings == {"temperature": 0.5}


async def test_a_call_may_have_a_budget_of_its_own() -> None:
    async def ask(ctx: StepContext) -> None:
        with pytest.raises(CostBudgetExceeded) as caught:
            await ctx.run(chatty_agent(100), "go", cost_budget=150)
        assert caught.value.budget_microcents == 150
        assert caught.value.scope_path == ("p", "alone", "call", "agent")
        await ctx.run(paid_agent(100), "another call is not bounded by it")

        with pytest.raises(CostBudgetExceeded):
            await ctx.run(chatty_agent(100), "go", budget=Budget(microcents=150))

    result = await run_alone(ask)
    assert result.usage.cost_microcents == 500


def chatty_agent(microcents: int) -> FastroAgent[Any, str]:
    """Never stops calling a tool: every request is followed by another."""

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(
            parts=[ToolCallPart("more", {})], usage=RequestUsage(input_tokens=microcents, output_tokens=0)
        )

    async def more() -> str:
        return "go on"

    return FastroAgent(
        FunctionModel(respond, model_name="paid"), tools=[more], cost_calculator=TOKEN_IS_MICROCENT
    )


@pytest.mark.parametrize(
    "options",
    [{"timeout": 0}, {"retries": -1}, {"retries": None}, {"retry_delay": -1}, {"cost_budget": 0}],
    ids=str,
)
async def test_an_option_that_cannot_be_meant_is_refused_before_anything_is_sent(
    options: dict[str, Any],
) -> None:
    asked: list[str] = []

    async def before(prompt: str) -> None:
        asked.append(prompt)

    async def ask(ctx: StepContext) -> None:
        await ctx.run(paid_agent(before=before), "hello", **options)

    error = await failure_of(ask)
    assert isinstance(error, ConfigurationError)
    assert error.option == next(iter(options))
    assert asked == []


async def test_a_misspelt_option_is_a_type_error() -> None:
    async def ask(ctx: StepContext) -> None:
        await ctx.run(paid_agent(), "hello", retrys=3)  # type: ignore[call-arg]

    assert isinstance(await failure_of(ask), TypeError)


@pytest.mark.parametrize("use", ["run", "run_stream", "map"])
async def test_a_context_that_was_kept_calls_nothing_after_its_step(use: str) -> None:
    kept: list[StepContext] = []

    async def keep(ctx: StepContext) -> None:
        kept.append(ctx)

    await run_alone(keep)
    [ctx] = kept
    with pytest.raises(ScopeClosedError, match="p / alone"):
        if use == "run":
            await ctx.run(paid_agent(), "too late")
        elif use == "map":
            await ctx.map(paid_agent(), ["too late"])
        else:
            ctx.run_stream(paid_agent(), "too late")


async def test_an_agent_of_its_own_kept_beyond_the_run_is_refused_as_well() -> None:
    goes_on = asyncio.Event()
    late: list[asyncio.Task[Any]] = []

    async def leak(ctx: StepContext) -> None:
        async def later() -> None:
            await goes_on.wait()
            await paid_agent().run("too late")

        late.append(asyncio.create_task(later()))

    await run_alone(leak)
    goes_on.set()
    with pytest.raises(ScopeClosedError):
        await late[0]


# --- spending that does not go through an agent ---


async def test_spending_elsewhere_is_charged_to_the_step_and_everything_above() -> None:
    async def spend(ctx: StepContext) -> None:
        record = ctx.record_usage(
            model="openai:gpt-4o", input_tokens=1_000, output_tokens=100, cache_read_tokens=400
        )
        assert record.cost_usd is not None
        assert (record.step_id, record.model, record.provider) == ("alone", "gpt-4o", "openai")
        ctx.record_usage(model="search", provider="acme", cost_usd=Decimal("0.005"))

    result = await run_alone(spend)
    usage = result.usage.steps["alone"]
    assert [record.model for record in usage.records] == ["gpt-4o", "search"]
    assert usage.cost_usd == result.usage.cost_usd
    first = usage.records[0]
    assert first.cost_usd is not None
    assert usage.cost_usd == first.cost_usd + Decimal("0.005")
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (1_000, 100, 400)
    assert usage.agent_call_count == 0


async def test_spending_without_a_price_is_unpriced() -> None:
    async def spend(ctx: StepContext) -> None:
        with pytest.warns(UnpricedModelWarning):
            ctx.record_usage(model="acme:unheard-of", input_tokens=10)

    usage = (await run_alone(spend)).usage
    assert (usage.unpriced_requests, usage.cost_complete, usage.total_tokens) == (1, False, 10)


@pytest.mark.parametrize(
    "amounts",
    [
        {"input_tokens": -1},
        {"output_tokens": 1.5},
        {"cache_read_tokens": None},
        {"cache_write_tokens": True},
        {"cost_usd": -1},
        {"cost_usd": 0.1 + 0.2},
    ],
    ids=str,
)
async def test_amounts_that_cannot_be_are_refused_and_charge_nothing(amounts: dict[str, Any]) -> None:
    async def spend(ctx: StepContext) -> None:
        with pytest.raises(ConfigurationError, match=next(iter(amounts))):
            ctx.record_usage(model="openai:gpt-4o", **amounts)

    assert (await run_alone(spend)).usage.request_count == 0


# --- what users see ---


def test_a_context_shows_nothing_that_only_the_code_that_runs_steps_uses() -> None:
    shown = {name for name in dir(StepContext) if not name.startswith("_")}
    assert shown == {
        "ask", "ask_sync", "attempt", "budget", "config", "conversation_state", "dependencies",
        "deps", "direct_outputs", "errors", "failures", "get_dependency", "get_dependency_or_none",
        "get_input", "goal", "idempotency_key", "inputs", "logger", "map", "once", "once_sync",
        "read", "receive", "receive_sync", "record_usage", "run", "run_id", "run_stream",
        "run_sync", "shared", "sleep", "sleep_sync", "spend", "step_id", "tracer", "usage", "visit",
        "wait_for", "wait_for_sync", "write",
    }  # fmt: skip
