"""Provider limits and circuit breakers that processes share, by the books of the server that they ask."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from support.limited_worker import asking, limited_agent
from support.patience import PATIENCE

from fastroai.errors import (
    CircuitOpenError,
    ConfigurationError,
    RunStoreUnavailable,
    StepExecutionError,
    StoreUnavailable,
)
from fastroai.pipelines import Pipeline
from fastroai.runtime import CircuitBreaker, ProviderLimit
from fastroai.runtime.providers import shared_queue
from fastroai.runtime.providers.provider_line import Ticket
from fastroai.runtime.providers.provider_queue import Waiting
from fastroai.steps import PipelineConfig, StepContext, step
from fastroai.store import MemoryRunStore, StoredValues
from fastroai.testing import Fault, ModelServer, Reply

LATENCY = 0.2
PROCESSES = 3


@pytest.fixture
def environment(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Where the models are, here and in other processes."""
    variables = dict(server.environment())
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that processes share."""
    if request.param == "sqlite":
        return str(tmp_path / "limits.db")
    dsn: str = request.getfixturevalue("postgres_dsn")
    return dsn


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


def least_gap(times: Iterable[float], most: int) -> float:
    """The least seconds in which there was one more than `most`."""
    came = sorted(times)
    return min(later - earlier for earlier, later in zip(came, came[most:], strict=False))


def arrivals(server: ModelServer) -> list[float]:
    return [entry.started.timestamp() for entry in server.ledger.entries]


def test_processes_have_no_more_requests_out_than_their_limit(
    server: ModelServer, environment: dict[str, str], place: str, key: str
) -> None:
    server.rule(None, Reply("ok", latency=LATENCY))
    workers = [asking(place, environment, 6, max_concurrency=2, key=key) for _ in range(PROCESSES)]
    assert [worker.wait(PATIENCE) for worker in workers] == [0] * PROCESSES
    assert server.ledger.totals().requests == 6 * PROCESSES
    assert least_gap(arrivals(server), 2) >= 0.9 * LATENCY


def test_processes_send_no_more_in_any_minute_than_their_limit(
    server: ModelServer, environment: dict[str, str], place: str, key: str, tmp_path: Path
) -> None:
    """By the times at which they are let go: on their way, a busy machine can bring them closer together."""
    notes, minute = tmp_path / "notes", 1.0
    limits: dict[str, Any] = {"minute": minute, "notes": str(notes), "requests_per_minute": 4, "key": key}
    workers = [asking(place, environment, 5, **limits) for _ in range(2)]
    assert [worker.wait(PATIENCE) for worker in workers] == [0, 0]
    assert server.ledger.totals().requests == 10
    assert least_gap(map(float, notes.read_text().split()), 4) >= 0.95 * minute


async def test_the_slot_of_a_process_that_is_killed_is_free_again(
    server: ModelServer, environment: dict[str, str], place: str, key: str
) -> None:
    """On the same machine at once; elsewhere when its lease is over, which the properties hold."""
    server.script(Reply("late", latency=2 * PATIENCE), *[Reply("ok")] * 5)
    worker = asking(place, environment, 3, max_concurrency=1, key=key, lease=2 * PATIENCE)
    await server.ledger.wait_for(1)
    call = asyncio.ensure_future(
        limited_agent(ProviderLimit(store=place, key=key, max_concurrency=1, lease=2 * PATIENCE)).run("next")
    )
    await asyncio.sleep(0.2)
    assert len(server.ledger.entries) == 1
    worker.kill()
    worker.wait(PATIENCE)
    async with asyncio.timeout(PATIENCE):
        await call


async def test_a_circuit_that_one_process_opens_stops_the_others_until_a_probe_is_answered(
    server: ModelServer, environment: dict[str, str], place: str, key: str
) -> None:
    options: dict[str, Any] = {"failures": 2, "window": PATIENCE, "cooldown": 1.5, "store": place, "key": key}
    limits = [ProviderLimit(circuit_breaker=CircuitBreaker(**options)) for _ in range(2)]
    agents = [limited_agent(limit) for limit in limits]
    server.fail_next(2, Fault.status(500))
    for agent in agents:
        with pytest.raises(ModelHTTPError):
            await agent.run("fails")
    breakers = [limit.circuit_breaker for limit in limits]
    while not any(breaker.state == "open" for breaker in breakers if breaker):
        await asyncio.sleep(0.01)
    for agent in agents:
        with pytest.raises(CircuitOpenError, match="500"):
            await agent.run("is not sent")
    worker = asking(place, environment, 2, key=key, circuit_breaker=options)
    await asyncio.sleep(1.5)
    async with asyncio.timeout(PATIENCE):
        refused = True
        while refused:  # the other process may have the probe
            answers = await asyncio.gather(*(agent.run("probe") for agent in agents), return_exceptions=True)
            refused = all(isinstance(answer, CircuitOpenError) for answer in answers)
    assert any(not isinstance(answer, Exception) for answer in answers)
    assert worker.wait(PATIENCE) == 0


async def test_retry_after_holds_back_other_processes_and_money_is_not_held_meanwhile(
    server: ModelServer, environment: dict[str, str], place: str, key: str
) -> None:
    first, second = (ProviderLimit(store=place, key=key, max_concurrency=4) for _ in range(2))
    server.fail_next(1, Fault.status(429, retry_after=1.0))
    with pytest.raises(ModelHTTPError):
        await limited_agent(first).run("refused")
    async with asyncio.timeout(PATIENCE):
        while not first.status("openai").held_back_for:  # the others are told in the background
            await asyncio.sleep(0.01)
    await limited_agent(second).run("held back")
    refused, held_back = server.ledger.entries
    assert (held_back.started - refused.started).total_seconds() > 0.9


async def test_requests_that_are_cancelled_give_their_places_back(
    server: ModelServer, environment: dict[str, str]
) -> None:
    store = MemoryRunStore()
    limits = [ProviderLimit(store=store, max_concurrency=1) for _ in range(2)]
    server.script(Reply("late", latency=2 * PATIENCE), *[Reply("ok")] * 5)
    calls = [asyncio.ensure_future(limited_agent(limits[number % 2]).run(f"{number}")) for number in range(4)]
    await server.ledger.wait_for(1)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    async with asyncio.timeout(PATIENCE):
        await limited_agent(limits[1]).run("next")


class Away(MemoryRunStore):
    """A store that can be away."""

    is_away = True

    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        if self.is_away:
            raise RunStoreUnavailable("Away", "it is away")
        return await super().read(key, after=after)


@pytest.mark.usefixtures("environment")
async def test_without_their_store_requests_are_refused_or_kept_by_each_process_alone(
    server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    store = Away()
    breaker = CircuitBreaker()
    refusing = ProviderLimit(store=store, max_concurrency=1, circuit_breaker=breaker)
    with pytest.raises(StoreUnavailable, match="on_unavailable='allow'"):
        await limited_agent(refusing).run("refused")
    assert not server.ledger.entries
    allowing = ProviderLimit(
        store=store, max_concurrency=1, circuit_breaker=CircuitBreaker(), on_unavailable="allow"
    )
    server.rule(None, Reply("ok", latency=0.05))
    with caplog.at_level(logging.WARNING, "fastroai.runtime"):
        await asyncio.gather(*(limited_agent(allowing).run(f"{number}") for number in range(3)))
    assert least_gap(arrivals(server), 1) >= 0.9 * 0.05
    assert "kept by this process alone" in caplog.text
    store.is_away = False
    async with asyncio.timeout(PATIENCE):
        await limited_agent(refusing).run("now")


async def test_a_turn_is_over_when_the_process_was_silent_for_its_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a suspension: the request waits again, because others may have gone since."""
    queue = ProviderLimit(store=MemoryRunStore(), max_concurrency=1, lease=30.0).queue("openai")
    ticket = Ticket(1)
    await queue.wait_turn(ticket, Waiting(lambda: None, lambda wake: nullcontext(), nullcontext))
    now = shared_queue.steady_seconds()
    monkeypatch.setattr(shared_queue, "steady_seconds", lambda: now + 31.0)
    assert not queue.send(ticket)
    monkeypatch.undo()
    queue.give_back(ticket)


