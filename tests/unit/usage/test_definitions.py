import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from support.cookbook import FUNCTIONS_END, function_tokens, tokens, typescript

from fastroai.usage.bounding.definitions import definition_tokens
from fastroai.usage.bounding.tokenizers import bytes_of
from fastroai.usage.facts.documented import all_facts

OPENAI = all_facts()["openai"].allowances

words = st.sampled_from(
    ["The", "a", "of", "city", "user's", "e.g.", "Paris.", "ISO-8601", "kg/m²", "日本", "kiểu", "\n", '"']
)
texts = st.one_of(st.text(max_size=40), st.lists(words, max_size=12).map(" ".join))
names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,15}", fullmatch=True)
plain = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "number", "boolean"])},
    optional={"description": texts, "default": st.integers()},
)
choice = st.fixed_dictionaries(
    {"type": st.just("string"), "enum": st.lists(texts, min_size=1, max_size=4)},
    optional={"description": texts},
)


def objects(of: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(names, of, max_size=4).map(
        lambda properties: {
            "type": "object",
            "properties": properties,
            "required": list(properties)[::2],
            "additionalProperties": False,
        }
    )


schemas = st.recursive(
    plain | choice,
    lambda of: (
        objects(of)
        | st.fixed_dictionaries({"type": st.just("array"), "items": of})
        | st.fixed_dictionaries({"anyOf": st.lists(of, min_size=1, max_size=3)})
    ),
    max_leaves=8,
)
functions = st.fixed_dictionaries(
    {"name": names, "description": st.none() | texts, "parameters": objects(schemas)}
)
flat_functions = st.fixed_dictionaries(
    {"name": names, "description": st.none() | texts, "parameters": objects(plain | choice)}
)


@given(functions)
@settings(deadline=None)
def test_no_rendering_of_a_function_has_more_tokens(function: dict[str, Any]) -> None:
    most = definition_tokens(tokens, function)
    assert most >= tokens(typescript(function))
    assert most >= tokens(json.dumps(function, separators=(",", ":"), ensure_ascii=False))


@given(st.lists(flat_functions, min_size=1, max_size=4))
@settings(deadline=None)
def test_the_constants_of_the_cookbook_are_covered(functions: list[dict[str, Any]]) -> None:
    most = sum(OPENAI.tool + definition_tokens(tokens, function) for function in functions)
    assert most >= function_tokens(functions) - FUNCTIONS_END
    assert OPENAI.tools >= 194 + FUNCTIONS_END  # the hidden tool for parallel calls comes on top


@given(functions)
@settings(deadline=None)
def test_tokens_are_no_more_than_bytes(function: dict[str, Any]) -> None:
    assert definition_tokens(tokens, function) <= definition_tokens(bytes_of, function)


class Line(BaseModel):
    """One line of an invoice."""

    article: str
    price: float


class Invoice(BaseModel):
    first: Line
    second: Line
    others: list[Line]


class Tree(BaseModel):
    name: str
    children: list["Tree"]


def size_of(schema: dict[str, Any]) -> int:
    return definition_tokens(bytes_of, {"name": "f", "schema": schema})


def test_what_is_referred_to_several_times_counts_each_time() -> None:
    schema = Invoice.model_json_schema()
    line = schema["$defs"]["Line"]
    inlined = json.loads(json.dumps(schema).replace('{"$ref": "#/$defs/Line"}', json.dumps(line)))
    del inlined["$defs"]
    assert size_of(inlined) <= size_of(schema) <= 2 * size_of(inlined)


def test_what_is_referred_to_once_counts_once() -> None:
    class Order(BaseModel):
        line: Line

    schema = Order.model_json_schema()
    text = json.dumps({"name": "f", "schema": schema}, separators=(",", ":"))
    assert len(text) <= size_of(schema) <= len(text) + 30


def test_a_schema_that_refers_to_itself_has_a_size() -> None:
    assert 0 < size_of(Tree.model_json_schema()) < 1_000


def test_references_that_lead_nowhere_are_text() -> None:
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/Missing"}}, "$defs": {"Other": {}}}
    assert size_of(schema) >= len(json.dumps(schema, separators=(",", ":")))


def test_a_hundred_nested_references_that_double_are_counted_at_once() -> None:
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, 101):
        reference = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {"type": "object", "properties": {"a": reference, "b": reference}}
    assert size_of({"$ref": "#/$defs/d100", "$defs": definitions}) > 2**100


def test_lines_of_a_description_are_comments_of_their_own() -> None:
    def described(text: str) -> int:
        return size_of({"type": "string", "description": text})

    assert described("a\nb\nc") == described("a b c") + 2 * (1 + 2)  # an escape is a letter longer
