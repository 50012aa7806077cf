"""What is checked around the attempts of a step, and what a step is declared to give."""

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Generic, Literal, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError
from pydantic_ai import NativeOutput, TextOutput, ToolOutput
from pydantic_ai.models.test import TestModel
from support.examples import examples
from support.steps import failure_of, run_alone

from fastroai.agent import FastroAgent
from fastroai.contracts import Contract, ContractRegistry
from fastroai.errors import ConfigurationError, ContractViolation, StepExecutionError
from fastroai.pipelines import (
    BaseStep,
    ConversationState,
    ConversationStatus,
    Pipeline,
    StepConfig,
    StepContext,
    step,
)
from fastroai.steps.contracts import bind_contract, declared_output

T = TypeVar("T")
OutT = TypeVar("OutT")


class Item(BaseModel):
    price: float


class Order(BaseModel):
    items: list[Item]


class Client:
    """A class that pydantic does not know."""


def giving(value: object, **contract: Any) -> BaseStep[Any, Any]:
    """A step that gives a value, and whose annotation says nothing."""

    @step(**contract)
    async def give(ctx: StepContext) -> Any:
        return value

    return give


async def violation_of(alone: BaseStep[Any, Any], **options: Any) -> ContractViolation:
    error = await failure_of(alone, **options)
    assert isinstance(error, ContractViolation)
    return error


# --- what a step gives ---


async def test_an_output_is_what_pydantic_makes_of_what_the_step_returned() -> None:
    given_order = {"items": [{"price": "2.50"}]}
    assert (await run_alone(giving(given_order, returns=Order))).output == Order(items=[Item(price=2.5)])


async def test_an_output_that_does_not_fit_is_a_violation() -> None:
    violation = await violation_of(giving({"items": [{"price": "free"}]}, returns=Order))
    assert (violation.step_id, violation.direction) == ("alone", "output")
    assert violation.data == {"items": [{"price": "free"}]}
    assert "items.0.price: Input should be a valid number" in str(violation)


async def test_an_annotation_is_a_contract() -> None:
    @step
    async def count(ctx: StepContext) -> int:
        return ctx.get_input("count")  # type: ignore[no-any-return]  # it is not known what it is

    assert (await run_alone(count, inputs={"count": "3"})).output == 3
    assert (await violation_of(count, inputs={"count": "many"})).direction == "output"


async def test_an_annotation_of_a_class_that_pydantic_does_not_know_asks_for_an_instance() -> None:
    @step
    async def connect(ctx: StepContext) -> Client:
        return ctx.get_input("client")  # type: ignore[no-any-return]  # it is not known what it is

    client = Client()
    assert (await run_alone(connect, inputs={"client": client})).output is client
    assert "instance of Client" in str(await violation_of(connect, inputs={"client": 3}))


async def test_what_can_be_read_once_is_left_unread() -> None:
    @step
    async def numbers(ctx: StepContext) -> Iterable[int]:
        return [1, 2]

    assert (await run_alone(numbers)).output == [1, 2]


class Doubled(BaseStep[Any, list[OutT]], Generic[OutT]):
    async def execute(self, context: StepContext) -> list[OutT]:
        return [context.get_input("one")] * 2


class DoubledInts(Doubled[int]): ...


@pytest.mark.parametrize("doubled", [DoubledInts(), Doubled[int]()])
async def test_the_output_type_of_a_class_is_a_contract(doubled: BaseStep[Any, Any]) -> None:
    assert (await run_alone(doubled, inputs={"one": "1"})).output == [1, 1]
    assert "0: Input should be a valid integer" in str(await violation_of(doubled, inputs={"one": "x"}))


async def test_the_contract_of_a_class_is_checked() -> None:
    class Count(BaseStep[Any, int]):
        contract = Contract(accepts={"text": str}, ensure=[("there are words", lambda count: count > 0)])

        async def execute(self, context: StepContext) -> int:
            return len(context.get_input("text").split())

    assert (await run_alone(Count(), inputs={"text": "two words"})).output == 2
    assert (await violation_of(Count(), inputs={"text": ""})).direction == "ensure"
    assert (await violation_of(Count(), inputs={"text": 3})).direction == "input"


async def test_a_contract_goes_before_the_annotation_and_any_lifts_it() -> None:
    def says_int(returns: Any) -> BaseStep[Any, Any]:
        @step(returns=returns)
        async def number(ctx: StepContext) -> int:
            return "1"  # type: ignore[return-value]  # which is what is tested

        return number

    assert (await run_alone(says_int(str))).output == "1"
    assert (await run_alone(says_int(Any))).output == "1"
    assert (await violation_of(says_int(None))).direction == "output"


