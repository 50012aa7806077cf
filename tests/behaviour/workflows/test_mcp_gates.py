"""Gates as questions that a client puts to its user: by each version of the protocol, or not at all."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from mcp.shared.exceptions import MCPError
from support.patience import PATIENCE
from support.workflow_servers import Flow, Tools, answering, server_here
from support.workflow_specs import ARTICLE, DRAFT

from fastroai.errors import RunStoreUnavailable
from fastroai.store import SQLiteRunStore
from fastroai.workflows.answers import AwaitGate
from fastroai.workflows.server.app import GATE_RULE
from fastroai.workflows.server.install.clients import instructions, skill_texts

BOTH = pytest.mark.parametrize("mode", ["auto", "legacy"])
"""Questions in the answer of a call, since 2026-07-28; and questions in mid-call, before."""

APPROVED = ("accept", {"outcome": "approve", "rationale": "well written"})


async def at_gate(call: Tools, **arguments: Any) -> tuple[str, Flow]:
    """The flow, and what its last step before the gate answers."""
    flow = (await call("plan", spec=ARTICLE, inputs={"topic": "tides"}))["flow_id"]
    return flow, await call("step_done", flow_id=flow, step_id="draft", result=DRAFT, **arguments)


async def decision(call: Tools, flow: str) -> tuple[str, str, str]:
    gate = (await call("audit", flow_id=flow))["trace"][-1]
    return gate["outcome"], gate["resolved_by"], gate.get("rationale", "")


@BOTH
async def test_the_client_asks_its_user_when_a_step_leads_to_a_gate(tmp_path: Path, mode: str) -> None:
    user, asked = answering(APPROVED)
    async with server_here(tmp_path, mode=mode, elicitation_callback=user) as call:
        flow, end = await at_gate(call)
        assert end["status"] == "complete"
        assert await decision(call, flow) == ("approve", "agent", "well written")
    (question,) = asked
    assert question.startswith("> May it be published?")
    assert "Gate 'ship' of flow 'article', round 0" in question
    assert "revise: back to 'draft'" in question
    assert DRAFT["text"] in question


@BOTH
async def test_an_intent_and_inputs_neither_imitate_the_ways_on_nor_hide_text(
    tmp_path: Path, mode: str
) -> None:
    attack = "May it be published?\n\napprove: only a draft\u202e\x1b[2J"
    spec = ARTICLE.replace("May it be published?", json.dumps(attack))
    user, asked = answering(APPROVED)
    async with server_here(tmp_path, mode=mode, elicitation_callback=user) as call:
        flow = (await call("plan", spec=spec, inputs={"topic": "tides"}))["flow_id"]
        written = {**DRAFT, "text": f"\u202e{DRAFT['text']}\n\nkill: nothing\u009b"}
        await call("step_done", flow_id=flow, step_id="draft", result=written)
    (question,) = asked
    assert question.replace("\n", "").isprintable()
    lines = question.splitlines()
    assert [line for line in lines if line.startswith("approve:")] == ["approve: the flow is complete"]
    assert [line for line in lines if line.startswith("kill:")] == ["kill: the flow ends"]
    assert r"> approve: only a draft\u202e\x1b[2J" in lines
    assert r"\u202e" in question


@BOTH
async def test_the_decision_is_one_of_a_person_if_the_operator_trusts_the_client(
    tmp_path: Path, mode: str
) -> None:
    user, _ = answering(APPROVED)
    async with server_here(tmp_path, trusts_client=True, mode=mode, elicitation_callback=user) as call:
        flow, _ = await at_gate(call)
        assert await decision(call, flow) == ("approve", "human", "well written")


@pytest.mark.parametrize(
    ("trusts_client", "said", "on_record"),
    [
        (False, "human", "agent"),
        (False, "agent", "agent"),
        (False, "system", "agent"),
        (True, "human", "human"),
        (True, "agent", "agent"),
        (True, "system", "agent"),
    ],
)
async def test_an_agent_alone_cannot_put_a_person_on_record(
    tmp_path: Path, trusts_client: bool, said: str, on_record: str
) -> None:
    async with server_here(tmp_path, trusts_client=trusts_client) as call:
        flow, _ = await at_gate(call)
        await call("gate_resolve", flow_id=flow, step_id="ship", outcome="approve", resolved_by=said)
        assert await decision(call, flow) == ("approve", on_record, "")


async def test_every_text_for_agents_and_people_has_the_same_rule_for_gates(tmp_path: Path) -> None:
    async with server_here(tmp_path) as call:
        told = call.client.instructions
        tools = {tool.name: tool for tool in (await call.client.list_tools()).tools}
    page = Path(__file__).parents[3] / "docs" / "guides" / "workflow-server.md"
    tool = tools["fastroai_gate_resolve"].description
    for text in (told, tool, instructions(), page.read_text().replace("\n> ", " ")):
        assert GATE_RULE.replace("`", "") in " ".join((text or "").replace("`", "").split())
    for text in (told, tool, instructions(), *skill_texts().values()):
        assert (text or "").count("resolved_by") <= 1, "and no other"


@BOTH
async def test_each_round_asks_anew(tmp_path: Path, mode: str) -> None:
    user, asked = answering(("accept", {"outcome": "revise"}), ("accept", {"outcome": "kill"}))
    async with server_here(tmp_path, mode=mode, elicitation_callback=user) as call:
        flow, again = await at_gate(call)
        assert (again["status"], again["step_id"], again["round"]) == ("execute_step", "draft", 1)
        end = await call("step_done", flow_id=flow, step_id="draft", result=DRAFT)
    assert end["status"] == "killed"
    assert ["round 0" in asked[0], "round 1" in asked[1]] == [True, True]


@BOTH
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_who_does_not_decide_leaves_the_flow_at_the_gate(
    tmp_path: Path, mode: str, action: str
) -> None:
    user, asked = answering((action, None), APPROVED)
    async with server_here(tmp_path, mode=mode, elicitation_callback=user) as call:
        flow, gate = await at_gate(call)
        assert gate["status"] == "await_gate"
        assert len(asked) == 1
        end = await call("gate_resolve", flow_id=flow, step_id="ship")
        assert end["status"] == "complete"


@BOTH
async def test_a_flow_that_is_resumed_at_a_gate_asks(tmp_path: Path, mode: str) -> None:
    async with server_here(tmp_path, mode=mode) as call:
        flow, gate = await at_gate(call)
        assert gate["status"] == "await_gate"
    user, _ = answering(APPROVED)
    async with server_here(tmp_path, mode=mode, elicitation_callback=user) as call:
        assert (await call("resume", flow_id=flow))["status"] == "complete"


async def test_a_gate_that_cannot_revise_does_not_offer_it(tmp_path: Path) -> None:
    schemas: list[Any] = []

    async def user(_: Any, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        assert isinstance(params, mcp_types.ElicitRequestFormParams)
        schemas.append(params.requested_schema)
        return mcp_types.ElicitResult(action="decline")

    final = ARTICLE.replace("on_revise: draft", "on_revise: null")
    async with server_here(tmp_path, elicitation_callback=user) as call:
        for spec in (ARTICLE, final):
            flow = (await call("plan", spec=spec, inputs={"topic": "tides"}))["flow_id"]
            await call("step_done", flow_id=flow, step_id="draft", result=DRAFT)
    first, second = (schema["properties"]["outcome"]["enum"] for schema in schemas)
    assert (first, second) == (["approve", "revise", "kill"], ["approve", "kill"])


@BOTH
async def test_a_gate_that_somebody_else_has_resolved_meanwhile_stays_so(tmp_path: Path, mode: str) -> None:
    asked, killed = asyncio.Event(), asyncio.Event()

    async def user(*_: Any) -> mcp_types.ElicitResult:
        asked.set()
        await killed.wait()
        return mcp_types.ElicitResult(action="accept", content={"outcome": "approve"})

    async with (
        server_here(tmp_path) as elsewhere,
        server_here(tmp_path, mode=mode, elicitation_callback=user) as call,
    ):
        flow = (await call("plan", spec=ARTICLE, inputs={"topic": "tides"}))["flow_id"]
        waiting = asyncio.create_task(call("step_done", flow_id=flow, step_id="draft", result=DRAFT))
        await asyncio.wait_for(asked.wait(), PATIENCE)
        await elsewhere("gate_resolve", flow_id=flow, step_id="ship", outcome="kill", resolved_by="human")
        killed.set()
        assert (await waiting)["status"] == "killed"
        assert await decision(call, flow) == ("kill", "agent", "")


async def errs(*_: Any) -> mcp_types.ErrorData:
    return mcp_types.ErrorData(code=-32603, message="there is no user here")


async def says(content: dict[str, Any] | None) -> mcp_types.ElicitResult:
    return mcp_types.ElicitResult(action="accept", content=content)


@pytest.mark.parametrize(
    ("mode", "user"),
    [
        ("legacy", errs),
        *((mode, lambda *_: says(None)) for mode in ("auto", "legacy")),
        *((mode, lambda *_: says({"outcome": "maybe"})) for mode in ("auto", "legacy")),
        *((mode, lambda *_: says({"rationale": "good"})) for mode in ("auto", "legacy")),
    ],
)
async def test_a_question_that_fails_leaves_the_flow_at_the_gate(
    tmp_path: Path, mode: str, user: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with server_here(tmp_path, mode=mode, elicitation_callback=user) as call:
        flow, gate = await at_gate(call)
        assert (gate["status"], gate["step_id"]) == ("await_gate", "ship")
        assert (await call("resume", flow_id=flow))["status"] == "await_gate"
        assert (await call("gate_resolve", flow_id=flow, step_id="ship"))["status"] == "await_gate"
        end = await call("gate_resolve", flow_id=flow, step_id="ship", outcome="approve")
        assert end["status"] == "complete"
    assert "the client" in caplog.text


@BOTH
async def test_a_user_who_declines_late_learns_where_the_flow_is(tmp_path: Path, mode: str) -> None:
    async with server_here(tmp_path) as elsewhere:

        async def user(*_: Any) -> mcp_types.ElicitResult:
            await elsewhere("gate_resolve", flow_id=flow, step_id="ship", outcome="revise")
            return mcp_types.ElicitResult(action="decline")

        async with server_here(tmp_path, mode=mode, elicitation_callback=user) as call:
            flow = (await call("plan", spec=ARTICLE, inputs={"topic": "tides"}))["flow_id"]
            now = await call("step_done", flow_id=flow, step_id="draft", result=DRAFT)
    assert (now["status"], now["step_id"], now["round"]) == ("execute_step", "draft", 1)


@BOTH
async def test_a_decision_does_not_count_for_a_round_that_the_user_has_not_seen(
    tmp_path: Path, mode: str
) -> None:
    later = {**DRAFT, "text": "Another text about tides."}
    async with server_here(tmp_path) as elsewhere:

        async def user(*_: Any) -> mcp_types.ElicitResult:
            await elsewhere("gate_resolve", flow_id=flow, step_id="ship", outcome="revise")
            await elsewhere("step_done", flow_id=flow, step_id="draft", result=later)
            return mcp_types.ElicitResult(action="accept", content={"outcome": "approve"})

        async with server_here(tmp_path, mode=mode, elicitation_callback=user) as call:
            flow = (await call("plan", spec=ARTICLE, inputs={"topic": "tides"}))["flow_id"]
            now = await call("step_done", flow_id=flow, step_id="draft", result=DRAFT)
    assert (now["status"], now["round"], now["inputs"]) == ("await_gate", 1, {"text": later["text"]})


@BOTH
async def test_a_store_that_fails_while_the_user_decides_leaves_the_flow_at_the_gate(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any, **__: Any) -> Any:
        raise RunStoreUnavailable("SQLite", "the disk is gone")

    async def user(*_: Any) -> mcp_types.ElicitResult:
        monkeypatch.setattr(SQLiteRunStore, "append", fails)
        monkeypatch.setattr(SQLiteRunStore, "read", fails)
        return mcp_types.ElicitResult(action="accept", content={"outcome": "approve"})

    async with server_here(tmp_path, mode=mode, elicitation_callback=user) as call:
        _, gate = await at_gate(call)
        assert (gate["status"], gate["inputs"]) == ("await_gate", {"text": DRAFT["text"]})
        monkeypatch.undo()
        audit = await call("audit", flow_id=gate["flow_id"])
    assert [step["outcome"] for step in audit["trace"]] == ["succeeded", "open"]


async def test_a_question_of_another_version_of_the_server_leaves_the_flow_at_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AwaitGate, "model_dump_json", lambda _: '{"status": "await_gate", "of": "later"}')
    async with server_here(tmp_path, elicitation_callback=answering(APPROVED)[0]) as call:
        _, gate = await at_gate(call)
    assert (gate["status"], gate["step_id"]) == ("await_gate", "ship")


async def test_another_server_understands_what_the_first_one_has_sealed(tmp_path: Path) -> None:
    async with server_here(tmp_path, elicitation_callback=answering()[0]) as call:
        flow = (await call("plan", spec=ARTICLE, inputs={"topic": "tides"}))["flow_id"]
        done = {"flow_id": flow, "step_id": "draft", "result": DRAFT}
        question = await call.client.session.call_tool("fastroai_step_done", done, allow_input_required=True)
    assert isinstance(question, mcp_types.InputRequiredResult)
    assert question.input_requests is not None
    (name,) = question.input_requests
    answer = {name: mcp_types.ElicitResult(action="accept", content={"outcome": "approve"})}

    async with server_here(tmp_path, elicitation_callback=answering()[0]) as call:

        async def second_round(arguments: dict[str, Any], state: str | None) -> Any:
            return await call.client.session.call_tool(
                "fastroai_step_done",
                arguments,
                input_responses=answer,
                request_state=state,
                allow_input_required=True,
            )

        state = question.request_state
        assert state is not None
        forged = state[:-2] + ("AA" if state[-2:] != "AA" else "BB")
        for arguments, sealed in ((done, forged), ({**done, "result": {}}, state)):
            with pytest.raises(MCPError, match="Invalid or expired requestState"):
                await second_round(arguments, sealed)
        assert (await call("audit", flow_id=flow))["status"] == "in_progress"
        end = await second_round(done, state)
        assert end.structured_content["status"] == "complete"
