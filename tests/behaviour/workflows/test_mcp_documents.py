"""The tools for specs: they check and write texts, and read files of the workspace only."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from support.patience import PATIENCE
from support.workflow_servers import Tools, server_here
from support.workflow_specs import ARTICLE

from fastroai.documents.yaml_text import read_yaml

TASK = """# Task: {title}

{body}

## Acceptance Criteria

- file `{file}` exists
- tests pass
- the code reads well
"""


async def error_of(call: Tools, tool: str, **arguments: Any) -> str:
    answer = await call(tool, **arguments)
    assert (answer["status"], answer["error_type"]) == ("error", "invalid_input")
    return str(answer["message"])


async def test_a_valid_spec_is_answered_with_the_order_of_its_steps(tmp_path: Path) -> None:
    async with server_here(tmp_path) as call:
        answer = await call("validate", spec=ARTICLE)
    assert answer == {
        "status": "ok",
        "valid": True,
        "errors": [],
        "version": "0.2",
        "retries_are": "attempts in all",
        "entry": "article",
        "flows": {"article": ["draft", "ship"]},
    }


async def test_an_answer_says_what_retries_are_in_the_version_of_the_spec(tmp_path: Path) -> None:
    async with server_here(tmp_path) as call:
        answer = await call("validate", spec=ARTICLE.replace('"0.2"', '"0.3"'))
    assert (answer["version"], answer["retries_are"]) == ("0.3", "extra attempts")


async def test_an_invalid_spec_is_answered_with_every_problem(tmp_path: Path) -> None:
    wrong = ARTICLE.replace("function: write", "function: wriet").replace("on_kill: null", "on_kil: null")
    async with server_here(tmp_path) as call:
        answer = await call("validate", spec=wrong)
        planned = await call("plan", spec=wrong)
        large = await call("validate", spec="#" * 1_100_000)
    assert answer["valid"] is False
    told = {(one["step"], one.get("nearest")) for one in answer["errors"]}
    assert ("ship", "on_kill") in told
    assert all(one["line"] > 1 and one["column"] > 1 for one in answer["errors"])
    assert planned["problems"] == answer["errors"]
    assert large["valid"] is False


@pytest.mark.parametrize("tool", ["plan", "validate"])
async def test_a_spec_that_takes_long_to_read_does_not_keep_other_calls_waiting(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def read_slowly(*args: Any, **options: Any) -> Any:
        begun.set()
        assert may_end.wait(PATIENCE), "the event loop has stood still"
        return read_yaml(*args, **options)

    monkeypatch.setattr("fastroai.workflows.spec.reading.read_yaml", read_slowly)
    async with server_here(tmp_path) as call:
        reading = asyncio.create_task(call(tool, spec="flows: {}"))
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        assert (await call("list_workflows"))["workflows"] == []
        may_end.set()
        assert (await reading)["problems" if tool == "plan" else "errors"]


async def test_the_specs_of_a_folder_are_listed_with_what_is_wrong_with_others(tmp_path: Path) -> None:
    (folder := tmp_path / "flows").mkdir()
    tone = "tone: {type: string, values: [warm, dry], default: dry, description: How it sounds.}"
    (folder / "article.workflow.yaml").write_text(
        ARTICLE.replace("    topic: {type: string}\n", f"    topic: {{type: string}}\n    {tone}\n").replace(
            "input: {topic: {type: string}}", f"input: {{topic: {{type: string}}, {tone}}}"
        )
    )
    (folder / "broken.stratum.yaml").write_text("version: 0.2")
    (folder / "notes.yaml").write_text("no spec")
    async with server_here(tmp_path) as call:
        answer = await call("list_workflows", workflows_dir="flows")
        assert (await call("list_workflows"))["workflows"] == []
    (article,) = answer["workflows"]
    assert article == {
        "name": "article",
        "description": "Writes an article that somebody approves.",
        "input": {
            "topic": {"type": "string", "required": True},
            "tone": {
                "type": "string",
                "required": False,
                "values": ["warm", "dry"],
                "default": "dry",
                "description": "How it sounds.",
            },
        },
        "path": "flows/article.workflow.yaml",
    }
    (broken,) = answer["errors"]
    assert broken.startswith(
        "flows/broken.stratum.yaml: line 1, column 1: flows is missing; line 1, column 10"
    )


async def test_task_files_become_a_spec_that_can_be_planned(tmp_path: Path) -> None:
    (folder := tmp_path / "tasks").mkdir()
    for number, title in enumerate(("Parse", "[P] Print", "[P] Check"), 1):
        text = TASK.format(title=title, body="Do it.", file=f"{number}.py")
        (folder / f"{number:02}-task.md").write_text(text)
    async with server_here(tmp_path) as call:
        made = await call("compile_speckit", tasks_dir="tasks", flow_name="build")
        assert (made["status"], made["flow_name"]) == ("ok", "build")
        first, second, third = made["steps"]
        assert [one["parallel"] for one in made["steps"]] == [False, True, True]
        assert first["ensures"] == ["file_exists('1.py')", "result.tests_pass == True"]
        assert first["judgment"] == ["the code reads well"]
        begun = await call("plan", spec=made["yaml"])
        assert (begun["step_id"], begun["total_steps"]) == (first["id"], 3)
        done = {"done": True, "tests_pass": True}
        failed = await call("step_done", flow_id=begun["flow_id"], step_id=first["id"], result=done)
        assert failed["status"] == "ensure_failed"
        (tmp_path / "1.py").touch()
        after = await call("step_done", flow_id=begun["flow_id"], step_id=first["id"], result=done)
    assert after["step_id"] == second["id"]
    assert third["id"] != second["id"]


async def test_phases_become_a_spec_that_can_be_planned(tmp_path: Path) -> None:
    phases = [
        {"name": "explore", "capability": "scout"},
        {"name": "build", "capability": "builder", "policy": "gate"},
    ]
    async with server_here(tmp_path) as call:
        made = await call("draft_pipeline", draft={"name": "feature", "phases": phases})
        assert (made["status"], made["flow_name"]) == ("ok", "feature")
        begun = await call("plan", spec=made["yaml"])
        assert (begun["status"], begun["total_steps"]) == ("execute_step", 3)
        wrong = await error_of(call, "draft_pipeline", draft={"phases": [{"nam": "x"}]})
        assert "draft.phases.0.name: Field required" in wrong
        assert "draft.phases.0.nam: Extra inputs are not permitted" in wrong
        assert "phases" in await error_of(call, "draft_pipeline", draft={"phases": []})
    assert not any(name.endswith(".yaml") for name in os.listdir(tmp_path)), "nothing is written"


async def test_folders_outside_of_the_workspace_are_not_read(tmp_path: Path) -> None:
    (secret := tmp_path / "secret").mkdir()
    (secret / "a.workflow.yaml").write_text(ARTICLE)
    (secret / "a.md").write_text(TASK.format(title="Secret", body="secret", file="a"))
    (root := tmp_path / "root").mkdir()
    (root / "link").symlink_to(secret)
    (inner := root / "inner").mkdir()
    (inner / "a.workflow.yaml").symlink_to(secret / "a.workflow.yaml")
    (inner / "a.md").symlink_to(secret / "a.md")
    async with server_here(tmp_path, workspace=root) as call:
        for folder in ("..", "../secret", "link", str(secret), "missing", "\0", "x" * 10_000):
            assert "is not a folder" in await error_of(call, "list_workflows", workflows_dir=folder)
            assert "is not a folder" in await error_of(call, "compile_speckit", tasks_dir=folder)
        for tool, argument in (("list_workflows", "workflows_dir"), ("compile_speckit", "tasks_dir")):
            assert "leads out of the workspace" in await error_of(call, tool, **{argument: "inner"})


async def test_task_files_that_cannot_become_a_spec_are_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    async with server_here(tmp_path) as call:
        assert "*.md" in await error_of(call, "compile_speckit", tasks_dir="empty")
        (tmp_path / "empty" / "a.md").write_bytes(b"\xff\xfe")
        assert "UTF-8" in await error_of(call, "compile_speckit", tasks_dir="empty")
        assert "flow" in await error_of(call, "compile_speckit", tasks_dir="empty", flow_name="no name")
