"""Clients that leave and come back at random, two processes, one of which is killed and one told to end.

`FASTROAI_WEB_RUNS=200` for more runs: `make web-soak`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.accounting import check_account
from support.fork_server import UvicornProcess
from support.patience import PATIENCE

from fastroai.store import RunHistory, open_run_store
from fastroai.testing import ModelServer, Reply, ServedRequest

ROOT = Path(__file__).parents[2]
SOAKS = "FASTROAI_WEB_RUNS" in os.environ
RUNS = int(os.environ.get("FASTROAI_WEB_RUNS", "4"))

pytestmark = pytest.mark.slow


class Worker:
    """A process of uvicorn, which can be ended and begun again at the same address."""

    def __init__(self, store: str, server: ModelServer, log: Path) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/essays"
        self._environment = {**server.environment(), "SERVICE_STORE": store}
        self._log = log
        self.begin()

    def begin(self) -> None:
        self.process = UvicornProcess(
            self._listener,
            *("web.service:app", "--timeout-graceful-shutdown", "10", "--log-level", "warning"),
            folder=ROOT,
            environment=self._environment,
            log=self._log,
        )

    def close(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        self._listener.close()


class Client:
    """A client that begins a run and follows it to its end, through whatever happens."""

    def __init__(self, workers: list[Worker], run_id: str, chance: random.Random) -> None:
        self.run_id, self._workers, self._chance = run_id, workers, chance
        self.facts: list[int] = []
        self.draft = ""
        self.state: dict[str, Any] = {}
        self.connections = 0

    async def follow(self, http: httpx2.AsyncClient) -> None:
        while not self.state:
            try:
                await self._begin(http)
                async with aclosing(self._events(http)) as events:
                    async for name, number, data in events:
                        self._take(name, number, data)
            except httpx2.TransportError:
                await asyncio.sleep(0.1)

    async def _begin(self, http: httpx2.AsyncClient) -> None:
        url = f"{self._chance.choice(self._workers).url}/runs/{self.run_id}"
        response = await http.put(url, json={"topic": self.run_id})
        assert response.status_code in (200, 202, 409, 503), response.text

    async def _events(self, http: httpx2.AsyncClient) -> AsyncGenerator[tuple[str, int | None, Any]]:
        """Read events until the client leaves, at a random moment."""
        self.connections += 1
        url = f"{self._chance.choice(self._workers).url}/runs/{self.run_id}/events"
        headers = {"Last-Event-ID": str(self.facts[-1])} if self.facts else {}
        leaves_after = self._chance.uniform(0.05, 2)
        fields: dict[str, str] = {}
        try:
            async with asyncio.timeout(leaves_after), http.stream("GET", url, headers=headers) as response:
                if response.status_code == 204:  # the client left between the last fact and the state
                    state = await http.get(url.removesuffix("/events"))
                    yield "state", None, state.json()
                    return
                assert response.status_code in (200, 404, 503), response.status_code
                async for line in response.aiter_lines():
                    name, _, value = line.partition(": ")
                    if line:
                        fields[name] = value
                    elif "data" in fields:
                        number = int(fields["id"]) if "id" in fields else None
                        yield fields["event"], number, json.loads(fields["data"])
                        fields = {}
        except TimeoutError:
            return

    def _take(self, name: str, number: int | None, data: Any) -> None:
        if name == "fact":
            assert number is not None
            self.facts.append(number)
        elif name == "text":
            self.draft = self.draft[: data["at"]] + data["text"]
        elif name == "state" and data["status"] in ("finished", "failed", "cancelled"):
            self.state = data


def answer(request: ServedRequest) -> Reply:
    words = " ".join(f"{request.prompt.split()[-1]}-{number}" for number in range(12))
    return Reply(words if request.prompt.startswith("write") else request.prompt[8:], chunk_delay=0.02)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"] if SOAKS else ["sqlite"])
async def test_every_client_sees_every_event_once(
    kind: str, tmp_path: Path, model_server: ModelServer, request: pytest.FixtureRequest
) -> None:
    place = str(tmp_path / "runs.db") if kind == "sqlite" else request.getfixturevalue("postgres_dsn")
    model_server.rule(None, answer)
    chance = random.Random(7)
    workers = [Worker(place, model_server, tmp_path / f"log-{number}") for number in range(2)]
    clients = [Client(workers, f"e{number}", random.Random(number)) for number in range(RUNS)]
    store = open_run_store(place)
    try:
        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False, limits=limits) as http:
            async with asyncio.timeout(PATIENCE + RUNS), asyncio.TaskGroup() as tasks:
                for client in clients:
                    tasks.create_task(client.follow(http))
                    await asyncio.sleep(chance.uniform(0, 0.1))
                await asyncio.to_thread(end_both, workers, RUNS, model_server)
            assert all(client.state["output"].startswith(client.run_id) for client in clients)
            for client in clients:
                whole = Client(workers, client.run_id, random.Random(1))
                while not whole.state:
                    whole = Client(workers, client.run_id, chance)
                    await whole.follow(http)
                assert client.facts == sorted(set(client.facts))
                assert client.facts == whole.facts
        records = [
            record for client in clients for record in (await RunHistory(store).trace(client.run_id)).records
        ]
        check_account(records, model_server)
    finally:
        for worker in workers:
            worker.close()
        await store.aclose()


def end_both(workers: list[Worker], runs: int, server: ModelServer) -> None:
    """Kill one process when a third of the requests has come, and tell the other to end at two thirds."""
    first, second = workers
    server.ledger.wait_for_sync(max(1, 2 * runs // 3), timeout=PATIENCE)
    first.process.kill()
    first.process.wait(PATIENCE)
    first.begin()
    server.ledger.wait_for_sync(max(1, 4 * runs // 3), timeout=PATIENCE)
    second.process.send_signal(signal.SIGTERM)
    second.process.wait(PATIENCE)
    second.begin()
