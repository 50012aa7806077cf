"""Quotes of pipelines and routers, made of models of providers that are never reached."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from support.agents import paid_agent

from fastroai import (
    BasePipeline,
    BaseStep,
    Budget,
    FastroAgent,
    Pipeline,
    PipelineConfig,
    SplitPipeline,
    StepConfig,
    StepContext,
    step,
)
from fastroai.calls.call import AgentCall
from fastroai.errors import (
    ConfigurationError,
    MissingDependencyError,
    MissingInputError,
    UnknownPipelineError,
)
from fastroai.usage import ModelFallback, Quote

GPT = OpenAIResponsesModel("gpt-5-mini", provider=OpenAIProvider(api_key="none"))
NANO = OpenAIResponsesModel("gpt-5-nano", provider=OpenAIProvider(api_key="none"))
AGENT: FastroAgent[Any, str] = FastroAgent(GPT, max_tokens=100, retries=0, request_retries=0)
WINDOW_USD = Decimal("0.45") * 400_000 / 1_000_000
"""All of gpt-5-mini's context window, at the price of the priority tier."""


@step
async def code(ctx: StepContext[Any]) -> str:
    return "done"


def upper(quote: Quote) -> Decimal:
    assert quote.upper_usd is not None, quote.upper_reasons
    return quote.upper_usd


# --- steps of agents ---


async def test_a_pipeline_of_agents_costs_the_sum_of_its_steps() -> None:
    pipeline: Pipeline[Any, Any, str] = Pipeline(
        "p", {"a": AGENT.as_step("hello"), "b": AGENT.as_step("hello")}, output_step="b"
    )
    quote, one = await pipeline.estimate(), await AGENT.estimate("hello")
    assert (quote.lower_usd, quote.expected_usd, quote.upper_usd) == (
        2 * one.lower_usd,
        2 * one.expected_usd,
        2 * upper(one),
    )
    assert quote.name == "p"
    assert list(quote.parts) == ["a", "b"]
    assert quote.parts["a"].upper_usd == one.upper_usd
    assert quote.parts["a"].name == "a"


async def test_a_prompt_that_needs_only_inputs_is_known() -> None:
    async def prompt(ctx: StepContext[str]) -> str:
        return f"{ctx.get_input('text')} for {ctx.deps}"

    pipeline: Pipeline[str, Any, str] = Pipeline("p", {"ask": AGENT.as_step(prompt)})
    quote = await pipeline.estimate({"text": "hello"}, "Ada")
    assert quote.parts["ask"].upper_usd == (await AGENT.estimate("hello for Ada")).upper_usd


PROMPTS_OF_OUTPUTS = {
    "get_dependency": lambda ctx: ctx.get_dependency("first"),
    "get_dependency_or_none": lambda ctx: ctx.get_dependency_or_none("first") or "nothing",
    "direct_outputs": lambda ctx: str(ctx.direct_outputs),
}


@pytest.mark.parametrize("way", PROMPTS_OF_OUTPUTS)
async def test_a_prompt_that_needs_outputs_may_fill_the_context_window(way: str) -> None:
    steps = {"first": AGENT.as_step("hello"), "then": AGENT.as_step(PROMPTS_OF_OUTPUTS[way])}
    quote = (await Pipeline("p", steps, {"then": ["first"]}).estimate()).parts["then"]
    assert 0 < upper(quote) - WINDOW_USD < Decimal("0.001")
    assert (
        "fills its context window, as its prompt needs the output of step 'first'" in quote.upper_reasons[0]
    )
    assert quote.expected_usd > (await AGENT.estimate("hello")).expected_usd
    assert quote.lower_usd == (await AGENT.estimate("a")).lower_usd


async def test_a_prompt_function_that_catches_everything_does_not_hide_what_it_lacks() -> None:
    def prompt(ctx: StepContext[Any]) -> str:
        try:
            return str(ctx.get_dependency("first"))
        except Exception:
            return "short"

    steps = {"first": AGENT.as_step("hello"), "then": AGENT.as_step(prompt)}
    quote = await Pipeline("p", steps, {"then": ["first"]}).estimate()
    assert upper(quote.parts["then"]) > WINDOW_USD


