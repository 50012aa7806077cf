"""What users of Stroma type."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final, TypedDict

import pytest
from pydantic import BaseModel
from support.agents import paid_agent
from support.migrating import Tried, assert_renamed, here_it_is

from fastroai import (
    Budget,
    CostBudgetExceeded,
    CostCalculator,
    MemoryRunStore,
    Pipeline,
    PipelineConfig,
    RedisRunStore,
    RetryPolicy,
    RunHistory,
    StepConfig,
    StepContext,
    StepExecutionError,
    format_cost,
    step,
    usage_of,
)
from fastroai.contracts import Contract, ContractRegistry
from fastroai.errors import ConfigurationError, ContractViolation
from fastroai.integrations.langgraph import as_node
from fastroai.pipelines import StepFailed, StepFinished, StepStarted
from fastroai.runtime import DEFAULT_RETRY, FailureClass, classify
from fastroai.store import trace_of
from fastroai.usage import ModelFallback

TRIED: Final = Tried()


class Input(BaseModel):
    value: int


class Output(BaseModel):
    result: int


State = TypedDict("State", {"value": int, "output": Output}, total=False)  # noqa: UP013  # no forward references


@step(accepts=Input, returns=Output)
async def double(ctx: StepContext[None]) -> Any:
    return {"result": ctx.get_input("value") * 2}


@step
async def write(ctx: StepContext[None]) -> str:
    return f"wrote {ctx.get_dependency('read', Output).result}"


def pipeline(**options: Any) -> Pipeline[None, Any, str]:
    return Pipeline("p", {"read": double, "write": write}, {"write": ["read"]}, **options)


class Failing:
    """A step that fails for some reason, so many times."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error, self.times, self.attempts = error, times, 0

    def pipeline(self, **options: Any) -> Pipeline[None, Any, int]:
        @step
        async def read(ctx: StepContext[None]) -> int:
            self.attempts += 1
            if self.attempts <= self.times:
                raise self.error
            return self.attempts

        return Pipeline("p", {"read": read}, **options)


# --- steps and contracts ---


@TRIED("`from fastroai import StromaRunner`, `NodeContract`, `RunConfig`, …")
def names() -> None:
    assert_renamed(
        StromaRunner="Pipeline(",
        NodeContract="fastroai.contracts.Contract(",
        RunConfig="PipelineConfig(",
        ExecutionBudget="Budget(",
        CheckpointManager="MemoryRunStore, ",
        estimate_cost_usd="CostCalculator().calculate_cost(",
    )


@TRIED("`StromaRunner`, `runner.run([read, write], state)`")
async def sequence() -> None:
    assert (await pipeline().run({"value": 5})).output == "wrote 10"
    with pytest.raises(ConfigurationError, match="a mapping of step ids to steps"):
        Pipeline("p", [double, write])  # type: ignore[arg-type]


@TRIED('`@runner.node("read", input=In, output=Out)`, `@stroma_node`')
async def node() -> None:
    with pytest.raises(AttributeError, match=here_it_is("@step(accepts=…, returns=…)")):
        pipeline().node("read", input=Input, output=Output)  # type: ignore[attr-defined]
    untyped: Any = step
    with pytest.raises(TypeError, match=here_it_is("accepts=")):
        untyped(input=Input, output=Output)
    assert (await Pipeline("p", {"double": double}).run({"value": 5})).output == Output(result=10)


@TRIED("`NodeContract(node_id=…, input_schema=…, output_schema=…)`")
async def contract() -> None:
    untyped: Any = Contract
    with pytest.raises(TypeError, match=here_it_is("the id of the step")):
        untyped(node_id="read", input_schema=Input, output_schema=Output)
    with pytest.raises(TypeError, match=here_it_is("accepts=")):
        untyped(input_schema=Input)
    strict = Contract(
        accepts=Input,
        returns=Output,
        require=[("positive", lambda ctx: ctx.get_input("value") > 0)],
        ensure=[("even", lambda output: output.result % 2 == 0)],
    )
    checked = Pipeline("p", {"read": double}, contracts={"read": strict})
    assert (await checked.run({"value": 5})).output == Output(result=10)
    for wrong in ({"value": "five"}, {"value": -1}):
        with pytest.raises(StepExecutionError) as raised:
            await checked.run(wrong)
        assert isinstance(raised.value.original_error, ContractViolation)
        assert classify(raised.value) is FailureClass.TERMINAL


@TRIED("`registry.register(contract)`")
async def register() -> None:
    registry = ContractRegistry({"read": Contract(returns=Output)})
    with pytest.raises(AttributeError, match=here_it_is("ContractRegistry({step_id: Contract(…)})")):
        registry.register(Contract(returns=Output))  # type: ignore[attr-defined]
    assert (await pipeline(contracts=registry).run({"value": 5})).output == "wrote 10"


