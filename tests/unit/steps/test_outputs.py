from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from fastroai.errors import DependencyTypeError, MissingDependencyError
from fastroai.steps.outputs import Outputs, check_type

#   a -> b -> d      e stands alone
#     \-> c ----^
GRAPH: dict[str, tuple[str, ...]] = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": ()}


def outputs(**values: object) -> Outputs:
    made = Outputs(GRAPH)
    made.values.update(values)
    return made


def test_a_step_reads_what_it_depends_on_directly_and_through_others() -> None:
    known = outputs(a=1, b=2, c=None)
    assert known.get("d", "b") == 2
    assert known.get("d", "a") == 1
    assert known.get("d", "c") is None, "None is an output like any other"


def test_an_unknown_step_is_named_with_what_there_is_and_what_is_near() -> None:
    with pytest.raises(
        MissingDependencyError, match=r"no such step; it has 'classify', 'read'\. Did you mean 'classify'\?"
    ):
        Outputs({"classify": (), "read": ("classify",)}).get("read", "clasify")
    with pytest.raises(MissingDependencyError, match="it has none"):
        Outputs({}).get("x", "y")


def test_reading_a_step_that_runs_beside_is_a_race_and_the_error_has_the_line_to_add() -> None:
    for there_already in (outputs(a=1, e=5), outputs(a=1)):
        with pytest.raises(MissingDependencyError) as caught:
            there_already.get("d", "e")
        assert str(caught.value) == (
            "step 'd' asked for the output of 'e': nothing makes 'e' finish before 'd', so reading it is a "
            "race; add to dependencies: 'd': ['b', 'c', 'e']"
        )


@pytest.mark.parametrize("step_id", ["b", "d"])
def test_a_step_cannot_read_itself_or_what_comes_after_it(step_id: str) -> None:
    with pytest.raises(MissingDependencyError, match="it has none before 'b' has finished") as caught:
        outputs(a=1).get("b", step_id)
    assert "add to dependencies" not in str(caught.value), "that would be a cycle"


def test_an_ancestor_without_an_output_failed_or_was_skipped() -> None:
    with pytest.raises(MissingDependencyError, match="it failed or was skipped"):
        outputs().get("b", "a")


def test_there_may_be_an_output_unless_the_step_is_unknown_or_has_none() -> None:
    known = outputs(a=1)
    assert known.may_have("b", "a")
    assert not known.may_have("d", "b")
    assert not known.may_have("b", "nothing")
    assert known.may_have("b", "e"), "a race is an error, not a missing output"


def test_ancestors_are_found_in_any_shape_without_recursion() -> None:
    chain = {f"s{number}": (f"s{number - 1}",) if number else () for number in range(5_000)}
    assert Outputs(chain).is_ancestor("s0", "s4999")
    layers = {
        f"{layer}.{number}": tuple(f"{layer - 1}.{before}" for before in range(10)) if layer else ()
        for layer in range(30)
        for number in range(10)
    }
    assert Outputs(layers).is_ancestor("0.9", "29.0")
    assert not Outputs(layers).is_ancestor("29.1", "29.0")


class Model(BaseModel):
    number: int


class Special(Model): ...


@dataclass
class Plain:
    number: int


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    inside: T


class Record(TypedDict):
    number: int


@runtime_checkable
class Sized(Protocol):
    def __len__(self) -> int: ...


class Silent(Protocol):
    number: int


class NoSchema:
    """Nothing that pydantic knows."""


@pytest.mark.parametrize(
    ("value", "output_type"),
    [
        ("text", str),
        (Special(number=1), Model),
        (Plain(1), Plain),
        (1, float),
        (1.5, float),
        (None, type(None)),
        ([1, 2], list),
        ([1, 2], list[int]),
        ([], list[int]),
        ({"a": [1]}, dict[str, list[int]]),
        ("x", str | None),
        (None, str | None),
        ("a", Literal["a", "b"]),
        (1, Annotated[int, "whatever"]),
        (Box[int](inside=1), Box[int]),
        ({"number": 1}, Record),
        ([1], Sized),
        (Plain(1), Silent),
        (1, Annotated[int, {"not": "hashable"}]),
        ([NoSchema()], list[NoSchema]),
        (None, NoSchema | None),
        ([Plain(1)], list[Silent]),
        (NoSchema(), Any),
    ],
)
def test_an_output_of_the_type_that_was_asked_for_passes(value: object, output_type: Any) -> None:
    check_type("reader", "source", value, output_type)


@pytest.mark.parametrize(
    ("value", "output_type", "expected", "actual"),
    [
        (1, str, "str", "int"),
        ("1", int, "int", "str"),
        ("1", float, "float", "str"),
        (Model(number=1), Special, "Special", "Model"),
        (None, str, "str", "NoneType"),
        (["1"], list[int], "list[int]", "list"),
        ((1, 2), list[int], "list[int]", "tuple"),
        (1, str | None, "str | None", "int"),
        ("c", Literal["a", "b"], "typing.Literal['a', 'b']", "str"),
        (Box[str](inside="x"), Box[int], "Box[int]", "Box[str]"),
        ({"number": "1"}, Record, "Record", "dict"),
        (1, Sized, "Sized", "int"),
        ((NoSchema(),), list[NoSchema], r"list[", "tuple"),
        ([1], list[NoSchema], r"list[", "list"),
        (1, NoSchema | None, "", "int"),
    ],
)
def test_an_output_of_another_type_is_refused_by_both_names(
    value: object, output_type: Any, expected: str, actual: str
) -> None:
    with pytest.raises(DependencyTypeError) as caught:
        check_type("reader", "source", value, output_type)
    error = caught.value
    assert (error.step_id, error.dependency, error.actual) == ("reader", "source", actual)
    assert error.expected.startswith(expected)
