"""Results that pass and that do not: schema, contract and ensure, in this order."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pydantic import JsonValue

from fastroai.workflows.checks import CheckFailure, Checks, oversize
from fastroai.workflows.spec.document import StepSpec
from fastroai.workflows.spec.files import Workspace
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


def checked(result: JsonValue, workspace: Workspace | None = None) -> CheckFailure | None:
    spec = load_spec(SPEC)
    return Checks(spec, workspace).of_result(spec.flows["main"].steps[0], result, {"least": 1})


def test_a_good_result_passes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    assert checked(GOOD, Workspace(tmp_path)) is None
    assert checked({**GOOD, "more": [1], "note": None}, Workspace(tmp_path)) is None


@pytest.mark.parametrize(
    ("result", "kind", "violations"),
    [
        (
            {"count": 11, "tags": ["a", 3]},
            "schema",
            (
                "result.count: 11 is greater than the maximum of 9",
                "result.count: 11 is not a multiple of 2",
                'result.tags[1]: 3 is not of type "string"',
            ),
        ),
        ([], "schema", ('result: [] is not of type "object"',)),
        (
            {"count": 2},
            "contract",
            ('result: "ok" is a required property', 'result: "kind" is a required property'),
        ),
        (
            {"count": 2, "ok": 1, "kind": "x"},
            "contract",
            ('result.ok: 1 is not of type "boolean"', 'result.kind: "x" is not one of "bug" or "feature"'),
        ),
        (
            {"count": 0, "ok": False, "kind": "bug"},
            "ensure",
            (
                "result.ok (False) is false",
                "result.count (0) > input.least (1) is false",
                "file_exists('a.txt') is false",
            ),
        ),
    ],
)
def test_the_first_check_that_fails_says_everything_that_it_found(
    result: JsonValue, kind: str, violations: tuple[str, ...], tmp_path: Path
) -> None:
    failed = checked(result, Workspace(tmp_path))
    assert failed is not None
    assert failed.kind == kind
    assert sorted(failed.violations) == sorted(violations)


def test_a_failure_has_the_names_that_answers_and_facts_give_it() -> None:
    told = {kind: CheckFailure(kind, ()) for kind in ("schema", "contract", "ensure")}
    assert [one.status for one in told.values()] == ["schema_failed", "schema_failed", "ensure_failed"]
    assert [one.error_type for one in told.values()] == ["SchemaFailed", "ContractFailed", "EnsureFailed"]


def test_without_a_workspace_no_file_can_be_asked_for() -> None:
    failed = checked(GOOD)
    assert failed is not None
    assert "there is no workspace to look for files in" in failed.violations[0]


def test_a_missing_key_is_a_violation() -> None:
    spec = load_spec(SPEC.replace("      output_contract: Out\n", "").replace("[count]", "[]"))
    failed = Checks(spec).of_result(spec.flows["main"].steps[0], {}, {})
    assert failed is not None
    assert failed.violations[0] == "result.ok is false: result.ok is missing"


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
