"""Pipelines as text."""

import re
from typing import Any

import pytest

from fastroai.pipelines import Pipeline, StepContext, StepTiming, step
from fastroai.pipelines.plan import Plan, build_plan


@step
async def nothing(ctx: StepContext) -> None: ...


def plan(dependencies: dict[str, list[str]]) -> Plan:
    return build_plan("p", dict.fromkeys(dependencies, nothing), dependencies, next(iter(dependencies)), None)


def test_a_diagram_has_every_step_and_every_dependency() -> None:
    pipeline = Pipeline[Any, Any](
        "p", dict.fromkeys(["read", "classify", "reply"], nothing), {"reply": ["read", "classify"]}
    )
    assert pipeline.to_mermaid() == (
        "stateDiagram-v2\n"
        '    state "read" as s0\n'
        '    state "classify" as s1\n'
        '    state "reply" as s2\n'
        "    [*] --> s0\n"
        "    [*] --> s1\n"
        "    s0 --> s2\n"
        "    s1 --> s2\n"
        "    s2 --> [*]\n"
    )


@pytest.mark.parametrize(
    "name",
    [
        'quo"ted',
        "a --> b",
        "line\nbreak",
        "carriage\rreturn",
        "semi;colon",
        "#hash",
        "back\\slash",
        "<script>alert(1)</script>",
        "end",
        "[*]",
        "state",
        "über 文",
        "%% comment",
    ],
)
def test_no_name_can_become_syntax(name: str) -> None:
    drawn = Pipeline[Any, Any]("p", {name: nothing, "x": nothing}, {"x": [name]}).to_mermaid()
    lines = drawn.splitlines()
    assert len(lines) == 6
    match = re.fullmatch(r'    state "([^"<>\\]*)" as s0', lines[1])
    assert match, lines[1]
    assert re.sub(r"#(\d+);", lambda code: chr(int(code[1])), match[1]) == name
    assert not re.search(r"[#;](?!\d+;)", re.sub(r"#\d+;", "", match[1]))
    assert lines[3:] == ["    [*] --> s0", "    s0 --> s1", "    s1 --> [*]"]


def test_the_critical_path_is_what_the_last_step_had_to_wait_for() -> None:
    timings = {
        "a": StepTiming(0, 10),
        "b": StepTiming(10, 40),
        "c": StepTiming(10, 90),
        "d": StepTiming(90, 100),
        "e": StepTiming(0, 95),
    }
    shape = plan({"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": []})
    assert shape.critical_path(timings) == ("a", "c", "d")


def test_steps_that_did_not_run_are_not_on_it() -> None:
    shape = plan({"a": [], "b": ["a"], "c": ["b"]})
    assert shape.critical_path({"a": StepTiming(0, 5)}) == ("a",)
    assert shape.critical_path({}) == ()
    assert StepTiming(3, 5).duration_ms == 2