async def test_sync_steps_have_contracts_too() -> None:
    @step(accepts={"count": int})
    def more(ctx: StepContext) -> int:
        return ctx.get_input("count") + 1  # type: ignore[no-any-return]  # it is not known what it is

    assert (await run_alone(more, inputs={"count": "2"})).output == 3


async def test_in_strict_mode_nothing_is_converted() -> None:
    class Strict(BaseStep[Any, int]):
        contract = Contract(accepts={"count": int}, strict=True)

        async def execute(self, context: StepContext) -> int:
            return context.get_input("count") or "0"  # type: ignore[no-any-return]  # that is what is tested

    assert (await run_alone(Strict(), inputs={"count": 2})).output == 2
    assert (await violation_of(Strict(), inputs={"count": "2"})).direction == "input"
    assert (await violation_of(Strict(), inputs={"count": 0})).direction == "output"


def raises_key_error(value: object) -> int:
    raise KeyError("rate")


async def test_a_validator_that_breaks_is_a_violation_with_its_cause() -> None:
    violation = await violation_of(giving(3, returns=Annotated[int, AfterValidator(raises_key_error)]))
    assert isinstance(violation.__cause__, KeyError)
    assert "KeyError: 'rate'" in str(violation)


ANNOTATIONS = st.sampled_from(
    [
        *(
            int,
            float,
            str,
            bool,
            bytes,
            date,
            type(None),
            Order,
            list[int],
            dict[str, float],
            tuple[int, ...],
        ),
        *(int | str, float | int, set[int], Literal["a", 1], Annotated[int, Field(gt=2)], list[Item] | None),
    ]
)
LEAVES = (
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.sampled_from(["1", "a", "2024-01-01"])
)
VALUES = st.recursive(
    LEAVES | st.builds(Item, price=st.floats(0, 9)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["items", "price", "a"]), inner, max_size=2)
        | st.lists(st.integers(-5, 5), max_size=3).map(tuple)
    ),
    max_leaves=6,
)


def validated(annotation: Any, value: object, *, strict: bool) -> tuple[object, ValidationError | None]:
    """What pydantic makes of it, or its error."""
    try:
        return TypeAdapter(annotation).validate_python(value, strict=strict), None
    except ValidationError as error:
        return None, error


@pytest.mark.slow
@settings(max_examples=examples(38))
@given(annotation=ANNOTATIONS, value=VALUES, strict=st.booleans())
async def test_inputs_and_outputs_are_validated_exactly_as_pydantic_does(
    annotation: Any, value: object, strict: bool
) -> None:
    seen: list[object] = []

    class Pass(BaseStep[Any, Any]):
        contract = Contract(accepts={"value": annotation}, strict=strict)

        async def execute(self, context: StepContext) -> Any:
            seen.append(context.get_input("value"))

    registry = ContractRegistry({"alone": Contract(returns=annotation, strict=strict)})
    expected, error = validated(annotation, value, strict=strict)
    for one, options, at in (
        (Pass(), {"inputs": {"value": value}}, ("value",)),
        (giving(value), {"contracts": registry}, ()),
    ):
        if error is not None:
            violation = await violation_of(one, **options)
            details = [(detail["type"], detail["loc"]) for detail in violation.details]
            assert details == [(one["type"], (*at, *one["loc"])) for one in error.errors()]
        else:
            output = (await run_alone(one, **options)).output
            got = seen[-1] if at else output
            assert type(got) is type(expected)
            assert repr(got) == repr(expected)  # as NaN is not equal to itself


# --- what a step reads ---


async def test_a_step_reads_what_was_validated() -> None:
    @step
    async def extract(ctx: StepContext) -> Any:
        return {"items": [{"price": "3"}]}

    @step(accepts={"extract": Order, "rate": float})
    async def total(ctx: StepContext) -> float:
        order = ctx.get_dependency("extract", Order)
        assert ctx.direct_outputs == {"extract": order}
        assert dict(ctx.inputs) == {"rate": 1.5, "other": "2"}
        return order.items[0].price * float(ctx.get_input("rate"))

    @step
    async def unchanged(ctx: StepContext) -> Any:
        return ctx.get_dependency("extract")["items"][0]["price"], ctx.get_input("rate")

    pipeline: Pipeline[Any, Any] = Pipeline(
        "p",
        {"extract": extract, "total": total, "after": unchanged},
        {"total": ["extract"], "after": ["total", "extract"]},
    )
    result = await pipeline.execute({"rate": "1.5", "other": "2"})
    assert result.step_outputs["total"] == 4.5
    assert result.output == ("3", "1.5")


