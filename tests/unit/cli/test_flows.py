"""`flow …` and `gate …`: flows of workflows on the command line, and gates as questions of the inbox."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import platformdirs
import pytest
from support.workflow_specs import ARTICLE, DRAFT
from typer.testing import CliRunner, Result

from fastroai.cli.app import app
from fastroai.store import SQLiteRunStore
from fastroai.workflows.driven_flows import WorkflowRuns

T = TypeVar("T")


def drive(place: Path, do: Callable[[WorkflowRuns], Coroutine[Any, Any, T]]) -> T:
    async def driven() -> T:
        store = SQLiteRunStore(place)
        try:
            return await do(WorkflowRuns(store))
        finally:
            await store.aclose()

    return asyncio.run(driven())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FASTROAI_STORE", str(tmp_path / "flows.db"))
    return tmp_path / "flows.db"


def fastroai(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, prog_name="fastroai")


def printed(*arguments: str) -> Any:
    done = fastroai(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def flow(place: Path) -> str:
    """A flow whose first step is due."""

    async def begin(runs: WorkflowRuns) -> str:
        answer = await runs.plan(ARTICLE, inputs={"topic": "tides"})
        assert answer.status == "execute_step"
        return answer.flow_id

    return drive(place, begin)


@pytest.fixture
def gate(place: Path, flow: str) -> str:
    """A flow that waits at its gate, with a checkpoint before."""

    async def go_on(runs: WorkflowRuns) -> None:
        await runs.commit(flow, "begun")
        await runs.step_done(flow, "draft", {"text": "Tides.", "words": 1})
        assert (await runs.step_done(flow, "draft", DRAFT)).status == "await_gate"

    drive(place, go_on)
    return flow


def test_flows_are_listed_with_how_far_they_are(flow: str, gate: str) -> None:
    (listed,) = printed("flow", "list")
    assert (listed["flow_id"], listed["workflow"], listed["status"]) == (flow, "article", "in_progress")
    assert listed["awaits"] is True
    assert f"{gate}  article" in (table := fastroai("flow", "list").stdout)
    assert "at a gate" in table


def test_a_store_without_flows_has_none(place: Path) -> None:
    drive(place, lambda runs: runs.list_flows())
    assert fastroai("flow", "list").stdout == f"no flows found in {place}\n"
    assert fastroai("gate", "list").stdout == f"no gates wait for a decision in {place}\n"
    for kind in ("flow", "gate"):
        assert fastroai(kind, "list", "--limit", "-1").exit_code == 2


def test_what_is_due_is_shown(flow: str) -> None:
    shown = fastroai("flow", "show", flow).stdout.splitlines()
    assert shown[0] == f"{flow} of article: in progress"
    assert shown[1].startswith("0 of 2 steps, round 0, ")
    assert shown[2:] == [
        f"{flow}: 'draft' is due, step 1 of 2 of 'article'",
        "Write about the topic.",
        'inputs: {"topic": "tides"}',
    ]
    assert fastroai("flow", "resume", flow).stdout.splitlines() == shown[2:]
    assert printed("flow", "show", flow)["next"] == printed("flow", "resume", flow)


def test_a_gate_is_shown_with_where_each_decision_leads(gate: str) -> None:
    assert fastroai("flow", "resume", gate).stdout.splitlines() == [
        f"{gate}: gate 'ship' of 'article' waits for a decision",
        "May it be published?",
        'inputs: {"text": "Tides follow the moon."}',
        "approve: complete, reject: killed, revise: draft (3 left)",
    ]
    (asked,) = printed("gate", "list")
    assert (asked["run_id"], asked["node"]) == (gate, "ship")
    assert "ship" in fastroai("gate", "list").stdout


def test_a_gate_is_approved_with_a_note(gate: str) -> None:
    approved = fastroai("gate", "approve", gate, "--note", "good work")
    assert approved.exit_code == 0
    assert approved.stdout.splitlines() == [
        f"{gate} of article: complete",
        'output: {"text": "Tides follow the moon.", "words": 4}',
    ]
    audit = printed("flow", "audit", gate)
    assert (audit["status"], audit["trace"][-1]["resolved_by"]) == ("complete", "human")
    assert audit["trace"][-1]["rationale"] == "good work"
    table = fastroai("flow", "audit", gate).stdout
    assert "result.words (1) >= 3 is false" in table
    assert "good work" in table


def test_a_gate_is_rejected_by_its_name(gate: str) -> None:
    assert printed("gate", "reject", gate, "ship", "--resolved-by", "agent")["status"] == "killed"
    assert printed("flow", "audit", gate)["trace"][-1]["resolved_by"] == "agent"


def test_a_revision_begins_a_new_round(gate: str) -> None:
    again = printed("gate", "revise", gate, "--note", "longer")
    assert (again["status"], again["step_id"], again["round"]) == ("execute_step", "draft", 1)
    told = fastroai("flow", "audit", gate).stdout
    assert [line for line in told.splitlines() if line.startswith("round ")] == ["round 0", "round 1"]
    assert printed("flow", "audit", gate)["rounds"][0]["round"] == 0


def test_a_flow_goes_back_to_a_checkpoint(gate: str) -> None:
    back = printed("flow", "revert", gate, "begun")
    assert (back["step_id"], back["attempt"], back["reverted_to"]) == ("draft", 1, "begun")
    assert "checkpoints: begun" in fastroai("flow", "show", gate).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("flow", "show", "missing"), 3, "missing"),
        (("flow", "audit", "missing"), 3, "missing"),
        (("flow", "resume", "missing"), 3, "missing"),
        (("gate", "approve", "missing"), 3, "missing"),
        (("flow", "revert", "FLOW", "never"), 3, "never"),
        (("gate", "approve", "FLOW"), 4, "does not wait at a gate"),
        (("gate", "approve", "FLOW", "draft"), 4, "draft"),
        (("gate", "approve", "FLOW", "nowhere"), 3, "nowhere"),
    ],
)
def test_what_cannot_be_done_is_told_with_its_exit_code(
    flow: str, arguments: tuple[str, ...], code: int, said: str
) -> None:
    given = [flow if one == "FLOW" else one for one in arguments]
    done = fastroai(*given)
    assert done.exit_code == code
    assert done.stdout == ""
    assert done.stderr.startswith("fastroai: ")
    assert said in done.stderr
    told = fastroai(*given, "--json")
    assert (told.exit_code, json.loads(told.stdout)["status"]) == (code, "error")


def test_a_gate_that_is_resolved_takes_no_other_decision(gate: str) -> None:
    assert fastroai("gate", "approve", gate).exit_code == 0
    assert fastroai("gate", "reject", gate, "ship").exit_code == 4


def test_nobody_else_can_resolve_a_gate(gate: str) -> None:
    done = fastroai("gate", "approve", gate, "--resolved-by", "nobody")
    assert done.exit_code != 0
    assert (
        "resolved_by is 'nobody'; expected the kind of the one who decided, not a name. "
        "Possible: human, agent, system." in done.stderr
    )


def test_the_inbox_shows_and_answers_gates(gate: str) -> None:
    (asked,) = printed("review", "list")
    assert asked["options"] == ["approve", "revise", "kill"]
    shown = fastroai("review", "show", asked["id"]).stdout
    assert "May it be published?" in shown
    answered = fastroai(
        "review", "answer", asked["id"], "approve", "--reviewer", "Mia", "--rationale", "fine"
    )
    assert answered.exit_code == 0, answered.output
    assert printed("flow", "resume", gate)["status"] == "complete"
    ship = printed("flow", "audit", gate)["trace"][-1]
    assert (ship["outcome"], ship["resolved_by"], ship["rationale"]) == ("approve", "human", "fine")
    assert printed("gate", "list") == []


def test_an_answer_that_is_no_decision_is_refused_by_the_inbox(gate: str) -> None:
    (asked,) = printed("review", "list")
    assert fastroai("review", "answer", asked["id"], "perhaps").exit_code != 0
    assert printed("flow", "resume", gate)["status"] == "await_gate"


def test_without_a_store_flows_are_in_the_data_folder_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FASTROAI_STORE", raising=False)
    monkeypatch.setattr(platformdirs, "user_data_path", lambda *_, **__: tmp_path / "data")
    assert printed("flow", "list") == []
    assert (tmp_path / "data" / "workflows.db").is_file()


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert fastroai("flow", "list", "--store", str(tmp_path / "missing.db")).exit_code == 2
    assert not (tmp_path / "missing.db").exists()
