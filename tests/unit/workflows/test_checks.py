"""Violations of results: how many, how long, and in which time. Scenarios have the order of the checks."""

from __future__ import annotations

import time

from pydantic import JsonValue

from fastroai.workflows.checks import CheckFailure, Checks, oversize
from fastroai.workflows.spec.document import StepSpec
from fastroai.workflows.spec.reading import load_spec

SPEC = """\
version: "0.2"
contracts:
  Out:
    ok: {type: boolean}
    kind: {type: string, values: [bug, feature]}
    note: {type: string, required: false}
flows:
  main:
    steps:
    - id: a
      intent: Do it
      output_contract: Out
      output_schema:
        type: object
        required: [count]
        properties: {count: {type: integer, maximum: 9, $ref: '#/$defs/even'}, tags: {items: {type: string}}}
        $defs: {even: {multipleOf: 2}}
      ensure: [result.ok, "result.count > input.least", "file_exists('a.txt')"]
      inputs: {least: 1}
"""
GOOD: dict[str, JsonValue] = {"ok": True, "kind": "bug", "count": 2}


def step() -> tuple[StepSpec, Checks]:
    spec = load_spec(SPEC)
    return spec.flows["main"].steps[0], Checks(spec)


def test_a_failure_has_the_names_that_answers_and_facts_give_it() -> None:
    told = {kind: CheckFailure(kind, ()) for kind in ("schema", "contract", "ensure")}
    assert [one.status for one in told.values()] == ["schema_failed", "schema_failed", "ensure_failed"]
    assert [one.error_type for one in told.values()] == ["SchemaFailed", "ContractFailed", "EnsureFailed"]


def test_without_a_workspace_no_file_can_be_asked_for() -> None:
    a, checks = step()
    failed = checks.of_result(a, GOOD, {"least": 1})
    assert failed is not None
    assert "there is no workspace to look for files in" in failed.violations[0]


def test_the_output_of_a_flow_has_its_contract() -> None:
    checks = step()[1]
    assert checks.fits("Out", GOOD) == ()
    assert checks.fits("Out", {"ok": True, "kind": None}) == (
        'result.kind: null is not of type "string"',
        'result.kind: null is not one of "bug" or "feature"',
    )


def test_violations_are_few_and_short() -> None:
    a, checks = step()
    failed = checks.of_result(a, {"count": 2, "tags": [{"x": "y" * 900}] * 20, "more": "z"}, {})
    assert failed is not None
    assert len(failed.violations) == 20
    assert all(len(one) == 500 and one.endswith("…") for one in failed.violations)
    failed = checks.of_result(a, {"count": 2, "tags": [1] * 200}, {})
    assert failed is not None
    assert len(failed.violations) == 50


def test_a_long_result_is_checked_in_a_bounded_time() -> None:
    a, checks = step()
    started = time.process_time()
    failed = checks.of_result(a, {"count": 2, "tags": [1] * 400_000}, {})
    assert time.process_time() - started < 1
    assert failed is not None
    assert failed.violations == ('result.tags[0]: 1 is not of type "string"',)


def test_results_that_are_too_large_are_told() -> None:
    assert oversize({"a": [1, "x", None, {"b": True}]}) is None
    assert "characters" in (oversize("x" * 1_000_001) or "")
    assert "characters" in (oversize([0] * 400_000) or "")
    assert "characters" in (oversize({"x" * 600_000: 1, "y" * 600_000: 2}) or "")
    deep: JsonValue = 1
    for _ in range(100):
        deep = [deep]
    assert oversize(deep) is None
    assert "at most 100 levels" in (oversize([deep]) or "")
