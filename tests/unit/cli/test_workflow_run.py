"""`fastroai workflow run`: a spec whose steps FastroAI carries out, from a shell."""

from __future__ import annotations

import importlib
import json
import shlex
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fastroai.cli.app import app

SPEC = """
version: "0.2"
contracts:
  Count: {words: {type: integer}}
functions:
  count:
    mode: compute
    intent: Count the words
    input: {text: {type: string}, least: {type: integer}}
    output: Count
    ensure: ["result.words >= input.least"]
    retries: 1
  approve: {mode: gate, intent: Is it enough?}
flows:
  main:
    input: {text: {type: string}, least: {type: integer}}
    output: Count
    steps:
      - {id: count, function: count, inputs: {text: $.input.text, least: $.input.least}}
      - id: ok
        function: approve
        inputs: {words: $.steps.count.output.words}
        on_approve: null
        on_revise: count
        on_kill: null
"""
CODE = """
def count(text, least):
    return {"words": len(text.split())}


functions = {"count": count}
agents = {"claude": "no agent"}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "spec.workflow.yaml").write_text(SPEC)
    (tmp_path / "workflow_code.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("workflow_code", None)


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def run_spec(*words: str) -> Result:
    functions = ("--functions", "workflow_code:functions", "--store", "runs.db")
    return run("workflow", "run", "spec.workflow.yaml", *functions, *words)


def test_a_run_waits_at_a_gate_and_goes_on_when_it_is_run_again_with_its_id() -> None:
    first = run_spec("--input", "text=a b", "--input", "least=2", "--run-id", "r", "--json")
    assert first.exit_code == 0
    told = json.loads(first.stdout)
    assert (told["status"], told["cost_usd"]) == ("paused", "0")
    [question] = told["questions"]

    assert run("review", "answer", question["id"], "approve", "--store", "runs.db").exit_code == 0
    again = run_spec("--input", "text=a b", "--input", "least=2", "--run-id", "r")
    assert again.exit_code == 0
    assert again.stdout == 'run r: complete, $0.00. the workflow is complete\n{"words": 2}\n'


def test_a_run_that_has_failed_is_still_failed_when_it_is_resumed(folder: Path) -> None:
    bound = "Workflow.load(Path('spec.workflow.yaml')).bind(functions=functions)"
    code = f"from pathlib import Path\nfrom fastroai.workflows import Workflow\n{CODE}\nbound = {bound}\n"
    (folder / "workflow_code.py").write_text(code)
    assert run_spec("--input", "text=a", "--input", "least=2", "--run-id", "r").exit_code == 1
    again = run("runs", "resume", "r", "--pipeline", "workflow_code:bound", "--store", "runs.db")
    assert (again.exit_code, again.stdout) == (1, "run r: failed\n")


def test_a_small_cost_is_printed_without_an_exponent(folder: Path) -> None:
    (folder / "workflow_code.py").write_text(
        """
def count(ctx, text, least):
    ctx.record_usage(model="search", cost_usd="0.0000001")
    return {"words": 1}


functions = {"count": count}
"""
    )
    done = run_spec("--input", "text=a", "--input", "least=1", "--json")
    assert json.loads(done.stdout)["cost_usd"] == "0.0000001"


def test_the_commands_that_a_waiting_run_suggests_answer_its_gate_and_go_on(folder: Path) -> None:
    (folder / "spec.workflow.yaml").rename(folder / "my spec.yaml")
    words = ("--functions", "workflow_code:functions", "--store", "my runs.db")
    waiting = run("workflow", "run", "my spec.yaml", *words, "--inputs", '{"text": "a b", "least": 1}')
    _, asked, onwards = waiting.stdout.splitlines()
    assert asked.startswith("question of ok (approve, or revise, or kill): fastroai review answer ")
    assert onwards.startswith("to go on: fastroai workflow run 'my spec.yaml' ")

    assert run(*shlex.split(asked.partition(": fastroai ")[2])).exit_code == 0
    again = run(*shlex.split(onwards.partition(": fastroai ")[2]))
    assert again.exit_code == 0
    assert again.stdout.endswith('complete, $0.00. the workflow is complete\n{"words": 2}\n')


def test_a_question_of_a_function_is_answered_by_the_command_that_is_suggested(folder: Path) -> None:
    (folder / "workflow_code.py").write_text(
        """
async def count(ctx, text, least):
    return {"words": await ctx.ask("How many words are there?", int)}