async def test_an_accepted_input_that_is_missing_is_named() -> None:
    violation = await violation_of(giving(1, accepts={"order": Order}), inputs={"ordre": 1})
    assert str(violation) == "step 'alone': its inputs do not fit its contract: order: Field required"
    assert violation.data == {}


async def test_a_default_is_there_to_be_read() -> None:
    @dataclass
    class Options:
        text: str
        limit: int = 3

    @step(accepts=Options)
    async def cut(ctx: StepContext) -> str:
        return ctx.get_input("text")[: ctx.get_input("limit")]  # type: ignore[no-any-return]  # as above

    assert (await run_alone(cut, inputs={"text": "shorten"})).output == "sho"


async def test_the_name_of_an_ancestor_is_its_output_and_any_other_is_an_input() -> None:
    @step(accepts={"a": int, "b": int})
    async def read(ctx: StepContext) -> tuple[int, int]:
        return ctx.get_dependency("a"), ctx.get_input("b")

    steps = {"a": giving("1"), "b": giving("2"), "read": read}
    pipeline: Pipeline[Any, Any] = Pipeline("p", steps, {"read": ["a"]}, output_step="read")
    assert (await pipeline.execute({"a": "10", "b": "20"})).output == (1, 20)


async def test_each_attempt_reads_values_of_its_own() -> None:
    @step(retries=1, retry_delay=0, accepts={"names": list[str]})
    async def spoil(ctx: StepContext) -> list[str]:
        names: list[str] = ctx.get_input("names")
        names.append("again")
        if ctx.attempt == 1:
            raise ConnectionError
        return names

    assert (await run_alone(spoil, inputs={"names": ["first"]})).output == ["first", "again"]


async def test_what_is_mapped_keeps_its_contract() -> None:
    @step(accepts={"item": int})
    async def half(ctx: StepContext) -> int:
        return ctx.get_input("item") / 2  # type: ignore[no-any-return]  # as above

    @step(accepts={"factor": int})
    async def halves(ctx: StepContext) -> list[int]:
        return await ctx.map(half, ctx.get_input("items"))

    inputs = {"factor": 1}
    assert (await run_alone(halves, inputs={**inputs, "items": ["2", 4]})).output == [1, 2]
    with pytest.raises(StepExecutionError, match=r"step 'alone\[1\]': its inputs do not fit") as caught:
        await run_alone(halves, inputs={**inputs, "items": [2, "x"]})
    assert (await violation_of(halves, inputs={**inputs, "items": [3]})).direction == "output"
    assert isinstance(caught.value.original_error, ContractViolation)


# --- conditions ---


async def test_what_a_step_requires_is_asked_before_it_runs_with_validated_inputs() -> None:
    ran: list[int] = []

    @step(accepts={"count": int}, require=[("there is one", lambda ctx: ctx.get_input("count") > 0)])
    async def use(ctx: StepContext) -> None:
        ran.append(ctx.get_input("count"))

    await run_alone(use, inputs={"count": "1"})
    violation = await violation_of(use, inputs={"count": "0"})
    assert (violation.direction, violation.data, ran) == ("require", {"count": 0}, [1])
    assert str(violation) == "step 'alone': what it requires does not hold: there is one"


async def test_what_a_step_requires_can_be_said_without_types() -> None:
    guarded = giving(1, require=[lambda ctx: ctx.deps == "open"])
    await run_alone(guarded, deps="open")
    assert (await violation_of(guarded, deps="shut", inputs={"a": 1})).data == {"a": 1}


async def test_what_a_step_ensures_is_asked_of_the_validated_output() -> None:
    assert (await run_alone(giving("3", returns=int, ensure=[lambda n: n == 3]))).output == 3
    violation = await violation_of(giving("4", returns=int, ensure=[("it is three", lambda n: n == 3)]))
    assert (violation.direction, violation.data) == ("ensure", 4)


async def test_a_condition_is_asked_where_the_type_is_exactly_right_too() -> None:
    assert (await violation_of(giving(4, returns=int, ensure=[lambda n: n == 3]))).direction == "ensure"


async def test_a_condition_that_is_no_condition_says_so() -> None:
    error = await failure_of(giving(4, ensure=[("it is odd", lambda n: n % 2)]))
    assert isinstance(error, ConfigurationError)


async def test_a_violation_is_not_retried() -> None:
    attempts: list[int] = []

    class Tried(BaseStep[Any, int]):
        config = StepConfig(retries=3, retry_delay=0)

        async def execute(self, context: StepContext) -> int:
            attempts.append(context.attempt)
            return "many"  # type: ignore[return-value]  # which is what is tested

    await violation_of(Tried())
    assert attempts == [1]


# --- conversations ---


