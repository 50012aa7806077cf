"""Choosing between pipelines."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pydantic_ai.exceptions import (
    ContentFilterError,
    FallbackExceptionGroup,
    ModelHTTPError,
    UsageLimitExceeded,
    UserError,
)
from support.agents import paid_agent
from support.patience import PATIENCE
from support.tracing import RecordingTracer
from support.virtual_time import in_virtual_time

from fastroai import Graph
from fastroai.errors import (
    BudgetExceeded,
    ConfigurationError,
    ContractViolation,
    CostBudgetExceeded,
    MissingInputError,
    RunStoreUnavailable,
    StepExecutionError,
    UnknownPipelineError,
)
from fastroai.pipelines import BasePipeline, Pipeline, PipelineConfig, SplitPipeline, StepContext, step
from fastroai.runtime.facts import OnceDone
from fastroai.store import MemoryRunStore, trace_of


def answering(answer: str, microcents: int = 100) -> Pipeline[Any, Any]:
    @step
    async def answers(ctx: StepContext) -> str:
        await ctx.run(paid_agent(microcents), "hello")
        return answer

    return Pipeline(answer, {"answers": answers})


def failing(error: BaseException, microcents: int = 10) -> Pipeline[Any, Any]:
    @step
    async def fails(ctx: StepContext) -> None:
        await ctx.run(paid_agent(microcents), "hello")
        raise error

    return Pipeline("failing", {"fails": fails})


class Chooses(BasePipeline[Any, Any]):
    """Goes where the inputs say."""

    async def route(self, inputs: Mapping[str, Any], deps: Any) -> str:
        name: str = inputs["to"]
        return name


def router(**pipelines: Any) -> Chooses:
    made = Chooses("support")
    for name, pipeline in pipelines.items():
        made.register_pipeline(name, pipeline)
    return made


# --- routing ---


async def test_the_pipeline_that_route_names_gets_the_inputs_and_deps() -> None:
    @step
    async def tells(ctx: StepContext[str]) -> tuple[str, str]:
        return ctx.get_input("to"), ctx.deps

    made = router(short=answering("short"), long=Pipeline[Any, Any]("long", {"tells": tells}))
    assert (await made.execute({"to": "long"}, "the deps")).output == ("long", "the deps")
    assert (await made.execute({"to": "short"})).output == "short"


async def test_an_unknown_name_is_an_error_that_lists_what_there_is() -> None:
    with pytest.raises(UnknownPipelineError, match=r"registered: 'short', 'long'\. Did you mean 'short'\?"):
        await router(short=answering("short"), long=answering("long")).execute({"to": "shrt"})


@pytest.mark.parametrize("name", [None, 5, ["short"]])
async def test_so_is_a_name_that_is_none(name: Any) -> None:
    with pytest.raises(UnknownPipelineError, match="registered: 'short'"):
        await router(short=answering("short")).execute({"to": name})


async def test_what_routing_spends_is_part_of_the_run() -> None:
    class Asks(Chooses):
        async def route(self, inputs: Mapping[str, Any], deps: Any) -> str:
            await paid_agent(7).run("which?")
            return "short"

    made = Asks("asks")
    made.register_pipeline("short", answering("short"))
    result = await made.execute()
    assert result.usage.cost_microcents == 107
    assert result.usage.steps["answers"].cost_microcents == 100
    assert result.usage.request_count == len(result.usage.records) == 2


async def test_a_router_can_lead_to_a_router() -> None:
    inner = router(there=answering("there"))

    class Goes(Chooses):
        async def route(self, inputs: Mapping[str, Any], deps: Any) -> str:
            return "inner"

    outer = Goes()
    outer.register_pipeline("inner", inner)
    assert (await outer.execute({"to": "there"})).output == "there"
    assert outer.name == "Goes", "without a name it has that of its class"
    assert repr(outer) == "Goes('Goes', pipelines=['inner'])"
    assert list(outer.pipelines) == ["inner"]


def test_a_script_can_run_it() -> None:
    assert router(a=answering("a")).execute_sync({"to": "a"}).output == "a"


@pytest.mark.parametrize("inputs", ["text", 5, [1]])
async def test_inputs_are_a_mapping(inputs: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^inputs="):
        await router(a=answering("a")).execute(inputs)


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_registered_pipeline_has_a_name(name: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^name="):
        Chooses().register_pipeline(name, answering("a"))


def test_a_name_is_taken_once() -> None:
    made = router(a=answering("a"))
    with pytest.raises(ConfigurationError, match="a name that router 'support' does not have yet"):
        made.register_pipeline("a", answering("other"))


@pytest.mark.parametrize("wrong", [None, "pipeline", answering("a").as_step(), Pipeline])
def test_only_pipelines_and_routers_can_be_registered(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="a Pipeline or a BasePipeline"):
        Chooses().register_pipeline("a", wrong)


def test_a_router_in_a_router_has_no_settings_that_only_a_run_or_a_step_can_have() -> None:
    inner = Chooses("inner", config=PipelineConfig(retries=1, total_timeout=5, cost_budget=100))
    with pytest.raises(
        ConfigurationError, match="leaves out total_timeout, retries.* or on the pipelines of 'inner'"
    ):
        router(inner=inner)
    bounded = Chooses("inner", config=PipelineConfig(cost_budget=100))
    assert list(router(inner=bounded).pipelines) == ["inner"]


# --- fallback ---


def with_fallbacks(**pipelines: tuple[Pipeline[Any, Any], str | None]) -> Chooses:
    made = Chooses("support")
    for name, (pipeline, fallback) in pipelines.items():
        made.register_pipeline(name, pipeline, fallback=fallback)
    return made


async def test_after_a_failure_the_fallback_runs_and_all_that_was_spent_is_known() -> None:
    made = with_fallbacks(
        first=(failing(ValueError("x")), "second"),
        second=(failing(ValueError("y")), "third"),
        third=(answering("third"), None),
    )
    result = await made.execute({"to": "first"})
    assert result.output == "third"
    assert result.usage.cost_microcents == 120
    assert list(result.usage.steps) == ["answers"]


async def test_a_fallback_is_in_the_log_and_in_the_result(caplog: pytest.LogCaptureFixture) -> None:
    made = with_fallbacks(first=(failing(ValueError("x")), "second"), second=(answering("second"), None))
    result = await made.execute({"to": "first"})
    assert result.routes == ("first", "second")
    [record] = caplog.records
    assert record.getMessage() == (
        "router 'support': 'first' failed, trying 'second': step 'fails' failed: ValueError: x"
    )
    assert (await made.execute({"to": "second"})).routes == ("second",)


def test_a_pipeline_is_not_its_own_fallback() -> None:
    made = Chooses("support")
    with pytest.raises(ConfigurationError, match=r"^fallback='a': expected the name of another pipeline"):
        made.register_pipeline("a", answering("a"), fallback="a")
    assert made.pipelines == {}


async def test_the_routes_of_a_router_in_a_router_follow_its_own() -> None:
    class Inner(Chooses):
        async def route(self, inputs: Mapping[str, Any], deps: Any) -> str:
            return "there"

    inner = Inner()
    inner.register_pipeline("there", answering("there"))
    assert (await router(inner=inner).execute({"to": "inner"})).routes == ("inner", "there")


async def test_when_every_fallback_fails_the_last_failure_is_raised_with_all_that_was_spent() -> None:
    made = with_fallbacks(
        first=(failing(ValueError("x")), "second"), second=(failing(LookupError("y")), "first")
    )
    with pytest.raises(StepExecutionError) as caught:
        await made.execute({"to": "first"})
    assert isinstance(caught.value.original_error, LookupError)
    assert caught.value.usage.cost_microcents == 20, "each was tried once"


async def test_a_pipeline_without_a_fallback_just_fails() -> None:
    with pytest.raises(StepExecutionError):
        await router(a=failing(ValueError("x")), b=answering("b")).execute({"to": "a"})


async def test_a_fallback_that_is_not_registered_is_found_before_anything_runs() -> None:
    made = with_fallbacks(a=(answering("a"), None), b=(answering("b"), "nothing"))
    with pytest.raises(UnknownPipelineError, match="no pipeline 'nothing'; registered: 'a', 'b'") as caught:
        await made.execute({"to": "a"})
    assert caught.value.usage.request_count == 0


@pytest.mark.parametrize("is_step", [False, True])
async def test_a_variant_without_an_output_falls_back(is_step: bool) -> None:
    @step(on_error="continue")
    async def fails(ctx: StepContext) -> None:
        raise ValueError("no output")

    inner = with_fallbacks(a=(Pipeline[Any, Any]("a", {"fails": fails}), "b"), b=(answering("b"), None))
    made: Any = Pipeline[Any, Any]("outer", {"r": inner.as_step()}) if is_step else inner
    result = await made.execute({"to": "a"})
    assert (result.output, result.routes, result.quality) == ("b", ("a", "b"), "clean")


@in_virtual_time
async def test_a_variant_that_took_too_long_falls_back() -> None:
    @step
    async def slow(ctx: StepContext) -> None:
        await asyncio.sleep(100)

    bounded = Pipeline[Any, Any]("slow", {"slow": slow}, config=PipelineConfig(total_timeout=1))
    made = with_fallbacks(slow=(bounded, "quick"), quick=(answering("quick"), None))
    assert (await made.execute({"to": "slow"})).output == "quick"


def refused(status: int) -> ModelHTTPError:
    return ModelHTTPError(status, "model", {"error": "no"})


@pytest.mark.parametrize(
    "error",
    [
        *(refused(status) for status in (400, 401, 403, 404, 413, 422, 429, 503)),
        ContentFilterError("refused"),
        ContractViolation("s", "output", ({"type": "t", "loc": (), "msg": "m"},), "data"),
        ExceptionGroup("all", [refused(400), ValueError()]),
        FallbackExceptionGroup("all", [refused(401), UserError("no key")]),
        TimeoutError(),
    ],
    ids=repr,
)
async def test_a_failure_that_another_variant_may_survive_falls_back(error: Exception) -> None:
    made = with_fallbacks(a=(failing(error), "b"), b=(answering("b"), None))
    assert (await made.execute({"to": "a"})).routes == ("a", "b")


@pytest.mark.parametrize(
    ("fallback_on", "error", "falls_back"),
    [
        (LookupError, KeyError("x"), True),
        (LookupError, ValueError("x"), False),
        ([LookupError, ModelHTTPError], refused(400), True),
        ((LookupError,), refused(400), False),
        (lambda error: "again" in str(error), ValueError("again"), True),
        (lambda error: "again" in str(error), ValueError("no"), False),
        ([LookupError, lambda error: isinstance(error, TypeError)], TypeError(), True),
        ([], ValueError(), False),
        (BudgetExceeded, CostBudgetExceeded(1, 1, scope_path=("elsewhere",)), True),
        (Exception, MissingInputError("s", "text", ()), True),
        (Exception, RunStoreUnavailable("store", "it is away"), False),
    ],
)
async def test_fallback_on_says_after_which_failures_a_fallback_runs(
    fallback_on: Any, error: Exception, falls_back: bool
) -> None:
    made = Chooses("support", fallback_on=fallback_on)
    made.register_pipeline("a", failing(error), fallback="b")
    made.register_pipeline("b", answering("b"))
    if falls_back:
        assert (await made.execute({"to": "a"})).output == "b"
    else:
        with pytest.raises((StepExecutionError, RunStoreUnavailable)):
            await made.execute({"to": "a"})


async def test_fallback_on_matches_the_causes_of_a_failure() -> None:
    error = ValueError("the desk is closed")
    error.__cause__ = refused(404)
    made = Chooses("support", fallback_on=[ModelHTTPError])
    made.register_pipeline("a", failing(error), fallback="b")
    made.register_pipeline("b", answering("b"))
    assert (await made.execute({"to": "a"})).output == "b"


async def test_no_fallback_runs_when_a_budget_around_the_router_stops_whatever_fallback_on_says() -> None:
    made = Chooses("support", fallback_on=Exception, config=PipelineConfig(cost_budget=100))
    made.register_pipeline("a", failing(ValueError("x"), 200), fallback="b")
    made.register_pipeline("b", answering("b", 10))
    with pytest.raises(CostBudgetExceeded):
        await made.execute({"to": "a"})


async def not_awaited(error: Exception) -> bool:
    return True


@pytest.mark.parametrize("wrong", ["LookupError", 400, [LookupError, 5], asyncio.CancelledError, not_awaited])
def test_fallback_on_is_made_of_exception_types_and_functions(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^fallback_on=.*: expected an exception type"):
        Chooses("support", fallback_on=wrong)
    with pytest.raises(ConfigurationError, match=r"^fallback_on="):
        SplitPipeline[Any, Any]("split", key=lambda inputs, deps: "", fallback_on=wrong)


@pytest.mark.parametrize(
    "error",
    [
        MissingInputError("s", "text", ()),
        CostBudgetExceeded(1, 1),
        ConfigurationError("model", "x", "another"),
        UserError("no API key"),
        UsageLimitExceeded("too many requests"),
        ExceptionGroup("both", [refused(400), CostBudgetExceeded(1, 1)]),
    ],
    ids=repr,
)
async def test_stops_and_mistakes_do_not_fall_back(error: BaseException) -> None:
    made = with_fallbacks(a=(failing(error), "b"), b=(answering("b"), None))
    with pytest.raises((StepExecutionError, CostBudgetExceeded, ExceptionGroup)):
        await made.execute({"to": "a"})


async def test_a_budget_around_the_router_stops_the_fallback_too() -> None:
    made = with_fallbacks(
        a=(failing(ValueError("x"), 60), "b"), b=(failing(ValueError("y"), 60), "c"), c=(answering("c"), None)
    )
    outer = Pipeline[Any, Any]("outer", {"r": made.as_step()}, config=PipelineConfig(cost_budget=100))
    with pytest.raises(CostBudgetExceeded) as caught:
        await outer.execute({"to": "a"})
    assert (caught.value.actual_microcents, caught.value.requested_microcents) == (60, 60)


# --- split ---


def split(
    name: str = "prompts", key: Callable[[Mapping[str, Any], Any], str] = lambda inputs, deps: inputs["user"]
) -> SplitPipeline[Any, Any]:
    made = SplitPipeline[Any, Any](name, key=key)
    made.add_variant("control", answering("control"), weight=90)
    made.add_variant("candidate", answering("candidate"), weight=10, fallback="control")
    return made


async def test_a_key_always_goes_to_the_same_variant() -> None:
    made = split()
    for user in range(20):
        variant = made.variant_of(str(user))
        assert {split().variant_of(str(user)) for _ in range(3)} == {variant}
        assert (await made.execute({"user": user})).output == variant


def test_keys_are_shared_out_by_weight() -> None:
    made = split()
    counts = Counter(made.variant_of(f"user-{number}") for number in range(10_000))
    assert 8_800 < counts["control"] < 9_200
    assert sum(counts.values()) == 10_000


def test_two_splits_share_out_differently() -> None:
    keys = [str(number) for number in range(1_000)]
    candidates = [{key for key in keys if split(name).variant_of(key) == "candidate"} for name in "ab"]
    assert len(candidates[0] & candidates[1]) < 40, "about 10, where it is by chance"


def test_who_gets_what_does_not_change_with_a_release() -> None:
    assert [key for key in "abcdefghijklmnopqrstuvwxyz" if split().variant_of(key) == "candidate"] == [
        "g",
        "v",
    ]


def test_the_very_last_key_goes_to_the_last_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    made = SplitPipeline[Any, Any]("s", key=lambda inputs, deps: "key")
    for number in range(10):
        made.add_variant(str(number), answering("x"), weight=0.1)  # the sum is not quite 1

    class Last:
        def digest(self) -> bytes:
            return b"\xff" * 32

    monkeypatch.setattr("fastroai.pipelines.router.hashlib.sha256", lambda data: Last())
    assert made.variant_of("key") == "9"


async def test_a_variant_may_have_a_fallback() -> None:
    made = SplitPipeline[Any, Any]("s", key=lambda inputs, deps: "key")
    made.add_variant("new", failing(ValueError("x")), weight=1, fallback="old")
    made.register_pipeline("old", answering("old"))
    assert (await made.execute()).output == "old"


async def test_without_variants_it_says_what_to_add() -> None:
    empty = SplitPipeline[Any, Any]("s", key=lambda inputs, deps: "key")
    with pytest.raises(ConfigurationError, match="add it with add_variant"):
        await empty.execute()


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), True, "1", None])
def test_a_weight_is_a_number_above_zero(weight: Any) -> None:
    made = SplitPipeline[Any, Any]("s", key=lambda inputs, deps: "key")
    with pytest.raises(ConfigurationError, match=r"^weight="):
        made.add_variant("a", answering("a"), weight=weight)
    assert made.pipelines == {}


def test_weights_may_be_tiny_or_huge() -> None:
    made = SplitPipeline[Any, Any]("s", key=lambda inputs, deps: "key")
    made.add_variant("a", answering("a"), weight=1e-300)
    made.add_variant("b", answering("b"), weight=1e300)
    assert {made.variant_of(str(number)) for number in range(100)} == {"b"}


# --- on record ---


class Changes(BasePipeline[Any, Any]):
    """Names one pipeline after the other, in order."""

    def __init__(self, *names: str) -> None:
        super().__init__("changes")
        self.names = list(names)

    async def route(self, inputs: Mapping[str, Any], deps: Any) -> str:
        await paid_agent(7).run("which?")
        return self.names.pop(0)


class Hangs:
    """Pipelines whose step hangs until it may go on."""

    def __init__(self) -> None:
        self.arrived, self.go_on, self.visits = asyncio.Event(), asyncio.Event(), list[str]()

    def pipeline(self, name: str) -> Pipeline[Any, Any]:
        @step
        async def hangs(ctx: StepContext) -> str:
            self.visits.append(name)
            await ctx.run(paid_agent(100), "hello")
            self.arrived.set()
            await self.go_on.wait()
            return name

        return Pipeline(name, {"hangs": hangs})


async def test_a_resumed_run_takes_the_same_route_and_pays_for_nothing_again() -> None:
    hangs, store = Hangs(), MemoryRunStore()
    made = Changes("a", "b")
    made.register_pipeline("a", hangs.pipeline("a"))
    made.register_pipeline("b", hangs.pipeline("b"))
    run = asyncio.create_task(made.execute(run_id="r", store=store))
    await asyncio.wait_for(hangs.arrived.wait(), PATIENCE)
    await made.cancel("r")
    assert (await run).status == "cancelled"
    hangs.go_on.set()
    result = await made.resume("r", store=store)
    assert (result.output, result.route, made.names, hangs.visits) == ("a", "a", ["b"], ["a", "a"])
    assert result.usage.cost_microcents == 107
    assert result.usage.by_variant["a"].cost_microcents == 100
    assert list(result.step_outputs) == ["hangs"]
    assert (await made.resume("r", store=store)).output == "a"


async def test_a_run_that_fell_back_goes_on_with_the_fallback() -> None:
    hangs, store = Hangs(), MemoryRunStore()
    made = Changes("first")
    made.register_pipeline("first", failing(ValueError("x")), fallback="second")
    made.register_pipeline("second", hangs.pipeline("second"))
    run = asyncio.create_task(made.execute(run_id="r", store=store))
    await asyncio.wait_for(hangs.arrived.wait(), PATIENCE)
    await made.cancel("r")
    await run
    hangs.go_on.set()
    result = await made.resume("r", store=store)
    assert (result.output, result.routes) == ("second", ("first", "second"))
    assert result.usage.cost_microcents == 117, "the failure of the first was paid for once"


async def test_a_router_that_is_a_step_takes_the_same_route_too() -> None:
    hangs, store = Hangs(), MemoryRunStore()
    inner = Changes("a", "b")
    inner.register_pipeline("a", hangs.pipeline("a"))
    inner.register_pipeline("b", hangs.pipeline("b"))
    middle = Changes("inner", "nothing")
    middle.register_pipeline("inner", inner)
    outer = Pipeline[Any, Any]("outer", {"routed": middle.as_step()})
    run = asyncio.create_task(outer.execute(run_id="r", store=store))
    await asyncio.wait_for(hangs.arrived.wait(), PATIENCE)
    await outer.cancel("r")
    await run
    hangs.go_on.set()
    assert (await outer.resume("r", store=store)).output == "a"
    assert hangs.visits == ["a", "a"]


async def test_the_cost_of_each_variant_is_in_the_usage() -> None:
    made = with_fallbacks(first=(failing(ValueError("x")), "second"), second=(answering("second"), None))
    result = await made.execute({"to": "first"})
    costs = {name: usage.cost_microcents for name, usage in result.usage.by_variant.items()}
    assert costs == {"first": 10, "second": 100}
    assert result.route == "second"


async def test_reports_have_the_cost_of_each_variant() -> None:
    class Inner(Chooses):
        async def route(self, inputs: Mapping[str, Any], deps: Any) -> str:
            await paid_agent(5).run("which?")
            return "formal"

    inner = Inner()
    inner.register_pipeline("formal", answering("formal", 30))
    made = with_fallbacks(first=(failing(ValueError("x")), "long"))
    made.register_pipeline("long", inner)

    @step
    async def beside(ctx: StepContext) -> None:
        ctx.record_usage(model="search", cost_usd="0.000003")

    steps = {"ask": made.as_step(lambda ctx: {"to": "first"}), "beside": beside}
    result = await Pipeline[Any, Any]("p", steps, output_step="ask").execute()
    rows = result.usage.report().by_variant
    assert {name: int(row.cost_usd * 1_000_000) for name, row in rows.items()} == {
        "long/formal": 30,
        "first": 10,
        "long": 5,
        "(no variant)": 3,
    }


async def test_a_run_with_routers_as_steps_says_which_variants_they_tried_and_what_these_cost() -> None:
    class Inner(Chooses):
        async def route(self, inputs: Mapping[str, Any], deps: Any) -> str:
            return "formal"

    @step
    async def costs_nothing(ctx: StepContext) -> str:
        return "free"

    inner = Inner()
    inner.register_pipeline("formal", answering("formal", 30))
    made = with_fallbacks(first=(failing(ValueError("x")), "long"))
    made.register_pipeline("long", inner)
    free = router(free=Pipeline[Any, Any]("free", {"free": costs_nothing}))
    ask, beside = made.as_step(lambda _: {"to": "first"}), free.as_step(lambda _: {"to": "free"})
    pipeline = Pipeline[Any, Any]("p", {"ask": ask, "beside": beside}, {"beside": ["ask"]}, output_step="ask")
    store = MemoryRunStore()

    result = await pipeline.execute(run_id="r", store=store)

    costs = {"first": 10, "long": 0, "long/formal": 30, "free": 0}
    assert {name: used.cost_microcents for name, used in result.usage.by_variant.items()} == costs
    assert result.routes == ("first", "long", "formal", "free")
    resumed = await pipeline.resume("r", store=store)
    assert resumed.usage.by_variant.keys() == {"first", "long/formal"}, "those that have spent something"
    assert resumed.routes == ("first", "long", "formal")
    graph = Graph[Any, Any]("g", nodes={"ask": ask})
    assert (await graph.execute()).usage.by_variant["long/formal"].cost_microcents == 30
    outer = router(outside=pipeline)
    assert (await outer.execute({"to": "outside"})).routes == ("outside", "first", "long", "formal", "free")


async def test_a_run_inside_a_variant_has_no_routes_of_its_own() -> None:
    inside: list[Any] = []

    @step
    async def runs(ctx: StepContext) -> None:
        inside.append(await answering("inner").execute())

    await router(a=Pipeline[Any, Any]("a", {"runs": runs})).execute({"to": "a"})
    assert inside[0].routes == ()


@pytest.mark.parametrize("store", [None, MemoryRunStore()], ids=["no store", "a store"])
async def test_times_are_since_the_start_of_the_router(store: MemoryRunStore | None) -> None:
    class Slow(Chooses):
        async def route(self, inputs: Mapping[str, Any], deps: Any) -> str:
            await asyncio.sleep(0.1)
            return "a"

    made = Slow()
    made.register_pipeline("a", answering("a"))
    result = await made.execute(store=store)
    assert 90 < result.timings["answers"].started_ms < result.usage.processing_time_ms


async def test_the_route_is_in_the_trace_and_in_the_spans() -> None:
    tracer = RecordingTracer()
    made = with_fallbacks(first=(failing(ValueError("x")), "second"), second=(answering("second"), None))
    result = await made.execute({"to": "first"}, tracer=tracer)
    done = {fact.name: fact.result for fact in result.trace.entries if isinstance(fact, OnceDone)}
    assert done == {"route of support": "first", "fallback of support after first": "second"}
    spans = [span for span in tracer.spans if span.name == "router support"]
    assert [span.attributes["fastroai.router.route"] for span in spans] == ["first", "second"]


async def test_the_choice_of_a_router_is_found_in_runs_that_have_it_inside() -> None:
    inner, outer, never = Changes("b", "b"), router(), Changes("a")
    inner.name, never.name = "inner", "never"
    inner.register_pipeline("a", answering("a"))
    inner.register_pipeline("b", failing(ValueError("x")), fallback="a")
    outer.register_pipeline("inner", inner)
    pipeline = Pipeline[Any, Any]("p", {"routed": outer.as_step()})
    for run in (outer, pipeline):
        trace = (await run.execute({"to": "inner"})).trace
        chosen = [one.variant_in(trace) for one in (outer, inner, never)]
        assert chosen == ["inner", "b", None], "a fallback does not change the choice"


async def test_an_error_of_a_router_has_the_trace_and_the_id_of_its_run() -> None:
    @step(on_error="continue")
    async def fails(ctx: StepContext) -> None:
        raise ValueError("no output")

    exempt: Pipeline[Any, Any] = Pipeline("exempt", {"fails": fails})
    for error, variants in (
        (StepExecutionError, {"a": exempt}),
        (StepExecutionError, {"a": failing(ValueError("no"))}),
        (UnknownPipelineError, {"b": answering("b")}),
    ):
        with pytest.raises(error) as raised:
            await router(**variants).execute({"to": "a"}, run_id="r")
        trace = trace_of(raised.value)
        assert trace is not None
        assert (trace.run_id, trace.status, raised.value.run_id) == ("r", "failed", "r")


async def test_a_router_has_the_settings_of_a_run() -> None:
    store = MemoryRunStore()
    made = SplitPipeline[Any, Any]("s", key=lambda inputs, deps: "k", config=PipelineConfig(store=store))
    made.add_variant("only", answering("only"), weight=1)
    await made.execute(run_id="r")
    assert (await made.get_state("r")).outputs == {"route": "only"}


def test_the_key_of_a_split_is_a_function_that_is_not_async() -> None:
    async def key(inputs: Any, deps: Any) -> str:
        return "one"

    for given in (key, None, "user_id"):
        with pytest.raises(ConfigurationError, match="key=.*: expected a function of the inputs and deps"):
            SplitPipeline("split", key=given)  # type: ignore[arg-type]