async def test_what_was_learned_of_an_agent_is_expected_where_the_prompt_is_not_known() -> None:
    agent = paid_agent(300)
    steps = {"first": agent.as_step("hello"), "then": agent.as_step(lambda ctx: ctx.get_dependency("first"))}
    pipeline: Pipeline[Any, Any, str] = Pipeline("p", steps, {"then": ["first"]})
    await pipeline.execute()
    assert (await pipeline.estimate()).parts["then"].expected_usd == Decimal("0.0003")


async def test_mistakes_in_a_prompt_are_found_before_anything_is_paid() -> None:
    pipeline: Pipeline[Any, Any, str] = Pipeline(
        "p", {"ask": AGENT.as_step(lambda ctx: ctx.get_input("text"))}
    )
    with pytest.raises(MissingInputError) as caught:
        await pipeline.estimate({"txt": "hello"})
    assert caught.value.__notes__ == ["raised by the estimate of step 'ask' of pipeline 'p'"]
    steps = {"a": AGENT.as_step("hello"), "b": AGENT.as_step(lambda ctx: ctx.get_dependency("a"))}
    with pytest.raises(MissingDependencyError, match="race"):
        await Pipeline("p", steps, output_step="b").estimate()


async def test_a_prompt_function_that_calls_a_model_is_refused_and_makes_the_cost_unknown() -> None:
    asked: list[str] = []
    helper = paid_agent(before=lambda prompt: asyncio.sleep(0, asked.append(prompt)))

    async def prompt(ctx: StepContext[Any]) -> str:
        return (await ctx.run(helper, "what to ask?")).output

    quote = await Pipeline("p", {"ask": AGENT.as_step(prompt)}).estimate()
    assert quote.upper_reasons == ("step 'ask': its prompt function calls a model",)
    assert asked == []


async def test_each_attempt_at_a_step_may_be_billed() -> None:
    one = await AGENT.estimate("hello", request_retries=2)
    pipeline: Pipeline[Any, Any, str] = Pipeline(
        "p", {"ask": AGENT.as_step("hello")}, config=PipelineConfig(retries=2)
    )
    quote = (await pipeline.estimate()).parts["ask"]
    assert upper(quote) == 3 * upper(one)
    assert quote.upper_reasons[0] == "3 attempts, because retries=2, each of"
    assert quote.lower_usd == one.lower_usd


async def test_an_agent_that_cannot_estimate_is_arbitrary_code() -> None:
    class Plain:
        async def dispatch(self, call: AgentCall) -> Any: ...

        def dispatch_stream(self, call: AgentCall) -> Any: ...

    from fastroai.agent import AgentStep

    asks: AgentStep[Any, str] = AgentStep(Plain(), "hello", StepConfig())
    quote = await Pipeline("p", {"ask": asks}).estimate()
    assert "arbitrary code" in quote.upper_reasons[0]


# --- other steps ---


async def test_a_step_of_code_leaves_a_pipeline_without_limit() -> None:
    quote = await Pipeline("p", {"ask": AGENT.as_step("hello"), "code": code}, output_step="ask").estimate()
    assert quote.upper_usd is None
    assert quote.upper_usd is None
    assert quote.upper_reasons == (
        "step 'code': arbitrary code, which may call models; give it a budget, or an estimate() of its own",
    )
    assert quote.expected_usd == quote.parts["ask"].expected_usd
    assert quote.expected_reasons[-1] == "without 'code', whose cost is unknown"


async def test_the_budget_of_a_step_bounds_its_code() -> None:
    steps = {"ask": AGENT.as_step("hello"), "code": code}
    configs = {"code": StepConfig(cost_budget=5_000)}
    quote = await Pipeline("p", steps, output_step="ask", step_configs=configs).estimate()
    assert upper(quote) == upper(await AGENT.estimate("hello")) + Decimal("0.005")
    assert quote.parts["code"].upper_reasons[0] == "its budget stops it at $0.005"


async def test_the_budget_of_a_pipeline_bounds_it_all() -> None:
    pipeline: Pipeline[Any, Any, str] = Pipeline(
        "p", {"code": code}, config=PipelineConfig(cost_budget=5_000)
    )
    quote = await pipeline.estimate()
    assert quote.upper_usd == Decimal("0.005")
    assert quote.upper_reasons[0] == "its budget stops it at $0.005"
    lenient = PipelineConfig(budget=Budget(usd="0.005", on_unbounded="allow"))
    assert (await Pipeline("p", {"code": code}, config=lenient).estimate()).upper_usd is None


