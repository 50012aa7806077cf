"""The client in JavaScript, in Node.js as it comes with Playwright: it needs nothing but `fetch`."""

from __future__ import annotations

import asyncio
import json
import shutil
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import playwright
import uvicorn
from support.patience import PATIENCE
from web.conftest import Desk, fastapi_app, letters, serving

from fastroai.web import RunsHost

CLIENT = Path(__file__).parents[2] / "fastroai/web/client.js"
SCRIPT = """
import { ProblemError, RunsClient } from %(client)s;
const say = (value) => console.log(JSON.stringify(value));
const letters = new RunsClient(%(base)s, { headers: { "x-tenant": "ada" } });
const refused = await letters.start({ txt: "hello" }).catch((error) => error);
say([refused instanceof ProblemError, refused.status, refused.code, refused.message]);
const run = await letters.start({ text: "hello" }, { id: "l1" });
for await (const event of letters.events(run.id)) {
  if (event.type === "fact") say([event.id, event.data.kind, event.data.step_id ?? null]);
  if (event.type === "state") say([event.data.status, event.data.output]);
}
const asked = await letters.start({ text: "doubtful" }, { id: "l2", wait: 30 });
await letters.answer("l2", { question: asked.questions[0].key, value: true, reviewer: "Mia" });
say((await letters.read("l2", { wait: 30 })).output);
say((await letters.list({ sort: "started", ascending: true })).runs.map((one) => one.id));
"""


def node() -> str:
    with_playwright = Path(playwright.__file__).parent / "driver" / "node"
    return str(with_playwright) if with_playwright.exists() else shutil.which("node") or "node"


async def test_it_follows_a_run_from_one_process_to_the_next(desk: Desk, tmp_path: Path) -> None:
    """No fact is missed and none comes twice, though the server ends in the middle and another begins."""
    desk.may_write.clear()
    port: list[int] = []

    async def serve(until: asyncio.Event) -> None:
        host = RunsHost(letters(desk, tmp_path / "runs.db"), every=0.05)
        config = uvicorn.Config(fastapi_app(host), port=port[0] if port else 0, log_level="error")
        server = uvicorn.Server(config)
        served = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port[:] = [server.servers[0].sockets[0].getsockname()[1]]
        begun.set()
        await until.wait()
        server.should_exit = True
        await served

    begun, first_ends, second_ends = asyncio.Event(), asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(serve(first_ends))
    await begun.wait()
    script = tmp_path / "client.mjs"
    base = json.dumps(f"http://127.0.0.1:{port[0]}/letters")
    script.write_text(SCRIPT % {"client": json.dumps(CLIENT.as_uri()), "base": base})
    process = await asyncio.create_subprocess_exec(node(), str(script), stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    said: list[Any] = []
    async with asyncio.timeout(PATIENCE):
        while not said or said[-1][-1] != "write":
            said.append(json.loads(await process.stdout.readline()))
        asyncio.get_running_loop().call_later(0.5, desk.may_write.set)
        first_ends.set()
        await first
        begun.clear()
        second = asyncio.create_task(serve(second_ends))
        await begun.wait()
        out, errors = await process.communicate()
    second_ends.set()
    await second
    assert errors == b""
    said += [json.loads(line) for line in out.splitlines()]

    refused, *facts = said[:-2]
    assert refused == [True, 422, "invalid-input", "/text: Field required"]
    state = facts.pop()
    assert state == ["finished", "HELLO x1"]
    positions = [fact[0] for fact in facts]
    assert positions == list(range(1, positions[-1] + 1))
    assert [fact[1] for fact in facts].count("run_started") == 1
    assert said[-2:] == ["DOUBTFUL x1", ["l1", "l2"]]


ABORTED = """
import { RunsClient } from %(client)s;
const letters = new RunsClient(%(base)s);
await letters.start({ text: "hello" }, { id: "l1", wait: 30 });
const leaves = new AbortController();
const seen = [];
for await (const event of letters.events("l1", { signal: leaves.signal })) {
  seen.push(event.id);
  leaves.abort();
}
console.log(JSON.stringify(seen));
"""


async def test_nothing_is_told_after_its_signal_is_aborted(host: RunsHost[None], tmp_path: Path) -> None:
    async with serving(fastapi_app(host)) as http:
        script = tmp_path / "client.mjs"
        base = json.dumps(f"{http.base_url}/letters".replace("//letters", "/letters"))
        script.write_text(ABORTED % {"client": json.dumps(CLIENT.as_uri()), "base": base})
        process = await asyncio.create_subprocess_exec(node(), str(script), stdout=PIPE, stderr=PIPE)
        out, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert (json.loads(out), errors) == ([1], b"")
