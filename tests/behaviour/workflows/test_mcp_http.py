"""Several clients of one server, over streamable HTTP."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from mcp.client.client import Client
from support.workflow_servers import Tools, answering, http_server
from support.workflow_specs import ARTICLE, DRAFT

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_clients_drive_flows_over_http_and_are_asked_at_gates(tmp_path: Path, mode: str) -> None:
    user, asked = answering(("accept", {"outcome": "approve"}))
    async with (
        http_server(tmp_path) as url,
        Client(url, mode=mode, elicitation_callback=user) as first,
        Client(url, mode=mode) as second,
    ):
        flow = (await Tools(first)("plan", spec=ARTICLE, inputs={"topic": "tides"}))["flow_id"]
        assert (await Tools(second)("resume", flow_id=flow))["step_id"] == "draft"
        end = await Tools(first)("step_done", flow_id=flow, step_id="draft", result=DRAFT)
        assert end["status"] == "complete"
        assert len(asked) == 1
        audit = await Tools(second)("audit", flow_id=flow)
    assert (audit["status"], audit["trace"][-1]["resolved_by"]) == ("complete", "agent")


async def test_calls_by_other_names_or_from_other_pages_are_refused(tmp_path: Path) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    kinds = {"accept": "application/json, text/event-stream"}
    async with http_server(tmp_path) as url, httpx2.AsyncClient() as browser:
        for header, expected in (
            ({"host": "rebound.example"}, 421),
            ({"origin": "https://elsewhere.example"}, 403),
            ({"origin": "http://127.0.0.1.elsewhere.example"}, 403),
        ):
            answer = await browser.post(url, json=call, headers={**kinds, **header})
            assert answer.status_code == expected, header
        large = await browser.post(
            url, content=b" " * 5_000_000, headers={"content-type": "application/json"}
        )
        assert large.status_code == 413


async def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    async with http_server(tmp_path) as url:
        taken = url.removeprefix("http://").removesuffix("/mcp")
        with pytest.raises(
            AssertionError, match="expected a free address of this machine \\(Address already in use"
        ):
            async with http_server(tmp_path, "--http", taken):
                pass
