"""Contracts of a pipeline: of its inputs, by the ids of its steps, and what becomes of a violation."""

import asyncio
import pickle
from typing import Annotated, Any, NotRequired

import pytest
from pydantic import AfterValidator, BaseModel, TypeAdapter
from typing_extensions import TypedDict

from fastroai.contracts import Contract, ContractRegistry
from fastroai.errors import (
    ConfigurationError,
    ContractViolation,
    PipelineValidationError,
    StepExecutionError,
)
from fastroai.pipelines import (
    BasePipeline,
    BaseStep,
    ContractViolated,
    Pipeline,
    PipelineConfig,
    StepContext,
    StepFailed,
    step,
)
from fastroai.pipelines.contracting import bind_contracts


class Order(BaseModel):
    total: float


class Inputs(TypedDict):
    order: Order
    country: NotRequired[str]


@step
async def read(ctx: StepContext) -> Any:
    return ctx.get_input("order")


@step(accepts={"read": Order})
async def total(ctx: StepContext) -> float:
    return ctx.get_dependency("read", Order).total


@step
async def constant(ctx: StepContext) -> int:
    return 1


STEPS: dict[str, BaseStep[Any, Any]] = {"read": read, "total": total}
NEEDS = {"total": ["read"]}


def problems_of(steps: Any = STEPS, needs: Any = NEEDS, **options: Any) -> tuple[str, ...]:
    with pytest.raises(PipelineValidationError) as caught:
        Pipeline("shop", steps, needs, "total", **options)
    return caught.value.problems


# --- before anything runs ---


def test_a_contract_for_a_step_that_is_not_there_is_a_problem() -> None:
    registry = ContractRegistry({"totl": Contract(returns=int)})
    assert problems_of(contracts=registry) == (
        "contracts name 'totl', which is not a step. Did you mean 'total'?",
    )


def test_what_is_no_contract_is_a_problem() -> None:
    class Odd(BaseStep[Any, int]):
        contract: Any = int

        async def execute(self, context: StepContext) -> int:
            return 1

    assert problems_of({**STEPS, "odd": Odd()}, contracts={"read": int}) == (
        "contracts['read'] is a type; expected a Contract",
        "the contract of step 'odd' is a type; expected a Contract",
    )
    assert (
        problems_of(contracts=[Contract()])[0]
        == "contracts is a list; expected a mapping with step ids as keys"
    )


def test_what_a_step_accepts_and_nobody_gives_is_a_problem() -> None:
    @step(accepts={"order": Order, "contry": str, "read": Order, "later": int, "total": float})
    async def late(ctx: StepContext) -> int:
        return 1

    steps = {**STEPS, "late": late, "later": constant}
    assert problems_of(steps, {**NEEDS, "late": ["read"]}, accepts=Inputs) == (
        "step 'late' accepts 'contry', which is no input of the pipeline and no step. "
        "Did you mean 'country'?",
        "step 'late' accepts 'later', which need not have finished before it; "
        "add to dependencies: 'late': ['read', 'later']",
        "step 'late' accepts 'total', which need not have finished before it; "
        "add to dependencies: 'late': ['read', 'total']",
    )


def test_all_problems_are_told_at_once() -> None:
    found = problems_of({**STEPS, "x": 3}, {"totel": ["read"]}, accepts={}, contracts={"y": Contract()})
    assert len(found) == 4


def test_what_may_be_missing_and_what_nobody_declared_is_no_problem() -> None:
    @step(accepts={"order": Order, "note": NotRequired[str]})
    async def note(ctx: StepContext) -> int:
        return 1

    Pipeline("shop", {"note": note}, accepts=Inputs)
    Pipeline("shop", {"note": note})
    Pipeline("shop", {"note": total}, contracts={"note": Contract(accepts={})}, accepts={})


def test_a_type_that_cannot_be_accepted_is_refused_when_the_pipeline_is_built() -> None:
    class Later(BaseModel):
        order: "Missing"  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ConfigurationError, match="with all its names defined"):
        Pipeline("shop", {"read": read}, contracts={"read": Contract(accepts=Later)})
    with pytest.raises(ConfigurationError, match="a mapping from names to types"):
        Pipeline("shop", {"read": read}, accepts=int)


# --- what a pipeline says of its steps ---


async def test_a_contract_of_the_pipeline_goes_before_that_of_the_step_field_by_field() -> None:
    contract = Contract(ensure=[("it is paid", lambda amount: amount > 0)])
    pipeline: Pipeline[Any, Any] = Pipeline(
        "shop", STEPS, NEEDS, contracts=ContractRegistry({"total": contract})
    )
    assert (await pipeline.execute({"order": {"total": "3"}})).output == 3.0
    with pytest.raises(StepExecutionError, match="it is paid"):
        await pipeline.execute({"order": {"total": "0"}})
    with pytest.raises(StepExecutionError, match=r"read\.total"):
        await pipeline.execute({"order": {"total": "much"}})


async def test_a_contract_holds_for_one_id_of_a_step_that_has_two() -> None:
    steps = {"one": constant, "two": constant, "three": constant}
    pipeline: Pipeline[Any, Any] = Pipeline(
        "shop", steps, output_step="two", contracts={"two": Contract(returns=str)}
    )
    with pytest.raises(StepExecutionError, match="step 'two'"):
        await pipeline.execute()
    assert [pipeline.declared_output(step_id) for step_id in ("one", "two", None)] == [int, str, str]


