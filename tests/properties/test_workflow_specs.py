"""Texts that are no specs: a clear error, of a bounded size, in a bounded time."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastroai.documents.yaml_text import read_yaml
from fastroai.workflows.errors import WorkflowValidationError
from fastroai.workflows.plan import plan_of
from fastroai.workflows.spec.order import ordered
from fastroai.workflows.spec.reading import load_spec

SPEC = """\
version: "0.2"
workflow: {name: build, description: Build it, input: {topic: {type: string}}}
contracts:
  Out: {ok: {type: boolean}, items: {type: array}, kind: {type: string, values: [a, b]}}
functions:
  work: {mode: infer, intent: Work, input: {topic: {type: string}}, output: Out, ensure: [result.ok]}
  review: {mode: gate, timeout: 60}
flows:
  build:
    input: {topic: {type: string}}
    output: Out
    budget: {usd: 1}
    max_rounds: 3
    steps:
    - id: draft
      function: work
      inputs: {topic: $.input.topic}
      output_schema: {type: object, properties: {ok: {$ref: '#/$defs/a'}}, $defs: {a: {type: boolean}}}
      max_iterations: 3
      exit_criterion: len(accumulator) > 3 or dry_streak > 1
      accumulate: result.items
      accumulate_key: item.id
    - {id: check, intent: Check, inputs: {x: '$.steps.draft.output.items[0]'}, ensure: [result],
       on_fail: mend}
    - {id: ask, function: review, policy: $.input.topic, on_approve: ~, on_revise: draft, on_kill: clean}
    - {id: mend, flow: inner, inputs: {x: 1}, skip_if: $.steps.check.output.ok == 3, next: check}
    - {id: clean, intent: Clean}
  inner: {input: {x: {type: integer}}, steps: [{id: a, intent: b, depends_on: []}]}
"""
DATA: Any = read_yaml(SPEC, "this", max_depth=30).data
FRAGMENTS = st.sampled_from(
    [
        *(
            "&a",
            "*a",
            "<<: ",
            "!!str",
            "on: ",
            "yes",
            "{",
            "}",
            "[",
            "]",
            "- ",
            ": ",
            "\n",
            "\n    ",
            "'",
            '"',
        ),
        *("---", "\t", "$.steps.", "$.input.x", "0.2", "1e999", "~", "|\n", "é", "\x00", "\ud800", "#", "? "),
        *("a" * 300, "9" * 5000),
    ]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=9)
    | st.sampled_from(
        ["draft", "mend", "build", "$.steps.mend.output", "$.input.topic", "work", "Out", "result.x"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def looked_at(text: str) -> None:
    """Load a text that may be a spec, and hold what errors promise."""
    started = time.process_time()
    try:
        spec, error = load_spec(text), None
    except WorkflowValidationError as found:
        spec, error = None, found
    assert time.process_time() - started < 1
    if spec is not None:
        assert plan_of(spec).steps
        return
    assert error is not None
    assert 0 < len(error.problems) <= 101
    assert all(len(problem.message) < 1_500 for problem in error.problems)
    assert all(problem.line >= 1 and problem.column >= 1 for problem in error.problems)
    assert len(str(error)) < 150_000


@st.composite
def mutated(draw: st.DrawFn) -> str:
    text = SPEC
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = start + draw(st.integers(0, 30))
        put = draw(FRAGMENTS | st.just("") | st.just(text[start : start + 40]))
        text = text[:start] + put + text[end:]
    return text


@given(text=mutated())
@example(text="")
@example(text="a: " * 1000)
@example(text="[" * 100_000)
@example(text="x" * 1_000_001)
@example(text="version: '0.2'\nflows: {main: {steps: [" + "{id: a, function: b}, " * 40_000 + "]}}")
@example(text="version: '0.2'\nflows: {main: {steps: [{id: " + "a" * 900_000 + ", intent: b}]}}")
@example(text="version: '0.2'\nflows: {main: {steps: [{id: a, intent: b, " + "k" * 900_000 + ": b}]}}")
@settings(deadline=None)
def test_a_changed_text_is_a_spec_or_says_why_not(text: str) -> None:
    looked_at(text)


def _ways(data: Any) -> list[tuple[Any, Any]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [found for key, inner in items for found in ((data, key), *_ways(inner))]


@given(data=st.data())
@settings(deadline=None)
def test_changed_values_are_a_spec_or_say_why_not(data: st.DataObject) -> None:
    document = json.loads(json.dumps(DATA))
    for _ in range(data.draw(st.integers(1, 4))):
        ways = _ways(document)
        around, key = ways[data.draw(st.integers(0, len(ways) - 1))]
        what = data.draw(st.sampled_from(["replace", "remove", "rename"]))
        if what == "remove":
            del around[key]
        elif what == "rename" and isinstance(around, dict):
            around[data.draw(st.text(max_size=5))] = around.pop(key)
        else:
            around[key] = data.draw(VALUES)
    looked_at(json.dumps(document))


@given(
    text=st.text(max_size=60)
    | st.lists(
        st.sampled_from(
            [
                *(
                    "result",
                    ".",
                    "ok",
                    "[",
                    "]",
                    "(",
                    ")",
                    "==",
                    "and",
                    "not",
                    "$.input.x",
                    "file_exists",
                    "'a'",
                ),
                *("1", "for", "x", "in", "*", "**", "lambda", "__class__", "len", "-", "{", "}", ",", ":"),
                "$.steps.draft.output",
            ]
        ),
        max_size=14,
    ).map(" ".join),
    key=st.sampled_from(["ensure", "skip_if", "exit_criterion"]),
)
@settings(deadline=None)
def test_any_text_is_an_expression_or_says_why_not(text: str, key: str) -> None:
    document = json.loads(json.dumps(DATA))
    step = document["flows"]["build"]["steps"][1]
    step |= {key: [text] if key == "ensure" else text, "max_iterations": 2}
    looked_at(json.dumps(document))


@given(st.dictionaries(st.integers(0, 12), st.lists(st.integers(0, 12), max_size=4), max_size=13))
def test_the_order_respects_needs_and_the_rest_is_in_circles(graph: dict[int, list[int]]) -> None:
    names = [str(one) for one in graph]
    needs = {str(one): [str(need) for need in wanted if need in graph] for one, wanted in graph.items()}
    order, circles = ordered(names, needs)
    rank = {name: number for number, name in enumerate(order)}
    assert all(rank[need] < rank[name] for name in order for need in needs[name])
    for circle in circles:
        assert len(set(circle)) == len(circle)
        assert all(after in needs[name] for name, after in zip(circle, [*circle[1:], circle[0]], strict=True))
    left = {name for name in names if name not in rank}
    assert bool(left) == bool(circles)
    assert {name for circle in circles for name in circle} <= left


@pytest.mark.parametrize("steps", [1_000])
def test_wrong_names_in_a_long_spec_are_told_in_time(steps: int) -> None:
    lines = [f"    - {{id: step_{n}, function: wrk_{n}, depends_on: [stepp_{n}]}}\n" for n in range(steps)]
    functions = "".join(f"  work_{n}: {{mode: infer, intent: a, output: Out}}\n" for n in range(steps))
    looked_at(
        "version: '0.2'\ncontracts: {Out: {a: {type: string}}}\nfunctions:\n"
        f"{functions}flows:\n  main:\n    steps:\n{''.join(lines)}"
    )