class Search(BaseStep[Any, str]):
    async def execute(self, context: StepContext[Any]) -> str:
        return "found"

    async def estimate(self, context: StepContext[Any]) -> Quote:
        return Quote.exactly("0.005", "one search") * len(context.get_input("queries"))


async def test_a_step_can_say_itself_what_it_costs() -> None:
    quote = await Pipeline("p", {"search": Search()}).estimate({"queries": ["a", "b"]})
    assert (quote.lower_usd, quote.expected_usd, quote.upper_usd) == (Decimal("0.01"),) * 3
    assert quote.parts["search"].upper_reasons == ("2 times:", "one search")


async def test_a_step_whose_estimate_needs_outputs_or_models_is_not_known() -> None:
    class Needs(Search):
        async def estimate(self, context: StepContext[Any]) -> Quote:
            return Quote.exactly(context.get_dependency("search"), "as found")

    class Asks(Search):
        async def estimate(self, context: StepContext[Any]) -> Quote:
            await context.run(paid_agent(), "what do I cost?")
            raise AssertionError

    steps: dict[str, BaseStep[Any, str]] = {"search": Search(), "needs": Needs(), "asks": Asks()}
    pipeline: Pipeline[Any, Any, str] = Pipeline("p", steps, {"needs": ["search"]}, output_step="needs")
    quote = await pipeline.estimate({"queries": []})
    assert quote.upper_reasons == (
        "step 'needs': its estimate needs the output of step 'search'",
        "step 'asks': its estimate calls a model",
    )


async def test_after_some_runs_their_mean_is_expected_where_code_is_not_known() -> None:
    costs = iter([200, 400, 0])

    @step
    async def spends(ctx: StepContext[Any]) -> str:
        return (await ctx.run(paid_agent(next(costs)), "?")).output

    pipeline: Pipeline[Any, Any, str] = Pipeline("p", {"spends": spends})
    assert (await pipeline.estimate()).expected_usd == 0
    await pipeline.execute()
    quote = await pipeline.estimate()
    assert (quote.expected_usd, quote.expected_reasons) == (
        Decimal("0.0002"),
        ("the last run, as nothing is known of 'spends'",),
    )
    await pipeline.execute()
    quote = await pipeline.estimate()
    assert (quote.expected_usd, quote.expected_reasons) == (
        Decimal("0.0003"),
        ("the mean of the last 2 runs, as nothing is known of 'spends'",),
    )


async def test_a_step_that_may_fail_may_cost_nothing() -> None:
    steps = {"a": AGENT.as_step("hello"), "b": AGENT.as_step("hello"), "c": AGENT.as_step("hello")}
    pipeline: Pipeline[Any, Any, str] = Pipeline(
        "p", steps, {"b": ["a"]}, output_step="c", step_configs={"a": StepConfig(on_error="continue")}
    )
    quote, one = await pipeline.estimate(), await AGENT.estimate("hello")
    assert quote.lower_usd == one.lower_usd
    assert upper(quote) == 3 * upper(one)
    assert quote.parts["b"].lower_reasons == ("it may be left out, as on_error='continue'",)


async def test_a_budget_around_a_step_that_steps_down_makes_it_cheaper_at_the_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    nano = await AGENT.estimate("hello", model=NANO)
    budget = Budget(usd=1, fallback=ModelFallback(at=0.8, use="openai:gpt-5-nano"))
    for config, step_config in (
        (PipelineConfig(budget=budget), StepConfig()),
        (PipelineConfig(), StepConfig(budget=budget)),
    ):
        pipeline: Pipeline[Any, Any, str] = Pipeline(
            "p", {"ask": AGENT.as_step("hello", config=step_config)}, config=config
        )
        assert (await pipeline.estimate()).lower_usd == nano.lower_usd


# --- pipelines in pipelines ---


def echo(ctx: StepContext[Any]) -> Any:
    return ctx.get_input("text")


INNER: Pipeline[Any, Any, str] = Pipeline("inner", {"ask": AGENT.as_step(echo)})