functions = {"count": count}
"""
    )
    waiting = run_spec("--input", "text=a b", "--input", "least=1")
    _, asked, onwards = waiting.stdout.splitlines()
    assert asked.startswith("question of count: fastroai review answer ")
    words = [{"ANSWER": "7"}.get(one, one) for one in shlex.split(asked.partition(": fastroai ")[2])]
    assert run(*words).exit_code == 0
    assert "question of ok" in run(*shlex.split(onwards.partition(": fastroai ")[2])).stdout


def test_the_command_that_a_failed_run_suggests_goes_on_with_it(folder: Path) -> None:
    (folder / "workflow_code.py").write_text(CODE.replace("return", "raise OSError('disk full')  #"))
    failed = run_spec("--input", "text=a b", "--input", "least=1")
    assert (failed.exit_code, "disk full" in failed.output) == (1, True)
    [onwards] = [line for line in failed.stdout.splitlines() if line.startswith("to go on: ")]

    (folder / "workflow_code.py").write_text(CODE)
    del sys.modules["workflow_code"]
    importlib.invalidate_caches()
    assert ": paused, " in run(*shlex.split(onwards.partition(": fastroai ")[2])).stdout


def test_a_run_that_is_over_for_good_suggests_nothing() -> None:
    assert "to go on" not in run_spec("--input", "text=a b", "--input", "least=3").stdout


@pytest.mark.parametrize("form", ["--json", "--no-json"])
def test_the_password_of_a_store_is_not_shown(redis_url: str, form: str) -> None:
    place = f"{redis_url}?username=default&client_name=s3cr3tCANARY"
    functions = ("--functions", "workflow_code:functions", "--store", place)
    inputs = ("--input", "text=a b", "--input", "least=1", "--run-id", uuid.uuid4().hex)
    words = [one for one in (*functions, *inputs, form) if one != "--no-json"]
    waiting = run("workflow", "run", "spec.workflow.yaml", *words)
    assert waiting.exit_code == 0
    assert redis_url.rstrip("/") in waiting.stdout
    assert "CANARY" not in waiting.output


def test_a_run_that_fails_its_checks_exits_with_1_and_says_why() -> None:
    failed = run_spec("--input", "text=a b", "--input", "least=3", "--run-id", "r")
    assert failed.exit_code == 1
    assert "run r: failed, $0.00." in failed.stdout
    assert "result.words (2) >= input.least (3) is false" in failed.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("--input", "txet=a"),
            "--input='txet': expected an input of the flow: text, least. Did you mean 'text'",
        ),
        (("--input", "text"), "--input='text': expected NAME=VALUE"),
        (("--input", "text=a", "--input", "least=two"), "--input='two': expected JSON"),
        (("--flow", "mian"), "flow='mian': expected a flow of the spec: 'main'. Did you mean 'main'?"),
        (
            ("--agents", "workflow_code:agents"),
            "--agents workflow_code:agents['claude']='no agent': expected a FastroAgent",
        ),
        (("--agents", "workflow_code:count"), "--agents='workflow_code:count': expected a mapping of names"),
        (("--codec", "workflow_code:count"), "--codec='workflow_code:count': expected an object"),
    ],
)
def test_what_is_given_wrong_is_told(words: tuple[str, ...], told: str) -> None:
    result = run_spec(*words)
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_spec_that_is_none_is_told_with_its_lines(folder: Path) -> None:
    (folder / "spec.workflow.yaml").write_text(SPEC.replace("mode: compute", "mode: comptue"))
    result = run_spec()
    assert result.exit_code == 1
    assert "line 7" in result.stderr
    missing = run("workflow", "run", "missing.yaml", "--store", "runs.db")
    assert missing.exit_code == 2
    assert "SPEC='missing.yaml': expected a file that can be read" in missing.stderr


def test_a_run_that_goes_on_has_its_inputs_on_record() -> None:
    assert run_spec("--input", "text=a b", "--input", "least=2", "--run-id", "r").exit_code == 0
    [question] = json.loads(run("review", "list", "--store", "runs.db", "--json").stdout)
    assert run("review", "answer", question["id"], "approve", "--store", "runs.db").exit_code == 0
    again = run_spec("--run-id", "r")
    assert again.exit_code == 0
    assert again.stdout == 'run r: complete, $0.00. the workflow is complete\n{"words": 2}\n'
    assert run_spec("--run-id", "r").stdout == again.stdout


def test_looking_at_a_run_that_waits_at_a_gate_leaves_its_question_as_it_is() -> None:
    assert run_spec("--input", "text=a b", "--input", "least=2", "--run-id", "r").exit_code == 0
    listed = run("review", "list", "--store", "runs.db", "--json").stdout
    traced = run("runs", "trace", "r", "--store", "runs.db", "--json").stdout
    shown = run("flow", "show", "r", "--store", "runs.db").stdout
    assert "gate 'ok' of 'main' waits for a decision" in shown
    assert "gate 'ok' of" in run("flow", "resume", "r", "--store", "runs.db").stdout
    assert run("review", "list", "--store", "runs.db", "--json").stdout == listed
    assert run("runs", "trace", "r", "--store", "runs.db", "--json").stdout == traced
    [flow] = json.loads(run("flow", "list", "--store", "runs.db", "--json").stdout)
    assert (flow["flow_id"], flow["awaits"]) == ("r", True)