@TRIED("one state that each node gets and returns")
async def state() -> None:
    assert (await pipeline().run({"value": 5})).step_outputs["read"] == Output(result=10)


@TRIED("`Input(value=5)` as the first state")
async def first_state() -> None:
    untyped: Any = pipeline()
    with pytest.raises(ConfigurationError, match=r"as inputs\.model_dump\(\) gives"):
        await untyped.run(Input(value=5))
    checked = pipeline(accepts=Input)
    assert (await checked.run(Input(value=5).model_dump())).output == "wrote 10"
    with pytest.raises(ContractViolation):
        await checked.run({"value": "five"})


@TRIED("`parallel(a, b)`")
def parallel() -> None:
    assert Pipeline("p", {"a": double, "b": double, "write": write}, {"write": ["a", "b"]}).levels == [
        ["a", "b"],
        ["write"],
    ]


# --- failures ---


@TRIED("`FailureClass`, policies by class or by node")
async def failure_classes() -> None:
    assert {one.name for one in FailureClass} == {"RECOVERABLE", "TERMINAL", "AMBIGUOUS"}
    refused = Failing(ConnectionRefusedError(), times=3)
    policy = {FailureClass.RECOVERABLE: RetryPolicy(3, backoff=0)}
    assert (await refused.pipeline(config=PipelineConfig(retry=policy)).run()).output == 4


@TRIED("`FailurePolicy(max_retries=3, backoff_seconds=1.0)`")
def failure_policy() -> None:
    untyped: Any = RetryPolicy
    with pytest.raises(TypeError, match=here_it_is("backoff=")):
        untyped(max_retries=3, backoff_seconds=1.0)
    assert RetryPolicy(max_retries=3, backoff=1.0).max_retries == 3


@TRIED("`default_policy_map()`, which holds unless you give another")
async def default_policies() -> None:
    assert DEFAULT_RETRY[FailureClass.RECOVERABLE].max_retries == 3
    assert DEFAULT_RETRY[FailureClass.TERMINAL].max_retries == 0
    once = Failing(ConnectionRefusedError(), times=1)
    with pytest.raises(StepExecutionError):
        await once.pipeline().run()
    assert once.attempts == 1
    untyped: Any = PipelineConfig
    with pytest.raises(TypeError, match=here_it_is("retry=")):
        untyped(policy_map=DEFAULT_RETRY)


@TRIED("`TimeoutError` is recoverable")
def timeouts() -> None:
    assert classify(TimeoutError()) is FailureClass.AMBIGUOUS
    assert classify(RuntimeError()) is FailureClass.AMBIGUOUS


# --- runs ---


@TRIED("`CheckpointManager(store)`, in memory or in Redis")
async def stores() -> None:
    store = MemoryRunStore()
    assert (await pipeline().run({"value": 5}, run_id="r", store=store)).run_id == "r"
    assert (await pipeline().run(run_id="r", store=store, on_existing="return")).output == "wrote 10"


@TRIED("`RedisStore(url, ttl_seconds=…)`")
async def expiry() -> None:
    untyped: Any = RedisRunStore
    with pytest.raises(TypeError, match=here_it_is("left out: runs are kept until RunHistory(store).purge(")):
        untyped("redis://localhost", ttl_seconds=60)
    store = MemoryRunStore()
    await pipeline().run({"value": 5}, run_id="r", store=store)
    assert await RunHistory(store).purge(timedelta(minutes=1)) == ()
    assert await RunHistory(store).purge(timedelta(0)) == ("r",)


@TRIED("`RunConfig(run_id=…, resume_from=…)`")
async def resuming() -> None:
    untyped: Any = PipelineConfig
    for option, here in (("resume_from", "resume(run_id, store=…)"), ("run_id", "run(run_id=…)")):
        with pytest.raises(TypeError, match=here_it_is(here)):
            untyped(**{option: "read"})
    store, once = MemoryRunStore(), Failing(OSError("gone"), times=1)
    failing = once.pipeline()
    with pytest.raises(StepExecutionError):
        await failing.run(run_id="r", store=store)
    assert (await failing.resume("r", store=store)).output == 2


@TRIED("`ExecutionBudget(max_tokens_total=…, max_cost_usd=…, max_latency_ms=…)`")
def budgets() -> None:
    untyped: Any = Budget
    for option, here in (
        ("max_tokens_total", "tokens="),
        ("max_cost_usd", "usd="),
        ("max_latency_ms", "ms="),
    ):
        with pytest.raises(TypeError, match=here_it_is(here)):
            untyped(**{option: 1})
    budget = Budget(tokens=10_000, usd="0.50", ms=30_000, requests=5)
    assert budget.usd == Decimal("0.50")