async def test_a_nested_pipeline_is_a_step_with_parts() -> None:
    outer: Pipeline[Any, Any, str] = Pipeline("outer", {"inner": INNER.as_step(config=StepConfig(retries=1))})
    quote = await outer.estimate({"text": "hello"})
    one = await INNER.estimate({"text": "hello"})
    assert upper(quote) == 2 * upper(one)
    assert list(quote.parts["inner"].parts) == ["ask"]


async def test_inputs_of_a_nested_pipeline_that_are_not_known_yet_are_known_as_such() -> None:
    def text(ctx: StepContext[Any]) -> Mapping[str, Any]:
        return {"text": ctx.get_dependency("first")}

    known = upper(await INNER.estimate({"text": "hello"}))
    for inner, is_known in (
        (INNER.as_step(), True),
        (INNER.as_step(text), False),
        (INNER.as_step(lambda ctx: {"text": "hello"}), True),
    ):
        steps = {"first": AGENT.as_step("hello"), "inner": inner}
        pipeline: Pipeline[Any, Any, str] = Pipeline("outer", steps, {"inner": ["first"]})
        quote = (await pipeline.estimate({"text": "hello"})).parts["inner"]
        assert (upper(quote) == known) is is_known


@pytest.mark.parametrize(
    "read",
    [
        lambda ctx: ctx.get_input("first"),  # the output of the step, not the input of the same name
        lambda ctx: str(dict(ctx.inputs)),
        lambda ctx: str(ctx.get_input("first", "a default")),
    ],
)
async def test_an_output_that_becomes_an_input_is_not_known_inside(read: Any) -> None:
    inner: Pipeline[Any, Any, str] = Pipeline("inner", {"ask": AGENT.as_step(read)})
    steps = {"first": AGENT.as_step("hello"), "inner": inner.as_step()}
    quote = await Pipeline("outer", steps, {"inner": ["first"]}).estimate({"first": "hello"})
    reason = quote.parts["inner"].parts["ask"].upper_reasons[0]
    assert "its prompt needs the output of step 'first'" in reason


async def test_inputs_that_are_all_not_known_cannot_be_listed_either() -> None:
    inner: Pipeline[Any, Any, str] = Pipeline(
        "inner", {"ask": AGENT.as_step(lambda ctx: ", ".join(ctx.inputs))}
    )
    made = inner.as_step(lambda ctx: {ctx.get_dependency("first"): 1})
    steps = {"first": AGENT.as_step("hello"), "inner": made}
    quote = await Pipeline("outer", steps, {"inner": ["first"]}).estimate()
    assert upper(quote) > WINDOW_USD


async def test_the_names_of_inputs_are_known_where_only_values_are_to_come() -> None:
    inner: Pipeline[Any, Any, str] = Pipeline(
        "inner", {"ask": AGENT.as_step(lambda ctx: f"{len(ctx.inputs)}: {', '.join(ctx.inputs)}")}
    )
    steps = {"first": AGENT.as_step("hello"), "inner": inner.as_step()}
    quote = await Pipeline("outer", steps, {"inner": ["first"]}).estimate({"text": "hello"})
    assert quote.parts["inner"].upper_usd == (await AGENT.estimate("2: text, first")).upper_usd


# --- routers ---


class Router(BasePipeline[Any, Any, str]):
    def __init__(self) -> None:
        super().__init__("router")
        cheap = FastroAgent(NANO, max_tokens=100, retries=0, request_retries=0)
        self.register_pipeline("nano", Pipeline("nano", {"ask": cheap.as_step("hello")}))
        self.register_pipeline("mini", Pipeline("mini", {"ask": AGENT.as_step("hello")}), fallback="nano")
        self.register_pipeline("code", Pipeline("code", {"code": code}), fallback="mini")

    async def route(self, inputs: Mapping[str, Any], deps: Any) -> str:
        if "ask" in inputs:
            return (await inputs["ask"].run("which?")).output
        return str(inputs["to"])


async def test_a_router_costs_what_its_route_costs() -> None:
    router = Router()
    quote = await router.estimate({"to": "nano"})
    nano = await router.pipelines["nano"].estimate({})
    assert (quote.name, quote.upper_usd, quote.lower_usd) == ("router", nano.upper_usd, nano.lower_usd)
    assert list(quote.parts) == ["nano"]
    assert quote.upper_reasons == ("its pipeline",)
    with pytest.raises(UnknownPipelineError):
        await router.estimate({"to": "nowhere"})


