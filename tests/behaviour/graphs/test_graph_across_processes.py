"""Runs of graphs in several processes: paused, cancelled, answered and resumed from outside."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from support.graph_processes import GRAPHS, Approval, Call, Elsewhere, Place
from support.patience import PATIENCE
from support.stored_runs import raw_log

from fastroai.errors import RevisionConflict, RunInProgress, RunNotFound, RunStatusConflict
from fastroai.store.record.headers import decode_header, encode_header, header_key


@pytest.fixture(scope="module")
def elsewhere() -> Elsewhere:
    return Elsewhere()


@pytest.fixture(params=["sqlite"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    name = f"test_{uuid.uuid4().hex}"
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        yield Place("redis", url, name, tmp_path)
        with redis.Redis.from_url(url) as client:
            client.delete(*client.keys(f"{{{name}}}*"), b"none")
    elif request.param == "postgres":
        dsn = request.getfixturevalue("postgres_dsn")
        yield Place("postgres", dsn, name, tmp_path)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())
    else:
        yield Place("sqlite", str(tmp_path / "runs.db"), name, tmp_path)


@pytest.fixture
async def store(place: Place) -> AsyncIterator[Any]:
    opened = place.open()
    yield opened
    await opened.aclose()


everywhere = pytest.mark.parametrize("place", ["sqlite", "redis", "postgres"], indirect=True)


@everywhere
async def test_a_run_is_paused_from_another_process_and_resumed_in_a_third(
    elsewhere: Elsewhere, place: Place, store: Any
) -> None:
    running = elsewhere.start(Call(place, "ticking", "run", "r"))
    await place.noted("tick 2")
    await GRAPHS["ticking"](place).pause("r", store=store)
    paused = await running.outcome()
    assert (paused["status"], paused["resume_at"]) == ("paused", ("tick",))
    turns = [note for note in place.notes() if note.startswith("tick")]
    assert len(turns) == paused["memory"]["turn"] == paused["visits"]["tick"]
    place.let("end")
    ended = await elsewhere.perform(Call(place, "ticking", "resume", "r"))
    assert (ended["status"], ended["output"]) == ("finished", len(turns) + 1)
    assert place.notes() == [f"tick {number}" for number in range(1, len(turns) + 2)] + ["end"]


async def test_a_run_is_cancelled_from_another_process_keeps_its_partial_work_and_goes_on_in_a_third(
    elsewhere: Elsewhere, place: Place, store: Any
) -> None:
    running = elsewhere.start(Call(place, "hanging", "run", "r"))
    await place.noted("hang")
    await on_record(store, "step_finished", "quick")
    assert await elsewhere.perform(Call(place, "hanging", "cancel", "r")) == {}
    cancelled = await running.outcome()
    assert (cancelled["status"], cancelled["path"]) == (
        "cancelled",
        ["top", {"hang": ["hang"], "quick": ["quick"]}],
    )
    assert cancelled["memory"] == {"top": "top", "partial": "by attempt 1", "quick": "quick"}
    place.let("go on")
    ended = await elsewhere.perform(Call(place, "hanging", "resume", "r"))
    assert (ended["status"], ended["output"]) == ("finished", "hung quick")
    assert place.notes() == ["top", "hang", "quick", "hang", "end"]


async def test_a_run_that_another_process_has_is_not_resumed(
    elsewhere: Elsewhere, place: Place, store: Any
) -> None:
    graph = GRAPHS["hanging"](place)
    running = elsewhere.start(Call(place, "hanging", "run", "r"))
    await place.noted("hang")
    with pytest.raises(RunInProgress):
        await graph.resume("r", store=store)
    running.kill()
    place.let("go on")
    assert (await graph.resume("r", store=store)).output == "hung quick"
    assert place.notes().count("top") == 1
    with pytest.raises(RunStatusConflict, match="is finished"):
        await graph.pause("r", store=store)
    with pytest.raises(RunNotFound):
        await graph.cancel("another", store=store)
    with pytest.raises(RunNotFound, match="this process does not run"):
        await graph.cancel("r2")


@everywhere
async def test_a_question_outlives_its_process_and_its_lease_and_is_answered_in_another(
    elsewhere: Elsewhere, place: Place, store: Any
) -> None:
    asked = elsewhere.start(Call(place, "asking", "run", "r", {"what": "it"}))
    await on_record(store, "question_asked", "ask")
    await place.noted("work")
    asked.kill()
    await expire_lease(store, "r")
    place.let("go on")
    paused = await elsewhere.perform(Call(place, "asking", "resume", "r"))
    assert (paused["status"], paused["resume_at"]) == ("paused", ("ask",))
    question = {"question": "approve it?"}
    assert paused["questions"] == [("ask", question, Approval.model_json_schema())]
    answer = {"input": {"approved": True, "by": "the boss"}}
    ended = await elsewhere.perform(Call(place, "asking", "resume", "r", answer))
    assert (ended["status"], ended["output"]) == ("finished", "True by the boss, worked")
    assert sorted(place.notes()) == ["ask", "end the boss", "top", "work", "work"]


async def test_a_question_is_answered_while_another_branch_goes_on_anew(
    elsewhere: Elsewhere, place: Place, store: Any
) -> None:
    asked = elsewhere.start(Call(place, "asking", "run", "r", {"what": "it"}))
    await on_record(store, "question_asked", "ask")
    await place.noted("work")
    asked.kill()
    place.let("go on")
    ended = await GRAPHS["asking"](place).resume("r", input=Approval(approved=False), store=store)
    assert ended.output == "False by somebody, worked"


async def test_of_two_processes_that_answer_at_once_one_wins_and_the_other_is_told(
    elsewhere: Elsewhere, place: Place
) -> None:
    place.let("go on")
    told: set[str] = set()
    for number in range(4):
        run_id = f"r{number}"
        await elsewhere.perform(Call(place, "asking", "run", run_id, {"what": "it"}))
        at = time.monotonic() + 0.3
        both = [
            elsewhere.start(
                Call(place, "asking", "resume", run_id, {"input": {"approved": True, "by": by}}, at)
            )
            for by in ("one", "two")
        ]
        outcomes = [await one.outcome() for one in both]
        won = [one["output"].split()[2].rstrip(",") for one in outcomes if "error" not in one]
        assert len(won) == 1, outcomes
        assert [note for note in place.notes() if note.startswith("end")][number:] == [f"end {won[0]}"]
        told |= {f"{one['error']}: {one['says']}" for one in outcomes if "error" in one}
    for one in told:
        assert one.startswith("RunInProgress") or "does not wait for an answer" in one


async def on_record(store: Any, kind: str, node: str) -> None:
    """Wait until this is stored of a node."""
    kind_of, of_node = f'"kind":"{kind}"'.encode(), f'"step_id":"{node}"'.encode()
    deadline = time.monotonic() + PATIENCE
    while not any(kind_of in entry and of_node in entry for entry in await raw_log(store, "r")):
        assert time.monotonic() < deadline, "it was never stored"
        await asyncio.sleep(0.01)


async def expire_lease(store: Any, run_id: str) -> None:
    """As if its process had been on another machine, and two days had gone."""
    is_written = False
    while not is_written:
        found = await store.read(header_key(run_id))
        header = decode_header(run_id, found.values[-1])
        assert header.owner is not None
        lent = replace(
            header, owner=header.owner.replace("(", "(elsewhere-"), lease_until=found.now - timedelta(days=2)
        )
        with suppress(RevisionConflict):  # the last words of the dead process have just come to the server
            await store.compare_and_set(header_key(run_id), encode_header(lent), revision=found.revision)
            is_written = True