@TRIED("`return output, input_tokens, output_tokens, model`")
async def usage_by_hand() -> None:
    @step
    async def ask(ctx: StepContext[None]) -> str:
        ctx.record_usage(model="gpt-4o", input_tokens=1_000, output_tokens=200)
        return (await ctx.run(paid_agent(120), "one")).output

    result = await Pipeline("p", {"ask": ask}).run()
    assert result.usage.cost_usd == Decimal("0.0045") + Decimal("0.00012")


@TRIED("`KNOWN_MODELS`, `estimate_cost_usd`")
def prices() -> None:
    assert format_cost(CostCalculator().calculate_cost("gpt-4o", 1_000, 200)) == "$0.0045"


@TRIED("`node_timeouts`, in milliseconds")
async def step_timeouts() -> None:
    untyped: Any = PipelineConfig
    with pytest.raises(TypeError, match=r"StepConfig\(timeout=…\)}\), in seconds"):
        untyped(node_timeouts={"read": 30_000})
    assert (await pipeline(step_configs={"read": StepConfig(timeout=30)}).run({"value": 5})).ok


@TRIED("`on_node_start`, `on_node_success`, `on_node_failure`")
async def hooks() -> None:
    for config in (PipelineConfig, StepConfig):
        untyped: Any = config
        for word in ("start", "success", "failure"):
            with pytest.raises(TypeError, match=here_it_is(f"on_step_{word}=")):
                untyped(**{f"on_node_{word}": print})
    await told(PipelineConfig)


async def told(config: type[PipelineConfig]) -> None:
    """The hooks of a run get events that say which step of which run they are about."""
    events: list[StepStarted | StepFinished | StepFailed] = []
    hooks: Mapping[str, Any] = dict.fromkeys(
        ("on_step_start", "on_step_success", "on_step_failure"), events.append
    )
    failing = Failing(ValueError("no"), times=1).pipeline(config=config(**hooks))
    with pytest.raises(StepExecutionError) as raised:
        await failing.run()
    assert (await failing.run()).ok
    assert [type(one) for one in events] == [StepStarted, StepFailed, StepStarted, StepFinished]
    assert {one.step_id for one in events} == {"read"}
    assert events[0].run_id == raised.value.run_id


@TRIED("`RunConfig(context={…})`")
async def context() -> None:
    untyped: Any = PipelineConfig
    with pytest.raises(TypeError, match=here_it_is("run(context={…})")):
        untyped(context={"factor": 3})
    assert await shared() == 3


async def shared() -> object:
    @step
    async def read(ctx: StepContext[None]) -> object:
        return ctx.shared["factor"]

    return (await Pipeline("p", {"read": read}).run(context={"factor": 3})).output


# --- results ---


@TRIED("`result.final_state`")
async def final_state() -> None:
    result = await pipeline().run({"value": 5})
    with pytest.raises(AttributeError, match=here_it_is("result.output")):
        result.final_state  # type: ignore[attr-defined]  # noqa: B018
    assert result.output == result.step_outputs["write"] == "wrote 10"


@TRIED("`result.status` is `COMPLETED` or `RESUMED`")
async def status() -> None:
    store, once = MemoryRunStore(), Failing(OSError("gone"), times=1)
    with pytest.raises(StepExecutionError):
        await once.pipeline().run(run_id="r", store=store)
    for run in (once.pipeline().resume("r", store=store), pipeline().run({"value": 5})):
        result = await run
        assert result.status == "finished"
        assert result.was_resumed == (result.run_id == "r")


@TRIED("`result.status` is `PARTIAL` after a failure")
async def partial() -> None:
    @step
    async def fail(ctx: StepContext[None]) -> str:
        await ctx.run(paid_agent(120), "one")
        raise ValueError("no")

    def failing(config: PipelineConfig | None = None) -> Pipeline[None, Any, str]:
        steps = {"read": double, "fail": fail, "write": write}
        return Pipeline("p", steps, {"fail": ["read"], "write": ["read", "fail"]}, config=config)

    with pytest.raises(StepExecutionError) as raised:
        await failing().run({"value": 5})
    error = raised.value
    assert (error.step_id, str(error.original_error)) == ("fail", "no")
    assert error.step_outputs == {"read": Output(result=10)}
    assert error.usage.cost_usd == Decimal("0.00012")
    assert usage_of(error) == error.usage
    trace = trace_of(error)
    assert trace is not None
    assert trace.run_id == error.run_id

    result = await failing(PipelineConfig(on_error="continue")).run({"value": 5})
    assert (result.output, result.quality) == (None, "degraded")
    assert (set(result.errors), set(result.skipped)) == ({"fail"}, {"write"})

    poor = PipelineConfig(on_error="continue", budget=Budget(usd="0.0001"))
    with pytest.raises(CostBudgetExceeded):
        await failing(poor).run({"value": 5})