async def test_fallbacks_of_a_route_may_run_as_well() -> None:
    router = Router()
    quote = await router.estimate({"to": "mini"})
    mini, nano = [await router.pipelines[name].estimate({}) for name in ("mini", "nano")]
    assert upper(quote) == upper(mini) + upper(nano)
    assert quote.lower_usd == nano.lower_usd
    assert quote.expected_usd == mini.expected_usd
    assert list(quote.parts["mini"].parts) == ["mini", "nano"]
    unbounded = await router.estimate({"to": "code"})
    assert unbounded.upper_usd is None
    assert "pipeline 'code': step 'code': arbitrary code" in unbounded.parts["code"].upper_reasons[0]


async def test_a_route_that_a_model_decides_is_any_of_them_and_costs_itself() -> None:
    asked: list[str] = []
    decider = paid_agent(before=lambda prompt: asyncio.sleep(0, asked.append(prompt)))
    quote = await Router().estimate({"ask": decider})
    assert quote.upper_reasons[0] == "its route calls a model"
    assert list(quote.parts) == ["nano", "mini", "code"]
    assert quote.lower_usd == 0
    assert asked == []


async def test_a_route_that_depends_on_outputs_is_any_of_them() -> None:
    split: SplitPipeline[Any, Any, str] = SplitPipeline("split", key=lambda inputs, deps: inputs["first"])
    split.add_variant("a", Pipeline("a", {"ask": AGENT.as_step("hello")}), weight=1)
    split.add_variant("b", Pipeline("b", {"ask": AGENT.as_step("hello " * 100)}), weight=1)
    steps = {"first": AGENT.as_step("hello"), "split": split.as_step()}
    quote = (await Pipeline("p", steps, {"split": ["first"]}).estimate()).parts["split"]
    short, long = await AGENT.estimate("hello"), await AGENT.estimate("hello " * 100)
    assert (quote.lower_usd, quote.expected_usd, quote.upper_usd) == (
        short.lower_usd,
        long.expected_usd,
        long.upper_usd,
    )
    assert quote.upper_reasons == ("it is not known which of its pipelines runs: the most expensive",)


async def test_a_router_without_pipelines_has_nothing_to_estimate() -> None:
    split: SplitPipeline[Any, Any, str] = SplitPipeline("split", key=lambda inputs, deps: "a")
    with pytest.raises(ConfigurationError, match="variants"):
        await split.estimate({})

    class Undecided(BasePipeline[Any, Any, str]):
        async def route(self, inputs: Mapping[str, Any], deps: Any) -> str:
            return (await paid_agent().run("which?")).output

    assert (await Undecided().estimate()).upper_reasons[-1] == "no pipeline is registered"


@pytest.mark.parametrize("as_step", [False, True])
async def test_a_router_is_limited_by_its_own_budget(as_step: bool) -> None:
    config = PipelineConfig(budget=Budget(usd="0.00001"))
    router = SplitPipeline[Any, Any, str]("split", key=lambda inputs, deps: "a", config=config)
    router.add_variant("a", Pipeline("a", {"code": code}), weight=1)
    quote = await router.estimate({})
    if as_step:
        quote = (await Pipeline("p", {"router": router.as_step()}).estimate()).parts["router"]
    assert quote.upper_usd == Decimal("0.00001")
    with pytest.raises(ConfigurationError, match="a mapping of names to values"):
        await router.estimate("hello")


# --- ways to ask ---


def test_an_estimate_can_be_had_without_a_loop() -> None:
    pipeline: Pipeline[Any, Any, str] = Pipeline("p", {"ask": AGENT.as_step("hello")})
    assert pipeline.estimate_sync() == asyncio.run(pipeline.estimate())
    assert Router().estimate_sync({"to": "mini"}) == asyncio.run(Router().estimate({"to": "mini"}))


async def test_inputs_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="a mapping of names to values"):
        await INNER.estimate("hello")  # type: ignore[arg-type]


async def test_an_estimate_charges_nobody_around_it() -> None:
    @step
    async def plans(ctx: StepContext[Any]) -> Quote:
        return await INNER.estimate({"text": "hello"})

    result = await Pipeline("p", {"plans": plans}).execute()
    assert result.output is not None
    assert (result.usage.total.request_count, result.usage.total.agent_call_count) == (0, 0)
    assert result.usage.total.cost_usd == 0
