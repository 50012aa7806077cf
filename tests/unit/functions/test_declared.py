"""A declared type checks values and gives their JSON, the same in every process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, Field, JsonValue

from fastroai.functions.declaring.declared import DeclaredType
from fastroai.functions.errors import CompileError


class Tags(BaseModel):
    tags: set[str] = Field(alias="Tags")


@dataclass(frozen=True)
class Pair:
    names: frozenset[str]


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (set[str], {"c", "a", "b"}, ["a", "b", "c"]),
        (dict[str, set[str]], {"x": {"c", "a"}, "y": {"b", "a"}}, {"x": ["a", "c"], "y": ["a", "b"]}),
        (list[frozenset[int]], [{3, 1}, {2}], [[1, 3], [2]]),
        (set[frozenset[str]], {frozenset("ba"), frozenset("c")}, [["a", "b"], ["c"]]),
        (Tags, {"Tags": {"c", "a"}}, {"tags": ["a", "c"]}),
        (set[Pair], {Pair(frozenset("ba"))}, [{"names": ["a", "b"]}]),
        (list[str], ["b", "a"], ["b", "a"]),
        (bytes, b"\xff\xfe", "__4="),
    ],
)
def test_json_has_sets_in_order_fields_by_name_and_bytes_as_base64(
    annotation: Any, value: Any, expected: JsonValue
) -> None:
    declared = DeclaredType(annotation, "value")
    assert declared.json_of(declared.check(value)) == expected


def test_a_type_that_cannot_be_used_is_refused_by_the_name_of_its_value() -> None:
    with pytest.raises(CompileError, match=r"^x: x\[\.\.\.\]: it accepts anything"):
        DeclaredType(list[Any], "x")
    with pytest.raises(CompileError, match=r"^x: x: Unable to generate pydantic-core schema"):
        DeclaredType(type("Unknown", (), {}), "x")
