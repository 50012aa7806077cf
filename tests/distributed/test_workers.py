"""What workers do with runs, one worker in the process of the test."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.carried import Notes, application, doors

from fastroai import Budget, FastroAgent, Pipeline, PipelineConfig, SpendLimit
from fastroai.distributed import Client, Distributed, QueueOptions, RunStopped
from fastroai.distributed.engine import EngineClient, places_of
from fastroai.distributed.reconciling import Reconciler
from fastroai.distributed.roster import Roster
from fastroai.errors import (
    ConfigurationError,
    ContractViolation,
    QuestionClosed,
    RunExists,
    RunStatusConflict,
    RunStoreUnavailable,
)
from fastroai.store import RunHistory
from fastroai.store.record.headers import read_header

FAST: Any = {"every": 0.05, "graceful_timeout": 1.0}


async def test_a_run_that_is_started_here_gives_what_execute_gives(app: Distributed) -> None:
    async with app.worker(**FAST):
        handle = await app.start("work", {"number": 2}, tenant="acme", tags=["urgent"])
        result = await handle.result()
    assert (result.output, result.status, result.run_id) == ("acme/2:4", "finished", handle.run_id)
    (run,) = (await app.list()).items
    assert (run.tags, run.tenant, run.queue) == (("urgent",), "acme", "default")


async def test_a_client_needs_no_code(app: Distributed, url: str) -> None:
    async with app.worker(**FAST), Client(url, name=app.app) as client:
        with pytest.raises(ConfigurationError, match="Did you mean 'work'"):
            await client.start("wrok")
        with pytest.raises(ContractViolation, match="number is of the type string"):
            await client.start("work", {"number": "two"})
        handle = await client.start("work", {"number": 2}, tenant="acme", budget=Budget(usd=1))
        state = await handle.wait()
        assert state.outputs["third"] == "acme/2:4"
        with pytest.raises(ConfigurationError, match="a call where 'work' is registered"):
            await handle.result()


async def test_a_client_finds_the_only_application(app: Distributed, url: str) -> None:
    async with Client(url) as client:
        with pytest.raises(ConfigurationError, match="a name: no worker has started"):
            await client.start("work", {"number": 2})
        async with app.worker(**FAST):
            handle = await client.start("people", {"number": 2})
            (asked,) = (await handle.wait()).questions
            await client.handle(handle.run_id).answer(asked.id, True)
            assert (await handle.wait()).outputs["naps"] == "rested"
        async with application(url, "second-app") as second:
            async with second.worker(**FAST):
                pass
            async with Client(url) as other:
                with pytest.raises(ConfigurationError, match=f"one of {app.app}, second-app"):
                    await other.start("work", {"number": 2})


async def test_a_run_waits_for_a_worker_and_says_why(app: Distributed) -> None:
    handle = await app.start("work", {"number": 1})
    standing = await handle.status()
    assert (standing.status, standing.reason) == (
        "queued",
        "no running worker takes runs from queue 'default'",
    )
    assert (await handle.state()).status == "queued"
    with pytest.raises(RunExists):
        await app.start("work", {"number": 2}, run_id=handle.run_id)
    async with app.worker(**FAST):
        assert (await handle.result()).output == "None/1:2"


async def test_an_answer_lets_a_worker_go_on(app: Distributed) -> None:
    async with app.worker(**FAST):
        handle = await app.start("people", {"number": 1})
        with pytest.raises(RunStopped, match="it waits for the answer to") as stopped:
            await handle.result()
        (asked,) = stopped.value.questions
        await handle.answer(asked.id, True)
        assert (await handle.result()).output == "rested"
        assert (await handle.status()).stretch == 2  # from the start, and from the answer


async def test_the_handle_of_a_run_answers_no_question_of_another(app: Distributed) -> None:
    async with app.worker(**FAST):
        one, other = await app.start("people", {"number": 1}), await app.start("people", {"number": 2})
        (asked,) = (await other.wait()).questions
        with pytest.raises(QuestionClosed, match=f"run '{one.run_id}' has not asked it"):
            await one.answer(asked.id, True)
        assert (await other.state()).questions == (asked,)


async def test_an_answer_that_nobody_tells_of_is_found(app: Distributed) -> None:
    async with app.worker(**FAST):
        handle = await app.start("people", {"number": 1})
        (asked,) = (await handle.wait()).questions
        await app.inbox.answer(asked.id, True)  # as a process does that knows no workers
        assert (await handle.result()).output == "rested"


async def test_runs_are_cancelled_wherever_they_are(app: Distributed) -> None:
    queued = await app.start("work", {"number": 1})
    await queued.cancel()
    async with app.worker(**FAST):
        running = await app.start("endless")
        while not Notes.ran(running.run_id):
            await asyncio.sleep(0.02)
        await running.cancel()
        assert (await running.wait()).status == "cancelled"
        waiting = await app.start("people", {"number": 1})
        await waiting.wait()
        await waiting.cancel()
        for run in (queued, running, waiting):
            assert (await run.status()).status == "cancelled"
            with pytest.raises(RunStopped):
                await run.result()
    assert not Notes.ran(queued.run_id)


async def test_a_cancelled_run_can_be_resumed_with_other_inputs(app: Distributed) -> None:
    handle = await app.start("work", {"number": 1})
    await handle.cancel()
    await handle.resume(inputs={"number": 5})
    async with app.worker(**FAST):
        assert (await handle.result()).output == "None/5:10"
        with pytest.raises(RunStatusConflict):
            await handle.resume()


async def test_a_run_is_forked_in_its_queue(app: Distributed) -> None:
    async with app.worker(**FAST):
        handle = await app.start("work", {"number": 1})
        await handle.result()
        fork = await handle.fork(outputs={"second": 7})
        assert (await fork.result()).output == "None/1:7"
    assert set(Notes.ran(fork.run_id)) == {"third"}
    assert (await fork.status()).queue == "default"


async def test_a_run_begins_after_its_delay(app: Distributed) -> None:
    async with app.worker(**FAST):
        handle = await app.start("work", {"number": 1}, delay=1.5)
        begun = (await app.history.header(handle.run_id)).started_at
        await handle.result()
        facts = [fact async for _, fact in handle.follow()]
        assert facts[1].at.timestamp() - begun.timestamp() > 1.4


async def test_what_the_queues_would_accept_and_never_run_is_refused(app: Distributed, url: str) -> None:
    app.register_queue("tenants", QueueOptions(partition_concurrency=1))
    with pytest.raises(ConfigurationError, match=r"expected QueueOptions\(...\)"):
        app.register_queue("plain", {"global_concurrency": 1})  # type: ignore[arg-type]
    async with app.worker(queues=["default", "tenants"], **FAST), Client(url, name=app.app) as client:
        for one in (app, client):
            with pytest.raises(ConfigurationError, match="which queue 'tenants' needs"):
                await one.start("work", {"number": 1}, queue="tenants")
            with pytest.raises(ConfigurationError, match="queue 'default' has no partitions"):
                await one.start("work", {"number": 1}, partition="acme")
            with pytest.raises(
                ConfigurationError, match=r"queue='missing': expected one of default, tenants"
            ):
                await one.start("work", {"number": 1}, queue="missing")
            with pytest.raises(ConfigurationError, match="a whole number from 1"):
                await one.start("work", {"number": 1}, priority=0)
            with pytest.raises(ConfigurationError, match="a SpendLimit is code"):
                await one.start("work", {"number": 1}, budget=SpendLimit(usd=1, window="day", key="k"))
        assert (await app.list()).items == ()
        handles = [
            await app.start("work", {"number": 1}, queue="tenants", partition=tenant, priority=1)
            for tenant in ("acme", "globex", "acme")
        ]
        assert {(await one.result()).output for one in handles} == {"None/1:2"}


async def test_what_cannot_be_carried_is_refused(app: Distributed, url: str) -> None:
    with pytest.raises(ConfigurationError, match="another 'work' is registered"):
        app.register(*doors()[:1], deps_factory=lambda run: "")
    for_none = Distributed(url, name="empty-app")
    with pytest.raises(ConfigurationError, match="another 'work' is registered"):
        for_none.register(*doors()[:1], *doors()[:1], deps_factory=lambda run: "")
    with pytest.raises(ConfigurationError, match="at least one pipeline"):
        for_none.worker()
    with pytest.raises(ConfigurationError, match="every=0.*above 0"):
        app.worker(every=0)
    with pytest.raises(ConfigurationError, match="a file of SQLite"):
        Distributed("redis://localhost/0", name="on-redis")
    with pytest.raises(ConfigurationError, match="lower-case letters"):
        Distributed(url, name="No Name")
    away = application("postgresql://localhost:1/none", "away-app")
    with pytest.raises(RunStoreUnavailable):
        await away.start("work", {"number": 1})


async def test_a_run_without_a_tenant_is_refused_where_a_limit_counts_by_tenant(url: str, name: str) -> None:
    by_tenant = PipelineConfig(budget=SpendLimit(usd=1, key="tenant"))
    counted = Pipeline("counted", {"one": FastroAgent("test").as_step("Hello")}, config=by_tenant)
    async with Distributed(url, name=name) as app:
        app.register(counted)
        for starts in (app.start, app.map):
            with pytest.raises(ConfigurationError, match="counts by tenant"):
                await starts(counted, [] if starts == app.map else None)
        with pytest.raises(ConfigurationError, match="counts by tenant"):
            app.schedule("nightly", counted, "0 3 * * *")
        app.schedule("nightly", counted, "0 3 * * *", tenant="acme")
        assert (await app.list()).items == ()


async def test_no_deps_are_made_for_a_flow_which_takes_none(app: Distributed) -> None:
    async with app.worker(every=0.2):
        assert await (await app.start("doubles", {"number": 1})).result() == 6
        assert (await (await app.start("work", {"number": 1})).result()).output == "None/1:2"
    made = [words[1] for words in Notes.read() if words[0] == "deps"]
    assert len(made) == 1  # those of the pipeline


async def test_deps_that_cannot_be_made_are_tried_again_and_told(
    app: Distributed, capfd: pytest.CaptureFixture[str]
) -> None:
    async with app.worker(**FAST):
        handle = await app.start("work", {"number": 1}, tenant="without")
        while "no deps for this tenant" not in (await handle.status()).reason:
            await asyncio.sleep(0.02)
        assert (await handle.status()).status == "queued"
        while len([words for words in Notes.read() if words[0] == "deps"]) < 2:
            await asyncio.sleep(0.05)
    assert not Notes.ran(handle.run_id)
    assert "Traceback" not in capfd.readouterr().err  # of the engine, of what the worker has told in a line


async def test_local_loops_and_workers_leave_the_runs_of_each_other_alone(app: Distributed) -> None:
    queued = await app.start("work", {"number": 1})
    work = next(door for door in doors() if door.name == "work")
    people = next(door for door in doors() if door.name == "people")
    here = await people.execute({"number": 1}, deps="d", store=app.store)
    (asked,) = here.questions
    await app.inbox.answer(asked.id, True)
    assert await work.recover(store=app.store, deps_for=lambda run: "d") == {}
    assert await work.wake(store=app.store, deps_for=lambda run: "d") == {}
    assert (await queued.status()).status == "queued"
    async with app.worker(**FAST):
        await queued.result()
        carried = await app.start("people", {"number": 1})
        (question,) = (await carried.wait()).questions
    await app.inbox.answer(question.id, True)
    woken = await people.wake(store=app.store, deps_for=lambda run: "d")
    assert list(woken) == [here.run_id]
    assert (await RunHistory(app.store).summary(here.run_id)).queue is None


async def test_a_worker_that_ends_hands_its_runs_over(app: Distributed) -> None:
    async with app.worker(**FAST):
        handle = await app.start("endless")
        while not Notes.ran(handle.run_id):
            await asyncio.sleep(0.02)
    found = await read_header(app.store, handle.run_id)
    assert (found.state, found.header.lease_until) == ("interrupted", None)
    async with app.worker(**FAST):
        while Notes.ran(handle.run_id)["waits"] < 2:
            await asyncio.sleep(0.02)
        await handle.cancel()
        await handle.wait()
    routing = (await read_header(app.store, handle.run_id)).header.routing
    assert routing is not None
    assert (routing.deaths, routing.stretch) == (0, 2)


async def test_stretches_of_dead_workers_leave_their_queues_and_those_of_other_applications_stay(
    app: Distributed, url: str
) -> None:
    """A worker that dies between the end of a run and that of its stretch would keep a place for ever."""
    async with app.worker(**FAST):
        await (await app.start("work", {"number": 1})).result()
    engine, others = EngineClient(places_of(url)[1], app.app), EngineClient(places_of(url)[1], "other-app")
    with closing(sqlite3.connect(f"{url}.queues", isolation_level=None)) as rows:
        rows.execute("UPDATE workflow_status SET status = 'PENDING', executor_id = 'dead'")
        await Reconciler(
            app.store,
            others,
            executor="e",
            most_deaths=1,
            is_carried=lambda stretch: False,
            adopts=_adopts_nothing,
            sweep_firings=_adopts_nothing,
        ).sweep(Roster(()))
        assert [row.executor for row in await engine.running(0)] == ["dead"]
    async with app.worker(**FAST):
        while await engine.running(0):
            await asyncio.sleep(0.05)
    await engine.aclose()
    await others.aclose()


async def test_rows_of_stretches_that_are_over_can_be_forgotten(app: Distributed, url: str) -> None:
    async with app.worker(**FAST):
        handle = await app.start("people", {"number": 1})
        (asked,) = (await handle.wait()).questions
        running = await app.start("endless")
        while not Notes.ran(running.run_id):
            await asyncio.sleep(0.02)
        engine = EngineClient(places_of(url)[1], app.app)
        ids = [f"{one}:{(await app.history.header(one)).epoch}:1" for one in (handle.run_id, running.run_id)]
        while (await engine.rows(ids))[ids[0]].state != "over":
            await asyncio.sleep(0.02)
        await engine.forget(datetime.now(UTC) + timedelta(days=1))
        assert [*await engine.rows(ids)] == ids[1:]
        await handle.answer(asked.id, True)
        assert (await handle.result()).output == "rested"
        await running.cancel()
        await running.wait()
        await engine.aclose()


async def _adopts_nothing(found: object) -> Any:
    return None
