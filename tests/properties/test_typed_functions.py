"""For any types, at any depth: every input is in the prompt once, and nothing opaque is an instruction."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from types import FunctionType
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field, JsonValue, TypeAdapter, ValidationError

from fastroai.functions import CompiledPrompt, contract, hash_of, opaque, schema_of
from fastroai.functions.declaring.declared import DeclaredType
from fastroai.functions.declaring.schemas import adapter_for
from fastroai.functions.declaring.signature import Signature
from fastroai.functions.prompt import compile_prompt

HIDDEN = "HIDDEN"
"""In every opaque text, and in no other value."""

NAMES = ("a", "b", "c")
visible_texts = st.text(max_size=8).filter(lambda text: HIDDEN not in text and "attached" not in text)
hidden_texts = st.text(st.characters(), max_size=12).map(lambda text: f"{HIDDEN}{text}{HIDDEN}")


class Typed(NamedTuple):
    """A type, and values of it."""

    annotation: Any
    values: st.SearchStrategy[Any]


PLAIN = (
    Typed(str, visible_texts),
    Typed(int, st.integers()),
    Typed(bool, st.booleans()),
    Typed(float, st.floats(allow_nan=False, allow_infinity=False)),
    Typed(date, st.dates()),
    Typed(bytes, st.binary(max_size=6)),
    Typed(Decimal, st.decimals(allow_nan=False, allow_infinity=False, places=2)),
    Typed(Literal["x", 1, None], st.sampled_from(["x", 1, None])),
    Typed(Annotated[int, Field(ge=0, lt=100)], st.integers(0, 99)),
    Typed(Annotated[str, Field(min_length=1, max_length=9)], visible_texts.filter(bool)),
    Typed(set[int], st.sets(st.integers(), max_size=3)),
)


def model_of(fields: dict[str, Typed]) -> Typed:
    """A contract with these fields; those of an optional type have a default."""
    body: dict[str, Any] = {"__annotations__": {name: one.annotation for name, one in fields.items()}}
    cls = contract(type("Made", (BaseModel,), {**body, "__module__": __name__}))
    return Typed(cls, st.fixed_dictionaries({name: one.values for name, one in fields.items()}))


def around(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    return st.one_of(
        inner.map(lambda one: Typed(list[one.annotation], st.lists(one.values, max_size=3))),  # type: ignore[name-defined]
        inner.map(lambda one: Typed(one.annotation | None, one.values | st.none())),
        inner.map(
            lambda one: Typed(
                dict[str, one.annotation],  # type: ignore[name-defined]
                st.dictionaries(visible_texts, one.values, max_size=3),
            )
        ),
        st.tuples(inner, inner).map(
            lambda two: Typed(
                tuple[two[0].annotation, two[1].annotation],  # type: ignore[misc]
                st.tuples(two[0].values, two[1].values),
            )
        ),
        st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=3).map(model_of),
    )


hidden = Typed(opaque[str], hidden_texts)
hiding = st.recursive(st.just(hidden), around, max_leaves=4)
visible = st.recursive(st.sampled_from(PLAIN), around, max_leaves=4)
typed = st.recursive(st.sampled_from((*PLAIN, hidden, hidden)), around, max_leaves=6)


def function_of(parameters: dict[str, Any]) -> FunctionType:
    made: dict[str, Any] = {}
    exec(f"async def made({', '.join(parameters)}): raise NotImplementedError", made)
    function: FunctionType = made["made"]
    function.__annotations__ = {**parameters, "return": str}
    return function


def put_back(shown: Any, data: dict[str, JsonValue]) -> Any:
    """The value, with what is attached in its place again; each is taken from the data once."""
    if isinstance(shown, dict) and set(shown) == {"attached"}:
        return data.pop(shown["attached"])
    if isinstance(shown, dict):
        return {key: put_back(part, data) for key, part in shown.items()}
    return [put_back(part, data) for part in shown] if isinstance(shown, list) else shown


def read_back(prompt: CompiledPrompt, names: list[str]) -> tuple[dict[str, Any], dict[str, JsonValue]]:
    """What the prompt says of the inputs, and the data of which it says nothing."""
    lines = prompt.instructions.split("Inputs:\n")[1].split("\n\n")[0].split("\n")
    assert [line.split(": ", 1)[0] for line in lines] == [f"- {name}" for name in names]
    data = json.loads(prompt.data.split("\n")[1]) if prompt.data else {}
    return {
        name: put_back(json.loads(line.split(": ", 1)[1]), data)
        for name, line in zip(names, lines, strict=True)
    }, data


@settings(deadline=None)
@given(st.data(), st.dictionaries(st.sampled_from(NAMES), typed, min_size=1))
def test_every_input_is_in_the_prompt_once_and_nothing_opaque_is_an_instruction(
    data: st.DataObject, parameters: dict[str, Typed]
) -> None:
    signature = Signature(function_of({name: one.annotation for name, one in parameters.items()}))
    given = {name: data.draw(one.values, label=name) for name, one in parameters.items()}
    bound = signature.bind((), given)
    prompt = compile_prompt(signature, bound, intent="Do it.", context="Well.")
    assert HIDDEN not in prompt.instructions
    assert HIDDEN not in json.dumps(signature.shown(bound))
    read, rest = read_back(prompt, list(parameters))
    assert read == signature.json_of(bound)
    assert rest == {}
    assert all(len(part.splitlines()) == 2 for part in prompt.content[1:])
    again = compile_prompt(signature, signature.bind((), given), intent="Do it.", context="Well.")
    assert again == prompt


@settings(deadline=None)
@given(st.data(), hiding, hidden_texts)
def test_no_opaque_value_is_quoted_in_an_error(data: st.DataObject, one: Typed, wrong: str) -> None:
    declared = DeclaredType(one.annotation, "value")
    value = data.draw(one.values)
    broken = broken_at_a_hidden_place(value, wrong)
    if broken == value:  # nothing is hidden in an empty list
        return
    with pytest.raises(ValidationError) as caught:
        declared.check(broken)
    assert HIDDEN not in json.dumps(declared.details_of(caught.value))


def broken_at_a_hidden_place(value: Any, wrong: str) -> Any:
    """The value with a list in place of each hidden text, which no type takes."""
    if isinstance(value, str):
        return [wrong] if HIDDEN in value else value
    if isinstance(value, dict):
        return {key: broken_at_a_hidden_place(part, wrong) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(broken_at_a_hidden_place(part, wrong) for part in value)
    return value


@settings(deadline=None)
@given(st.data(), visible)
def test_a_schema_takes_what_pydantic_takes(data: st.DataObject, one: Typed) -> None:
    schema = schema_of(one.annotation)
    Draft202012Validator.check_schema(schema)
    adapter = adapter_for(one.annotation)
    value = adapter.validate_python(data.draw(one.values))
    Draft202012Validator(schema).validate(json.loads(adapter.dump_json(value)))


jsons = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 105)
    | st.floats(-1, 2)
    | st.sampled_from(["", "x", "2026-01-01", "long text here"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=5,
)
exact = st.recursive(
    # Strict types, of which pydantic and JSON Schema say the same.
    st.sampled_from([one for one in PLAIN if one.annotation not in (bytes, Decimal, set[int])]),
    around,
    max_leaves=4,
)


@settings(deadline=None)
@given(exact, jsons)
def test_a_schema_refuses_nothing_that_pydantic_takes_strictly(one: Typed, value: JsonValue) -> None:
    accepted = True
    try:
        TypeAdapter(one.annotation).validate_json(json.dumps(value), strict=True)
    except ValidationError:
        accepted = False
    fits = Draft202012Validator(schema_of(one.annotation)).is_valid(value)
    assert fits or not accepted


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(("a", "b", "c", "d")), st.sampled_from(PLAIN), min_size=2), st.randoms()
)
def test_the_hash_of_a_contract_is_that_of_its_fields_whatever_their_order(
    fields: dict[str, Typed], random: Any
) -> None:
    hashed = hash_of(model_of(fields).annotation)
    shuffled = list(fields.items())
    random.shuffle(shuffled)
    assert hash_of(model_of(dict(shuffled)).annotation) == hashed
    for name, one in fields.items():
        fewer = {key: other for key, other in fields.items() if key != name}
        renamed = {**fewer, "other": one}
        changed = {**fields, name: Typed(list[one.annotation], one.values)}  # type: ignore[name-defined]
        for other in (fewer, renamed, changed):
            assert hash_of(model_of(other).annotation) != hashed