@pytest.mark.parametrize("returns", [ConversationState[Order], ConversationState[Order] | int])
async def test_the_data_of_a_complete_conversation_is_checked(returns: Any) -> None:
    def state(data: object) -> BaseStep[Any, Any]:
        return giving(ConversationState(ConversationStatus.COMPLETE, data=data), returns=returns)

    assert (await run_alone(state({"items": []}))).output.data == Order(items=[])
    assert "data" in str(await violation_of(state("nothing")))


@pytest.mark.parametrize("returns", [ConversationState[Order], Order, int])
async def test_an_incomplete_conversation_is_not_checked(returns: Any) -> None:
    unfinished = ConversationState(ConversationStatus.INCOMPLETE, data="so far")
    result = await run_alone(giving(unfinished, returns=returns, ensure=[lambda state: False]))
    assert result.conversation_state is unfinished


async def test_a_conversation_of_a_subclass_stays_one() -> None:
    @dataclass(frozen=True)
    class Tracked(ConversationState[T]):
        turns: int = 0

    tracked = Tracked[Any](ConversationStatus.COMPLETE, data="3", turns=2)
    output = (await run_alone(giving(tracked, returns=ConversationState[int]))).output
    assert output == Tracked(ConversationStatus.COMPLETE, data=3, turns=2)


async def test_the_data_of_a_conversation_may_be_of_any_class() -> None:
    client = Client()
    state = ConversationState(ConversationStatus.COMPLETE, data=client)
    assert (await run_alone(giving(state, returns=ConversationState[Client]))).output.data is client


# --- what is declared ---


def split(text: str) -> list[str]:
    return text.split()


async def invoice(order: Order) -> bytes:
    return b""


def unclear(order: Order):  # type: ignore[no-untyped-def]  # that is what is tested
    return order


def awaiting(ctx: StepContext) -> Awaitable:  # type: ignore[type-arg]  # that is what is tested
    return invoice(Order(items=[]))


class Silent(BaseStep):
    async def execute(self, context: StepContext):  # type: ignore[no-untyped-def]  # as above
        return 1


class ByExecute(BaseStep):
    async def execute(self, context: StepContext) -> Order:
        return Order(items=[])


def agent_giving(output_type: Any) -> BaseStep[Any, Any]:
    return FastroAgent(TestModel(), output_type=output_type).as_step("hello")


@pytest.mark.parametrize(
    ("of", "declared"),
    [
        (giving(1), None),
        (giving(1, returns=int), int),
        (giving(1, returns=None), type(None)),
        (giving(1, returns=Any), None),
        (DoubledInts(), list[int]),
        (Silent(), None),
        (step(awaiting), None),
        (ByExecute(), Order),
        (agent_giving(str), str),
        (agent_giving(Order), Order),
        (agent_giving(list[Order]), list[Order]),
        (agent_giving(ToolOutput(Order)), Order),
        (agent_giving(NativeOutput([Order, Item])), Order | Item),
        (agent_giving([Order, str]), Order | str),
        (agent_giving(TextOutput(split)), list[str]),
        (agent_giving(invoice), bytes),
        (agent_giving([Order, unclear]), None),
        (Pipeline("inner", {"order": ByExecute()}).as_step(), Order),
        (Pipeline("inner", {"order": giving(1)}, contracts={"order": Contract(returns=int)}).as_step(), int),
    ],
)
def test_a_step_declares_what_it_gives(of: BaseStep[Any, Any], declared: Any) -> None:
    assert declared_output(of) == declared


def test_a_contract_of_the_pipeline_declares_it_first() -> None:
    assert declared_output(ByExecute(), Contract(returns=int)) is int
    assert declared_output(ByExecute(), Contract(returns=Any)) is None
    assert declared_output(ByExecute(), Contract(strict=True)) is Order


@pytest.mark.parametrize("of", [giving(1), Silent(), agent_giving(Order), agent_giving([Order, unclear])])
def test_a_step_that_has_nothing_to_check_has_no_checks(of: BaseStep[Any, Any]) -> None:
    assert bind_contract(of) is None


async def test_what_an_agent_gives_is_not_validated_again() -> None:
    exclaimed = Annotated[str, AfterValidator(lambda text: f"{text}!")]
    agent = FastroAgent(TestModel(custom_output_args="Hello"), output_type=ToolOutput(exclaimed))
    assert (await run_alone(agent.as_step("hello"))).output == "Hello!"


async def test_a_pipeline_can_say_more_of_what_an_agent_gives() -> None:
    agent = FastroAgent(TestModel(custom_output_text="12"))
    numbers = {"alone": Contract(returns=int, ensure=[lambda number: number < 10])}
    assert (await violation_of(agent.as_step("hello"), contracts=numbers)).data == 12
