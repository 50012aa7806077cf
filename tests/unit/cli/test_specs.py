"""`workflow validate`, `list`, `compile` and `draw`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fastroai.cli.app import app
from fastroai.workflows.spec.reading import load_spec

GOOD = """\
version: "0.2"
workflow: {name: build, description: Build it, input: {topic: {type: string}}}
flows:
  build:
    input: {topic: {type: string}}
    steps:
    - {id: draft, intent: Write it}
    - {id: check, flow: review, depends_on: [draft]}
  review:
    steps: [{id: look, intent: Look at it}]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("good.workflow.yaml").write_text(GOOD)
    Path("bad.stratum.yaml").write_text(GOOD.replace("[draft]", "[draf]"))
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["workflow", *arguments], prog_name="fastroai")


def test_valid_specs_are_told_with_their_flows() -> None:
    result = call("validate", "good.workflow.yaml")
    assert (result.exit_code, result.stdout) == (
        0,
        "good.workflow.yaml: valid, flows build, review, 3 steps\n",
    )
    result = call("validate", "good.workflow.yaml", "--json")
    assert json.loads(result.stdout) == [
        {
            "path": "good.workflow.yaml",
            "valid": True,
            "entry": "build",
            "flows": {"build": ["draft", "check"], "review": ["look"]},
            "errors": [],
        }
    ]


def test_problems_are_told_with_file_line_and_column() -> None:
    result = call("validate", "good.workflow.yaml", "bad.stratum.yaml")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1] == (
        "bad.stratum.yaml:8:46: step 'draf' does not exist; known: draft, check. Did you mean 'draft'?"
    )
    (shape,) = json.loads(call("validate", "bad.stratum.yaml", "--json").stdout)
    (problem,) = shape["errors"]
    assert (shape["valid"], problem["line"], problem["column"]) == (False, 8, 46)
    assert (problem["flow"], problem["step"], problem["nearest"]) == ("build", "check", "draft")


def test_a_file_that_is_not_there_is_told() -> None:
    result = call("validate", "none.yaml", "bad.stratum.yaml")
    assert result.exit_code == 3
    assert "none.yaml:1:1: it cannot be read: No such file or directory" in result.stdout
    assert call("draw", "none.yaml").exit_code == 3
    assert call("list", "none").exit_code == 3
    assert call("compile", "none").exit_code == 3


def test_workflows_of_a_folder_are_listed() -> None:
    result = call("list")
    assert result.exit_code == 0
    assert result.stdout == "build(topic: string)  good.workflow.yaml  Build it\n"
    assert "bad.stratum.yaml is no valid spec: line 8, column 46" in result.stderr
    shape = json.loads(call("list", ".", "--json").stdout)
    assert [one["name"] for one in shape["workflows"]] == ["build"]
    assert shape["workflows"][0]["input"] == {
        "topic": {"type": "string", "required": True, "values": None, "default": None, "description": ""}
    }
    assert [one["path"] for one in shape["invalid"]] == ["bad.stratum.yaml"]


def test_task_files_become_a_spec(folder: Path) -> None:
    (folder / "tasks").mkdir()
    (folder / "tasks" / "01-a.md").write_text(
        "# Task: A\n\n## Acceptance Criteria\n- [ ] tests pass\n- [ ] nice\n"
    )
    text = call("compile", "tasks", "--flow", "work").stdout
    assert load_spec(text).entry == "work"
    assert call("compile", "tasks", "--flow", "work", "--output", "out.workflow.yaml").stdout == ""
    assert (folder / "out.workflow.yaml").read_text() == text
    shape = json.loads(call("compile", "tasks", "--flow", "work", "--json").stdout)
    assert shape["yaml"] == text
    assert shape["steps"] == [
        {
            "id": "t01_a",
            "title": "A",
            "parallel": False,
            "ensures": ["result.tests_pass == True"],
            "judgment": ["nice"],
        }
    ]
    result = call("compile", ".")
    assert result.exit_code == 2
    assert "1 to 1,000 files *.md" in result.stderr


def test_flows_are_drawn(folder: Path) -> None:
    text = call("draw", "good.workflow.yaml").stdout
    assert text.startswith("flowchart TD")
    assert (
        call("draw", "good.workflow.yaml", "--flow", "review", "--format", "svg", "--output", "a.svg").stdout
        == ""
    )
    assert (folder / "a.svg").read_text().startswith("<svg")
    shape = json.loads(call("draw", "good.workflow.yaml", "--json").stdout)
    assert shape == {"flow": "build", "format": "mermaid", "drawing": text, "path": None}


def test_what_cannot_be_drawn_is_told() -> None:
    result = call("draw", "bad.stratum.yaml")
    assert (result.exit_code, "step 'draf' does not exist" in result.stderr) == (1, True)
    result = call("draw", "good.workflow.yaml", "--flow", "reviw")
    assert (result.exit_code, "Did you mean 'review'?" in result.stderr) == (2, True)
    assert call("draw", "good.workflow.yaml", "--format", "png").exit_code == 2
    result = call("draw", "good.workflow.yaml", "--output", "none/a.svg")
    assert (result.exit_code, "No such file" in result.stderr) == (2, True)