@TRIED("the trace, its JSON and its diff")
async def traces() -> None:
    one, two = [(await pipeline().run({"value": value})).trace for value in (5, 6)]
    assert '"entries"' in one.to_json()
    assert not one.diff(one)
    assert one.diff(two)


@TRIED("the adapter for LangGraph")
async def langgraph() -> None:
    from langgraph.graph import END, START, StateGraph

    builder = StateGraph(State)
    builder.add_node("read", as_node(double, step_id="read", writes="output"))
    compiled = builder.add_edge(START, "read").add_edge("read", END).compile()
    assert (await compiled.ainvoke({"value": 5}))["output"] == Output(result=10)


# --- fluent names ---


def fluent(name: str) -> str:
    """The error for a fluent name of a runner, on a pipeline: what to write here."""
    with pytest.raises(AttributeError) as raised:
        getattr(pipeline(), name)
    return str(raised.value).partition("; here, it is ")[2]


@TRIED("`.with_redis(url)`")
def with_redis() -> None:
    assert fluent("with_redis") == "PipelineConfig(store=RedisRunStore(url))"
    config = PipelineConfig(store=RedisRunStore("redis://localhost:6379"))
    assert isinstance(config.store, RedisRunStore)


@TRIED("`.with_budget(tokens=…, cost_usd=…, latency_ms=…)`")
async def with_budget() -> None:
    assert fluent("with_budget") == "PipelineConfig(budget=Budget(tokens=…, usd=…, ms=…))"
    config = PipelineConfig(budget=Budget(tokens=10_000, usd=1.50, ms=30_000))
    assert (await pipeline(config=config).run({"value": 5})).ok
    untyped: Any = Budget
    for option in ("cost_usd", "latency_ms"):
        with pytest.raises(TypeError, match="here, it is"):
            untyped(**{option: 1})


@TRIED("`.with_classifiers([…])`")
async def with_classifiers() -> None:
    assert fluent("with_classifiers") == "PipelineConfig(classifiers=[…])"
    failing = Failing(ValueError("no"), times=1)
    config = PipelineConfig(classifiers=[lambda error, *_: FailureClass.TERMINAL], retries=3)
    with pytest.raises(StepExecutionError):
        await failing.pipeline(config=config).run()
    assert failing.attempts == 1


@TRIED("`.with_hooks(NodeHooks(…))`")
async def with_hooks() -> None:
    here = "PipelineConfig(on_step_start=…, on_step_success=…, on_step_failure=…)"
    assert fluent("with_hooks") == here
    await told(PipelineConfig)


@TRIED("`.with_context({…})`")
async def with_context() -> None:
    assert fluent("with_context") == "run(context={…})"
    assert await shared() == 3


@TRIED("`.with_policy_map({…})`")
async def with_policy_map() -> None:
    assert fluent("with_policy_map") == "PipelineConfig(retry={…})"
    failing = Failing(ConnectionRefusedError(), times=1)
    config = PipelineConfig(retry={FailureClass.RECOVERABLE: RetryPolicy(1, backoff=0)})
    assert (await failing.pipeline(config=config).run()).output == 2


@TRIED('`.with_node_policies({"read": {…}})`')
async def with_node_policies() -> None:
    assert fluent("with_node_policies") == "Pipeline(step_configs={step_id: StepConfig(retry={…})})"
    failing = Failing(ConnectionRefusedError(), times=1)
    configs = {"read": StepConfig(retry={FailureClass.RECOVERABLE: RetryPolicy(1, backoff=0)})}
    assert (await failing.pipeline(step_configs=configs).run()).output == 2


@TRIED('`.with_node_timeouts({"read": 30_000})`')
async def with_node_timeouts() -> None:
    here = "Pipeline(step_configs={step_id: StepConfig(timeout=…)}), in seconds"
    assert fluent("with_node_timeouts") == here
    assert (await pipeline(step_configs={"read": StepConfig(timeout=30)}).run({"value": 5})).ok


@TRIED('`.with_model_fallback("gpt-4o", to="gpt-4o-mini", at_budget_pct=0.8)`')
def with_model_fallback() -> None:
    assert fluent("with_model_fallback") == "Budget(…, fallback=ModelFallback(at=…, use=…))"
    fallback = ModelFallback(at=0.8, use="openai:gpt-4o-mini")
    assert Budget(usd=1, fallback=fallback).fallback == fallback