@pytest.mark.usefixtures("environment")
async def test_two_limits_of_one_store_and_key_are_one_and_must_have_the_same_numbers(
    server: ModelServer,
) -> None:
    store = MemoryRunStore()
    one, same, other = (ProviderLimit(store=store, max_concurrency=most) for most in (1, 1, 2))

    @step
    async def ask(ctx: StepContext[None]) -> str:
        return (await ctx.run(limited_agent(one), "hello")).output

    def pipeline(limit: ProviderLimit) -> Pipeline[Any, Any, Any]:
        return Pipeline("p", {"ask": ask}, config=PipelineConfig(provider_limits={"openai": limit}))

    await pipeline(same).execute()
    with pytest.raises(StepExecutionError, match="a key of its own") as failed:
        await pipeline(other).execute()
    assert isinstance(failed.value.__cause__, ConfigurationError)


@pytest.mark.parametrize(
    "option", [{"key": ""}, {"on_unavailable": "hope"}, {"lease": 0}, {"lease": 1e9}, {"store": 5}]
)
def test_invalid_options_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(option))):
        ProviderLimit(max_concurrency=1, **option)


def test_limits_of_one_key_in_two_stores_have_one_order_in_all_processes(tmp_path: Path) -> None:
    """Otherwise, two requests under both could wait for each other."""
    paths = [tmp_path / "a.db", tmp_path / "b.db"]
    for made in (paths, paths[::-1]):
        limits = {path: ProviderLimit(max_concurrency=1, store=path) for path in made}
        assert sorted(paths, key=lambda path: limits[path].order) == paths