def test_steps_with_the_same_contract_and_the_same_type_share_their_checks() -> None:
    @step
    async def another(ctx: StepContext) -> int:
        return 2

    steps: dict[str, BaseStep[Any, Any]] = {"one": constant, "two": another, "three": constant}
    bound = bind_contracts(steps, {"three": Contract(returns=str)})
    assert bound["one"] is bound["two"]
    assert bound["three"].exact is str


# --- what becomes of a violation ---


async def test_a_violation_is_a_failed_step_that_listeners_hear_of() -> None:
    pipeline: Pipeline[Any, Any] = Pipeline("shop", STEPS, NEEDS)
    events: list[Any] = []
    with pytest.raises(StepExecutionError) as caught:
        async with pipeline.stream({"order": {"total": "much"}}) as stream:
            async for event in stream:
                events.append(event)
    violation = caught.value.original_error
    assert isinstance(violation, ContractViolation)
    assert caught.value.step_id == "total"
    assert caught.value.step_outputs == {"read": {"total": "much"}}
    told = [event for event in events if isinstance(event, ContractViolated | StepFailed)]
    assert [type(event) for event in told] == [ContractViolated, StepFailed]
    assert [(event.step_id, event.error) for event in told] == [("total", violation)] * 2
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


async def test_a_violation_is_told_once_where_pipelines_are_nested() -> None:
    inner: Pipeline[Any, Any] = Pipeline("inner", STEPS, NEEDS)
    outer: Pipeline[Any, Any] = Pipeline("outer", {"inner": inner.as_step()})
    events: list[Any] = []
    with pytest.raises(StepExecutionError):
        async with outer.stream({"order": {}}) as stream:
            async for event in stream:
                events.append(event)
    (told,) = [event for event in events if isinstance(event, ContractViolated)]
    assert (told.pipeline, told.step_id) == ("inner", "total")


async def test_the_rest_of_a_pipeline_may_go_on() -> None:
    steps = {**STEPS, "other": constant}
    config = PipelineConfig(on_error="continue")
    pipeline: Pipeline[Any, Any] = Pipeline("shop", steps, NEEDS, output_step="other", config=config)
    result = await pipeline.execute({"order": None})
    assert isinstance(result.errors["total"], ContractViolation)
    assert (result.output, result.ok) == (1, False)


async def test_a_violation_cancels_what_runs() -> None:
    started = asyncio.Event()
    ended: list[str] = []

    @step
    async def long(ctx: StepContext) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("long")

    @step
    async def wrong(ctx: StepContext) -> int:
        await started.wait()
        return "x"  # type: ignore[return-value]  # which is what is tested

    pipeline: Pipeline[Any, Any] = Pipeline("p", {"long": long, "wrong": wrong}, output_step="long")
    with pytest.raises(StepExecutionError, match="its output does not fit"):
        await pipeline.execute()
    assert ended == ["long"]


# --- the inputs of a run ---


async def test_the_inputs_of_a_run_are_as_the_pipeline_accepts_them() -> None:
    pipeline: Pipeline[Any, Any] = Pipeline("shop", {"read": read}, accepts=Inputs)
    result = await pipeline.execute({"order": {"total": "2"}, "unknown": 1})
    assert result.output == Order(total=2)


async def test_inputs_that_do_not_fit_stop_the_run_before_any_step() -> None:
    pipeline: Pipeline[Any, Any] = Pipeline("shop", {"read": read}, accepts=Inputs)
    events: list[Any] = []
    with pytest.raises(ContractViolation) as caught:
        async with pipeline.stream({"country": 3}) as stream:
            async for event in stream:
                events.append(event)
    assert str(caught.value).startswith(
        "'shop': its inputs do not fit its contract: order: Field required; country: Input should"
    )
    assert (caught.value.step_id, caught.value.pipeline, caught.value.data) == (None, "shop", {"country": 3})
    assert [(type(event), event.error) for event in events] == [(ContractViolated, caught.value)]


async def test_a_nested_pipeline_with_other_inputs_is_a_failed_step() -> None:
    inner: Pipeline[Any, Any] = Pipeline("inner", {"read": read}, accepts=Inputs)
    outer: Pipeline[Any, Any] = Pipeline("outer", {"inner": inner.as_step()})
    with pytest.raises(StepExecutionError, match="'inner': its inputs") as caught:
        await outer.execute()
    assert caught.value.step_id == "inner"


async def test_what_a_nested_pipeline_gives_is_not_validated_again() -> None:
    more = Annotated[int, AfterValidator(lambda number: number + 1)]
    inner: Pipeline[Any, Any] = Pipeline(
        "inner", {"one": constant}, contracts={"one": Contract(returns=more)}
    )
    outer: Pipeline[Any, Any] = Pipeline("outer", {"inner": inner.as_step()})
    assert (await outer.execute()).output == 2
    assert TypeAdapter(outer.declared_output()).validate_python(1) == 2


class Either(BasePipeline[Any, Any]):
    async def route(self, inputs: Any, deps: Any) -> str:
        return "a"


def test_a_router_declares_what_all_its_pipelines_give() -> None:
    router = Either("either")
    assert router.declared_output() is None
    router.register_pipeline("a", Pipeline("a", {"total": constant}))
    router.register_pipeline("b", Pipeline("b", {"total": constant}))
    assert Pipeline("outer", {"either": router.as_step()}).declared_output() is int
    router.register_pipeline("c", Pipeline("c", {"total": total}))
    assert router.declared_output() is None
