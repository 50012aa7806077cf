"""Skills and instructions: their specs are valid and can be driven to the end, and their tools are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.workflow_servers import server_here

from fastroai.documents.yaml_text import read_yaml
from fastroai.store import MemoryRunStore
from fastroai.workflows import WorkflowRuns, load_spec
from fastroai.workflows.server.install.clients import instructions, skill_texts

TEXTS = {name.removeprefix("fastroai-"): text for name, text in skill_texts().items()}
YAML = re.compile(r"```yaml\n(.*?)```", re.DOTALL)

DESIGN = {"behaviour": "It adds.", "files": ["a.py"], "cases": ["usual", "limit", "bad"]}
SLICE = {"name": "add", "files": ["a.py"], "exit_code": 0}
FINDINGS = {"findings": ["a.py:1"], "files_read": ["a.py"]}
TASK = {"done": True, "summary": "written", "tests_pass": True}

RESULTS: dict[str, dict[str, Any]] = {
    "onboard": {
        "survey": {
            "purpose": "It adds numbers for people.",
            "languages": ["python"],
            "entry_points": ["main"],
            "layers": [],
        },
        "try_commands": {"install": "pip", "test": "pytest -q", "test_exit_code": 0, "seconds": 1.5},
        "write_page": {"path": "docs/ONBOARDING.md", "open_questions": []},
    },
    "plan": {
        "problem": {
            "goal": "Adding works for all numbers.",
            "constraints": [],
            "not_in_scope": ["fractions"],
        },
        "ways": {"ways": ["a", "b"], "chosen": "a", "why": "It needs no new dependency."},
        "write": {"path": "docs/plans/plan.md", "steps": ["one"], "risks": []},
    },
    "feature": {
        "design": DESIGN,
        "failing_test": {"test_file": "test_a.py", "failed_before": True, "message": "no add"},
        "implement": {"files": ["a.py"], "summary": "adds"},
        "verify": {"exit_code": 0, "passed": 3, "failed": 0},
    },
    "review": {
        "correctness": FINDINGS,
        "safety": {**FINDINGS, "findings": []},
        "clarity": {**FINDINGS, "findings": []},
        "confirm": {"confirmed": ["a.py:1"], "dismissed": [], "verdict": "request_changes"},
    },
    "debug": {
        "reproduce": {"command": "a 1", "observed": "2", "expected": "1", "reproduced": True},
        "narrow": {"hypothesis": "h", "experiment": "e", "observed": "o", "is_cause": True},
        "fix": {"files": ["a.py"], "test_file": "test_a.py", "test_failed_before": True, "relatives": []},
        "prove": {"exit_code": 0, "reproduced": False},
    },
    "refactor": {
        "baseline": {"exit_code": 0, "passed": 3, "uncovered": []},
        "moves": {"moves": ["rename"], "public_names": ["add"]},
        "carry_out": {"done": ["rename"], "left": 0, "exit_code": 0},
        "compare": {"passed": 3, "exit_code": 0, "public_names": ["add"]},
    },
    "migrate": {
        "inventory": {"places": ["a.py"], "breaking": [], "way_back": "git revert the commit"},
        "rehearse": {"where": "branch", "succeeded": True, "way_back_tested": True, "seconds": 3},
        "switch": {"migrated": ["a.py"], "left": []},
        "verify": {"exit_code": 0, "old_uses": 0},
    },
    "test": {
        "find_gaps": {"gaps": [{"id": "a.py:add", "behaviour": "It refuses text."}]},
        "write_tests": {"test_files": ["test_a.py"], "covered": ["a.py:add"]},
        "break_it": {"tried": 5, "caught": 5, "survivors": []},
        "settle": {"exit_code": 0, "runs": 3},
    },
    "learn": {
        "timeline": {"events": ["began"], "surprises": ["slow"]},
        "lessons": {"lessons": ["measure first"]},
        "record": {"notes": ["measure first"], "checks": []},
    },
    "build": {
        "slice": {"skeleton": "A program that adds two numbers.", "slices": ["add", "subtract"]},
        "code": SLICE,
        "check": SLICE,
        "add_slices": {"done": ["add", "subtract"], "left": 0, "exit_code": 0},
        "deliver": {"readme": "README.md", "exit_code": 0, "not_done": []},
    },
    "speckit": {"t01_parser": TASK, "t02_readme": TASK},
}
FILES = {
    "docs/ONBOARDING.md": "pytest -q",
    "docs/plans/plan.md": "",
    "test_a.py": "",
    "README.md": "the parser",
    "src/parser.py": "",
    ".fastroai/memory.md": "",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def spec_of(skill: str) -> str:
    (found,) = YAML.findall(TEXTS[skill])
    assert isinstance(found, str)
    return found


@pytest.mark.parametrize("skill", TEXTS)
def test_a_skill_says_what_it_is_for_and_when(skill: str) -> None:
    front, _, body = TEXTS[skill].removeprefix("---\n").partition("\n---\n")
    said = read_yaml(front, "skill").data
    assert isinstance(said, dict)
    assert said["name"] == f"fastroai-{skill}"
    assert 50 < len(said["description"]) <= 1024
    assert "Use " in said["description"]
    assert "\nUse this " in body
    assert [line for line in body.splitlines() if line.startswith("## ")][:2] == [
        "## The spec",
        "## How to drive it",
    ]


async def test_every_tool_that_is_named_is_a_tool_of_the_server(tmp_path: Path) -> None:
    async with server_here(tmp_path) as server:
        tools = {tool.name for tool in (await server.client.list_tools()).tools}
    for name, text in {"instructions": instructions(), **TEXTS}.items():
        named = set(re.findall(r"fastroai_[a-z_]+", text))
        assert named, name
        assert named <= tools, name


@pytest.mark.parametrize("skill", TEXTS)
async def test_the_spec_of_a_skill_can_be_driven_to_the_end(skill: str, workspace: Path) -> None:
    runs = WorkflowRuns(MemoryRunStore(), workspace=workspace)
    text = spec_of(skill)
    spec = load_spec(text)
    assert spec.workflow is not None
    assert spec.workflow.description
    inputs = dict.fromkeys(spec.flows[spec.entry].input, "something")
    now: Any = (await runs.plan(text, None, inputs)).to_json()
    results = dict(RESULTS[skill])
    while now["status"] != "complete":
        due = now
        while due["status"] == "execute_flow":
            due = due["child_step"]
        flow, step = due["flow_id"], due["step_id"]
        if due["status"] == "await_gate":
            now = (await runs.gate_resolve(flow, step, "approve", "good", "human")).to_json()
            continue
        assert due["status"] == "execute_step", due
        result = results.pop(step)
        if due.get("max_iterations"):
            await runs.iteration_start(flow, step)
            loop: Any = (await runs.iteration_report(flow, step, result)).to_json()
            while loop["status"] == "iteration_continue":
                loop = (await runs.iteration_report(flow, step, result)).to_json()
            assert (loop["status"], loop["outcome"]) == ("iteration_exit", "exit_success")
        now = (await runs.step_done(flow, step, result)).to_json()
        assert now["status"] in ("execute_step", "await_gate", "execute_flow", "complete"), now
    assert not results, "every step was due"


@pytest.mark.parametrize(("step", "wrong"), [("switch", {"left": ["a.py"]}), ("verify", {"old_uses": 1})])
async def test_a_migration_that_fails_is_undone(step: str, wrong: dict[str, Any], workspace: Path) -> None:
    runs = WorkflowRuns(MemoryRunStore(), workspace=workspace)
    results = RESULTS["migrate"] | {"undo": {"restored": True}}
    results = results | {step: results[step] | wrong}
    now: Any = await runs.plan(spec_of("migrate"), None, {"from_version": "1", "to_version": "2"})
    seen = []
    while now.status not in ("complete", "failed", "error"):
        if now.status == "await_gate":
            now = await runs.gate_resolve(now.flow_id, now.step_id, "approve", "", "human")
        else:
            seen.append(now.step_id)
            now = await runs.step_done(now.flow_id, now.step_id, results[now.step_id])
    assert now.status == "complete", now
    assert seen[-1] == "undo"
