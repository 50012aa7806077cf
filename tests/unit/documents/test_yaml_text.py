from __future__ import annotations

import sys
from typing import Any

import pytest

from fastroai.documents.yaml_text import MAX_CHARACTERS, read_yaml
from fastroai.errors import MissingExtraError
from fastroai.graphs import Graph
from fastroai.graphs.errors import GraphProblem, GraphValidationError


def problems(text: str) -> list[str]:
    return [str(GraphProblem(*one)) for one in read_yaml(text, "this").problems]


def test_data_is_plain_and_everything_has_its_place() -> None:
    text = read_yaml("name: x\nnodes:\n  a:\n    reads: [p, 'q']\nedges:\n- {source: a, n: 2}\n", "this")
    assert text.data == {
        "name": "x",
        "nodes": {"a": {"reads": ["p", "q"]}},
        "edges": [{"source": "a", "n": 2}],
    }
    assert text.place(("name",)) == (1, 7)
    assert text.place(("name",), of_key=True) == (1, 1)
    assert text.place(("nodes", "a")) == (3, 3)
    assert text.place(("nodes", "a", "reads", 1)) == (4, 16)
    assert text.place(("nodes", "a", "writes", 1)) == (3, 3)
    assert text.place(("edges", 0)) == (6, 3)
    assert text.place(("edges", 0, "n")) == (6, 18)
    assert text.place(("nothing",)) == (1, 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("N", "N"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-3", -3),
        ("10_000", 10_000),
        ("1__0", "1__0"),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("0x1F", "0x1F"),
        ("12:30", "12:30"),
        ("2026-01-01", "2026-01-01"),
        (".inf", ".inf"),
        ("1" * 31, "1" * 31),
        ("'12'", "12"),
        ('"true"', "true"),
        ("|-\n  12", "12"),
        ("é", "é"),
    ],
)
def test_plain_scalars_are_what_yaml_1_2_says(text: str, value: Any) -> None:
    read = read_yaml(f"v: {text}\n", "this")
    assert (read.data, read.problems) == ({"v": value}, [])
    assert type(read.data["v"]) is type(value)  # type: ignore[call-overload,index]


def test_keys_are_texts() -> None:
    assert read_yaml("on: 1\nno: 2\n", "this").data == {"on": 1, "no": 2}
    assert problems("1: x\ntrue: y\n? ''\n: z\n") == [
        "line 1, column 1: the key 1 is a number; put it in quotes if it is meant as a text",
        "line 2, column 1: the key true is a truth value; put it in quotes if it is meant as a text",
    ]
    assert problems("a:\n  ? [x]\n  : 1\n") == [
        "line 2, column 5: a key is a mapping or a list; expected a text"
    ]


def test_a_key_that_is_there_twice_is_told_with_both_lines() -> None:
    assert problems("a: 1\nb:\n  a: 2\n  a: 3\na: {}\n") == [
        "line 4, column 3: the key 'a' exists already, in line 3; keep one of them",
        "line 5, column 1: the key 'a' exists already, in line 1; keep one of them",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: &x 1\n", "line 1, column 4: the anchor &x is not supported; leave it out"),
        ("a: [&x [1]]\n", "line 1, column 5: the anchor &x is not supported; leave it out"),
        ("a: *x\n", "line 1, column 4: the alias *x is not supported; write out what it stands for"),
        ("a: !!str 1\n", "line 1, column 4: the tag tag:yaml.org,2002:str is not supported; leave it out"),
        (
            "!!python/object:os.system\na: 1\n",
            "line 1, column 1: the tag tag:yaml.org,2002:python/object:os.system",
        ),
        ("a: 1\n---\nb: 2\n", "line 2, column 1: a second document begins here; give each a text of its own"),
        ("a: b: c\n", "line 1, column 5: it is not YAML: mapping values are not allowed in this context"),
        (
            "a: 1\nb: 'x",
            "line 2, column 6: it is not YAML: found unexpected end of stream while scanning a quoted",
        ),
        ("é: 1\nb: x\x07\n", "line 2, column 5: it is not YAML: control characters are not allowed"),
        ("a: \ud800", "it is not valid text: surrogates not allowed"),
        ("a: " + "[" * 12, "line 1, column 13: it is nested too deeply; at most 10 levels are allowed"),
        ("a" * (MAX_CHARACTERS + 1), "it has more than 1,000,000 characters"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(text: str, expected: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith(expected)


def test_deep_nesting_and_bombs_end_at_once() -> None:
    assert "nested too deeply" in problems("[" * 900_000)[0]
    assert "anchor" in problems("a: &a [x, x]\n" + "".join(f"a{i}: [*a, *a]\n" for i in range(1_000)))[0]


def test_of_very_many_problems_the_first_are_told() -> None:
    found = problems("name: g\n" + "a: 1\n" * 150_000)
    assert len(found) == 101
    assert found[0].startswith("line 3, column 1: the key 'a' exists already")
    assert found[-1] == "there can be more problems; mend these first"


@pytest.mark.parametrize(
    "text",
    [
        "name: g\n" + "".join(f"key{number}: 1\n" for number in range(20_000)),
        f"name: {'x' * 900_000}\nnodes: [b]\n",
    ],
    ids=["many problems", "a long name"],
)
def test_the_error_of_a_large_document_is_not_large(text: str) -> None:
    with pytest.raises(GraphValidationError) as refused:
        Graph.from_yaml(text, nodes={})
    assert len(refused.value.problems) <= 101
    assert len(str(refused.value)) < 50_000


def test_an_empty_text_is_nothing() -> None:
    assert (read_yaml("# nothing\n", "this").data, problems("")) == (None, [])


def test_without_pyyaml_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtraError, match=r"this needs pyyaml: .*yaml"):
        read_yaml("a: 1", "this")
