"""Signatures of typed functions: what they refuse, how arguments bind, and what is shown of them."""

from __future__ import annotations

import functools
from typing import Any, Literal

import pytest
from pydantic import BaseModel, model_validator
from typing_extensions import TypedDict

from fastroai.errors import ContractViolation
from fastroai.functions import contract, opaque
from fastroai.functions.declaring.signature import Signature, body_problems
from fastroai.functions.errors import CompileError

SECRET = "SECRET"


@contract
class Label(BaseModel):
    name: Literal["good", "bad"]


class Ticket(BaseModel):
    id: int
    body: opaque[str] = ""


async def label(
    text: str, ticket: Ticket | None = None, /, size: int = 3, *more: int, tone: str = "calm", **rest: float
) -> Label:
    raise NotImplementedError


SIGNATURE = Signature(label)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("a",), {}),
        (("a", None, 4, 5, 6), {"tone": "x", "z": 1.5}),
        ((), {}),
        (("a",), {"text": 1.5}),
        (("a",), {"ticket": 2.5}),
        (("a", None, 1), {"size": 2}),
        ((), {"tone": "x"}),
    ],
)
def test_arguments_bind_as_in_python(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    def python(text, ticket=None, /, size=3, *more, tone="calm", **rest):  # type: ignore[no-untyped-def]
        return {"text": text, "ticket": ticket, "size": size, "more": more, "tone": tone, "rest": rest}

    try:
        expected = python(*args, **kwargs)
    except TypeError:
        with pytest.raises(TypeError, match=r"^label\(\) "):
            SIGNATURE.bind(args, kwargs)
    else:
        assert SIGNATURE.bind(args, kwargs) == expected


def test_arguments_are_validated_each_with_its_place() -> None:
    bound = SIGNATURE.bind(("a", {"id": "7"}, "4"), {"z": "1.5"})
    assert bound["ticket"] == Ticket(id=7)
    assert (bound["size"], bound["rest"]) == (4, {"z": 1.5})
    with pytest.raises(ContractViolation) as caught:
        SIGNATURE.bind((5, {"id": "x"}, "big", 1, "two"), {"z": "y"})
    error = caught.value
    assert (error.kind, error.step_id, error.direction) == ("function", "label", "input")
    assert str(error).startswith("function 'label': its inputs do not fit its contract: ")
    places = [detail["loc"] for detail in error.details]
    assert places == [("text",), ("ticket", "id"), ("size",), ("more", 1), ("rest", "z")]


class Picky(BaseModel):
    hidden: opaque[str]

    @model_validator(mode="after")
    def _check(self) -> Picky:
        raise RuntimeError(f"no {self.hidden}")


class Open(BaseModel):
    shown: str

    @model_validator(mode="after")
    def _check(self) -> Open:
        raise RuntimeError(f"no {self.shown}")


def test_a_validator_that_fails_otherwise_says_so_unless_it_could_quote_data() -> None:
    def shows(value: Open) -> str:
        raise NotImplementedError

    def hides(value: Picky) -> str:
        raise NotImplementedError

    with pytest.raises(ContractViolation, match="RuntimeError: no this"):
        Signature(shows).bind(({"shown": "this"},), {})
    with pytest.raises(ContractViolation) as caught:
        Signature(hides).bind(({"hidden": SECRET},), {})
    assert SECRET not in str(caught.value)
    assert caught.value.details[0]["loc"] == ("value",)


def test_records_show_inputs_without_opaque_values_and_the_hash_counts_them() -> None:
    one = SIGNATURE.bind(("a", {"id": 1, "body": SECRET}), {})
    other = SIGNATURE.bind(("a", {"id": 1, "body": "other"}), {})
    expected = {
        "text": "a",
        "ticket": {"id": 1, "body": "<opaque>"},
        "size": 3,
        "more": [],
        "tone": "calm",
        "rest": {},
    }
    assert SIGNATURE.shown(one) == SIGNATURE.shown(other) == expected
    assert SIGNATURE.inputs_hash(one) != SIGNATURE.inputs_hash(other)
    again = SIGNATURE.bind(("a", Ticket(id=1, body=SECRET), 3), {"tone": "calm"})
    assert SIGNATURE.inputs_hash(one) == SIGNATURE.inputs_hash(again)
    assert len(SIGNATURE.inputs_hash(one)) == 12


def test_types_of_the_function_around_are_found() -> None:
    @contract
    class Local(BaseModel):
        a: int

    def uses(value: list[Local], extra: Local | None = None) -> Local | None:
        raise NotImplementedError

    signature = Signature(uses)
    assert signature.returns.annotation == Local | None
    assert signature.bind(([{"a": 1}],), {})["value"] == [Local(a=1)]


def test_every_problem_of_a_declaration_is_named() -> None:
    class Unregistered(BaseModel):
        a: int

    def wrong(a, b: Nowhere, c: Any, *d: object, e: dict[str, Any]) -> list[Unregistered]:  # type: ignore[no-untyped-def, name-defined]  # noqa: F821
        raise NotImplementedError

    with pytest.raises(CompileError, match="^function 'wrong' has 6 problems") as caught:
        Signature(wrong)
    anything = "it accepts anything"
    expected = [
        "the type of parameter 'b', 'Nowhere', cannot be looked up: name 'Nowhere' is not defined",
        "parameter 'a' has no type; write a: str, or what it is",
        f"c: {anything}",
        f"d[...]: {anything}",
        f"e[...]: {anything}",
        "it returns Unregistered, which is no contract; decorate the class with @contract",
    ]
    assert all(map(str.startswith, caught.value.problems, expected))


class Keys(TypedDict):
    a: int


class Plain:
    a: int


@pytest.mark.parametrize(
    ("returns", "advice"),
    [
        (
            Keys,
            "it returns Keys, which is no contract; return a pydantic model, a dataclass or a plain class",
        ),
        (Plain, "it returns Plain, which is no contract; decorate the class with @contract"),
        (BaseModel, "it returns BaseModel, which is no contract; decorate the class with @contract"),
    ],
)
def test_what_is_returned_without_being_a_contract_is_named_with_advice(returns: type, advice: str) -> None:
    def wrong() -> None:
        raise NotImplementedError

    wrong.__annotations__["return"] = list[returns]  # type: ignore[valid-type]
    with pytest.raises(CompileError) as caught:
        Signature(wrong)
    assert caught.value.problems[0].startswith(advice)


def test_methods_are_refused() -> None:
    class Desk:
        def classify(self, text: str) -> str:
            raise NotImplementedError

    with pytest.raises(CompileError, match="it is a method, and self has no type; declare a function"):
        Signature(Desk.classify)


def test_a_result_without_a_type_or_with_a_circular_one_is_refused() -> None:
    def silent(a: int):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    class Tree(BaseModel):
        children: list[Tree]

    def circular(a: int) -> Tree:
        raise NotImplementedError

    with pytest.raises(CompileError, match="it does not say what it returns"):
        Signature(silent)
    with pytest.raises(CompileError, match=r"result\.children\[\.\.\.\]: it refers back"):
        Signature(circular)


def test_a_parameter_may_be_of_a_circular_type() -> None:
    class Tree(BaseModel):
        children: list[Tree] = []

    def prune(tree: Tree) -> int:
        raise NotImplementedError

    assert Signature(prune).shown({"tree": Tree(children=[Tree()])}) == {
        "tree": {"children": [{"children": []}]}
    }


def test_something_that_is_no_function_is_refused() -> None:
    with pytest.raises(CompileError, match="it is not a function that def or async def declares"):
        Signature(functools.partial(label, "a"))  # type: ignore[arg-type]


def test_it_reads_as_it_was_declared() -> None:
    assert str(SIGNATURE).startswith("label(text: ")


def dots(a: int) -> int: ...  # type: ignore[empty-body]


def documented(a: int) -> int:  # type: ignore[empty-body]
    """What it does."""


def refuses(a: int) -> int:
    raise NotImplementedError


def refuses_with_a_text(a: int) -> int:
    """What it does."""
    raise NotImplementedError("the model does this")


async def async_dots(a: int) -> int: ...  # type: ignore[empty-body]


async def async_documented(a: int) -> int:  # type: ignore[empty-body]
    """What it does."""


async def async_refuses(a: int) -> int:
    """What it does."""
    raise NotImplementedError


@pytest.mark.parametrize(
    "function", [dots, documented, refuses, refuses_with_a_text, async_dots, async_documented, async_refuses]
)
def test_a_body_is_empty(function: Any) -> None:
    assert body_problems(function) == ()


def returns(a: int) -> int:
    return a


def returns_dots(a: int) -> Any:
    return ...


def raises(a: int) -> int:
    raise ValueError


def works_first(a: int) -> int:
    print(a)
    raise NotImplementedError


def says_which(a: int) -> int:
    raise NotImplementedError(a)


def sometimes(a: int) -> int:  # type: ignore[return]
    if a:
        raise NotImplementedError


def generates(a: int) -> Any:
    yield a


async def awaits(a: Any) -> int:
    return await a  # type: ignore[no-any-return]


async def assigns(a: Any) -> None:
    a.b = 1


@pytest.mark.parametrize(
    "function",
    [returns, returns_dots, raises, works_first, says_which, sometimes, generates, awaits, assigns],
)
def test_a_body_has_code(function: Any) -> None:
    (problem,) = body_problems(function)
    assert problem.startswith("its body has code, which never runs")
