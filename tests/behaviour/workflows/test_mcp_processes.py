"""Several server processes on one store: races, and processes that are killed between calls and in them."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from support.patience import PATIENCE
from support.workflow_servers import ForkedServer, Tools
from support.workflow_specs import ARTICLE, DRAFT

pytestmark = pytest.mark.slow


async def test_of_two_processes_that_report_one_step_only_one_goes_on(
    tmp_path: Path,
) -> None:
    async with ForkedServer(tmp_path).tools() as one, ForkedServer(tmp_path).tools() as two:
        flows = [(await one("plan", spec=ARTICLE, inputs={"topic": "tides"}))["flow_id"] for _ in range(20)]
        for flow in flows:

            async def report_words(call: Tools, words: int, flow: str = flow) -> str:
                result = {"text": "Tides.", "words": words}
                answer = await call("step_done", flow_id=flow, step_id="draft", result=result)
                return str(answer.get("error_type", answer["status"]))

            told = await asyncio.gather(report_words(one, 4), report_words(two, 5))
            lost = [answer for answer in told if answer != "await_gate"]
            assert len(lost) == 1, told
            assert lost[0] in {"conflict", "step_not_due", "gate_step_requires_gate_resolve"}, told
            audits = [await call("audit", flow_id=flow) for call in (one, two)]
            assert audits[0] == audits[1]
            (draft, _) = audits[0]["trace"]
            assert draft["attempts"] == 1, "the one that lost has not used up an attempt"


async def test_two_processes_drive_one_flow_in_turns(tmp_path: Path) -> None:
    async with ForkedServer(tmp_path).tools() as one, ForkedServer(tmp_path).tools() as two:
        flow = (await one("plan", spec=ARTICLE, inputs={"topic": "tides"}))["flow_id"]
        failed = await two("step_done", flow_id=flow, step_id="draft", result={"text": "Tides.", "words": 1})
        assert failed["status"] == "ensure_failed"
        assert (await one("resume", flow_id=flow))["attempt"] == 2
        await one("commit", flow_id=flow, label="second")
        assert (await one("step_done", flow_id=flow, step_id="draft", result=DRAFT))["status"] == "await_gate"
        back = await two("revert", flow_id=flow, label="second")
        assert (back["step_id"], back["attempt"], back["reverted_to"]) == ("draft", 2, "second")
        assert (await one("step_done", flow_id=flow, step_id="draft", result=DRAFT))["status"] == "await_gate"
        end = await two("gate_resolve", flow_id=flow, step_id="ship", outcome="kill")
        assert end["status"] == "killed"
        assert (await one("resume", flow_id=flow))["status"] == "killed"


async def report(server: ForkedServer, flow: str, ready: asyncio.Event) -> None:
    async with server.tools() as call:
        await call("resume", flow_id=flow)
        ready.set()
        await call("step_done", flow_id=flow, step_id="draft", result=DRAFT)


async def test_a_call_in_which_the_process_is_killed_is_on_record_as_a_whole_or_not_at_all(
    tmp_path: Path,
) -> None:
    at_random = random.Random(7)
    seen = set()
    async with ForkedServer(tmp_path).tools() as watching:
        for _ in range(12):
            flow = (await watching("plan", spec=ARTICLE, inputs={"topic": "tides"}))["flow_id"]
            server, ready = ForkedServer(tmp_path), asyncio.Event()
            reporting = asyncio.create_task(report(server, flow, ready))
            await asyncio.wait_for(ready.wait(), PATIENCE)
            await asyncio.sleep(at_random.uniform(0, 0.03))
            await asyncio.to_thread(server.kill)
            reporting.cancel()
            await asyncio.wait([reporting])
            due = await watching("resume", flow_id=flow)
            if due["status"] == "execute_step":
                assert due["attempt"] == 1
                due = await watching("step_done", flow_id=flow, step_id="draft", result=DRAFT)
                seen.add("before")
            else:
                seen.add("after")
            assert due["status"] == "await_gate"
    assert seen
