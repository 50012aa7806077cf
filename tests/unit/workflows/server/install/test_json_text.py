"""JSON that is edited in its text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastroai.workflows.server.install.json_text import (
    parsed,
    value_at,
    with_item,
    with_value,
    without,
    without_items,
)

COMMENTED = """\
// Servers of this project.
{
    /* the first */
    "servers": {
        "old": {"command": "run", "args": ["-x"]}, // keep me
    },
    "inputs": [] // none
}
"""


def test_comments_order_and_indentation_stay() -> None:
    assert (
        with_value(COMMENTED, ("servers", "new"), {"command": "fastroai"})
        == """\
// Servers of this project.
{
    /* the first */
    "servers": {
        "old": {"command": "run", "args": ["-x"]}, // keep me
        "new": {
            "command": "fastroai"
        }
    },
    "inputs": [] // none
}
"""
    )


def test_a_comment_after_the_last_member_does_not_swallow_the_comma() -> None:
    text = '{\n  "a": 1 // one\n}\n'
    assert with_value(text, ("b",), 2) == '{\n  "a": 1, // one\n  "b": 2\n}\n'


def test_objects_on_the_way_are_made() -> None:
    assert with_value("{}", ("a", "b", "c"), 1) == '{\n  "a": {\n    "b": {\n      "c": 1\n    }\n  }\n}'
    assert with_item("{}", ("a",), 1) == '{\n  "a": [\n    1\n  ]\n}'


def test_a_value_that_is_there_is_replaced_and_an_equal_one_is_left_as_it_is_written() -> None:
    assert with_value('{"a": [1,2]}', ("a",), 3) == '{"a": 3}'
    assert with_value('{"a": [1,2]}', ("a",), [1, 2]) == '{"a": [1,2]}'


def test_line_ends_of_windows_stay() -> None:
    text = '{\r\n\t"a": 1\r\n}\r\n'
    assert with_value(text, ("b",), {"c": 2}) == ('{\r\n\t"a": 1,\r\n\t"b": {\r\n\t\t"c": 2\r\n\t}\r\n}\r\n')


@pytest.mark.parametrize(
    ("text", "way", "left"),
    [
        ('{\n  "a": 1,\n  "b": 2\n}\n', ("a",), '{\n  "b": 2\n}\n'),
        ('{\n  "a": 1,\n  "b": 2\n}\n', ("b",), '{\n  "a": 1\n}\n'),
        ('{\n  "a": 1, // one\n  "b": 2\n}\n', ("b",), '{\n  "a": 1 // one\n}\n'),
        ('{\n  "a": 1\n}\n', ("a",), "{}\n"),
        ('{"a": {"b": 1, "c": 2}}', ("a", "b"), '{"a": { "c": 2}}'),
        ('{"a": 1}', ("missing", "b"), '{"a": 1}'),
    ],
)
def test_a_member_is_removed_with_its_comma(text: str, way: tuple[str, ...], left: str) -> None:
    assert without(text, way) == left


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('{\n  "a": 1\n  "b": 2\n}', 3, 3),
        ('{"a": }', 1, 7),
        ('{"a": 1}}', 1, 9),
        ("{a: 1}", 1, 2),
        ('{"a": "x\n"}', 1, 9),
        ('{"a": "\\q"}', 1, 8),
        ('{"a": 1, "a": 2}', 1, 10),
        ("[" * 200, 1, 201),
        ("[" * 100_000, 1, 1),
        ('{"a": 01}', 1, 8),
        ("", 1, 1),
        ("{,}", 1, 2),
        ("[1,,]", 1, 4),
    ],
)
def test_what_is_not_json_is_refused_with_its_place(text: str, line: int, column: int) -> None:
    with pytest.raises(json.JSONDecodeError) as raised:
        with_value(text, ("c",), 1)
    assert (raised.value.lineno, raised.value.colno) == (line, column)


def test_something_else_on_the_way_is_refused() -> None:
    with pytest.raises(json.JSONDecodeError, match="Expecting an object here"):
        with_value('{"a": [1]}', ("a", "b"), 1)
    with pytest.raises(json.JSONDecodeError, match="Expecting an array here"):
        with_item('{"a": {"b": 1}}', ("a",), 1)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(st.text(), values, max_size=4)
layouts = st.sampled_from([None, 1, 2, "\t"])


@given(values, layouts)
def test_json_is_read_as_the_standard_library_reads_it(value: Any, indent: Any) -> None:
    text = json.dumps(value, indent=indent)
    assert parsed(text) == json.loads(text)


@given(objects, layouts, st.lists(st.text(), min_size=1, max_size=3), values)
def test_a_value_that_was_put_is_there_and_the_rest_is_as_before(
    document: dict[str, Any], indent: Any, way: list[str], value: Any
) -> None:
    text = json.dumps(document, indent=indent)
    try:
        edited = with_value(text, way, value)
    except json.JSONDecodeError:
        assert not isinstance(value_at(document, way[:-1]), dict)
        return
    assert json.loads(edited) == parsed(edited)
    assert value_at(parsed(edited), way) == value
    assert {k: v for k, v in parsed(edited).items() if k != way[0]} == {  # type: ignore[union-attr]
        k: v for k, v in document.items() if k != way[0]
    }
    assert with_value(edited, way, value) == edited
    assert value_at(json.loads(without(edited, way)), way) is None


@given(st.lists(st.integers(0, 5), max_size=6), layouts, st.integers(0, 5))
def test_items_are_added_and_removed(items: list[int], indent: Any, unwanted: int) -> None:
    text = json.dumps({"a": items}, indent=indent)
    left = without_items(with_item(text, ("a",), unwanted), ("a",), lambda item: item == unwanted)
    assert json.loads(left) == {"a": [item for item in items if item != unwanted]}
