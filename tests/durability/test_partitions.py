"""Hosts that are cut off from their store, for a moment or for longer than their leases, and come back.

Hosts and servers are in network namespaces, and the packets between them are lost. A few of these
partitions here; one at every write of a run, and many at random, with `make faults`.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from decimal import Decimal
from typing import Any, Final

import psycopg
import pytest
from durability.fleet import LEASE, LOST_RUN, SOON, TIMEOUT, Contested, Fleet, Host, fleet_in
from durability.shapes import CHAT, MAX_TOKENS
from durability.spending_hosts import ACCOUNT, LIMIT_USD, LINES, SPENDING, open_spend_store
from durability.worker import Moment, Task
from support.accounting import listed_cost
from support.bounds import bound_of
from support.examples import seed_of_choices
from support.namespaces import Lost
from support.patience import PATIENCE

from fastroai.usage import SpendBalance

WHOLE: Final = bool(os.environ.get("FASTROAI_FAULTS"))
"""Whether hosts are cut off at every single write; else at some."""
SEED: Final = seed_of_choices("FASTROAI_FAULTS_SEED", searches=WHOLE)
SHAPES: Final = ("effects", "diamond", "graph_fork_waits") if WHOLE else ("effects",)
MOMENTS: Final[tuple[Moment, ...]] = ("before", "after")
WAYS: Final[tuple[Lost, ...]] = ("all", "requests", "answers")
KINDS: Final = ("redis", "postgres")
CASES: Final = [(kind, shape) for kind in KINDS for shape in SHAPES]
ON_REDIS, ON_POSTGRES = (CASES, CASES) if WHOLE else (CASES[:1], CASES[1:])
SHORT: Final = 0.4 * LEASE
AT_RANDOM: Final = 25 if WHOLE else 1
HEALED: Final = 0.5
"""How probable it is that the network is whole again when nobody has got anywhere for a while."""

pytestmark = [pytest.mark.slow, *([pytest.mark.timeout(0)] if WHOLE else [])]


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet_in(tmp_path_factory.mktemp("fleet")) as started:
        yield started


@pytest.fixture(autouse=True)
def healed(fleet: Fleet) -> None:
    fleet.net.heal()


Cut = tuple[Moment, int, Lost]


def cuts(fleet: Fleet, kind: str, shape: str, name: str) -> list[Cut]:
    """At which writes of a run its host is cut off, and how."""
    writes = fleet.lanes[kind].calm(shape).writes
    every = [(moment, number, lost) for number in range(1, writes + 1) for moment in MOMENTS for lost in WAYS]
    chance = random.Random(f"{SEED} {name} {kind} {shape}")
    return every if WHOLE else [chance.choice(every)]


def noted(error: BaseException, what: object) -> None:
    error.add_note(f"{what}; set FASTROAI_FAULTS_SEED={SEED}")


@pytest.mark.parametrize(("kind", "shape"), CASES)
def test_a_host_that_is_cut_off_for_longer_than_its_lease_does_nothing_more_and_another_ends_its_run(
    fleet: Fleet, kind: str, shape: str
) -> None:
    said = Counter[str]()
    for cut in cuts(fleet, kind, shape, "long"):
        try:
            said[cut_off_for_long(fleet, Contested(fleet, kind, shape), cut)] += 1
        except BaseException as error:
            noted(error, f"{kind} {shape} {cut}")
            raise
    assert not WHOLE or said["RunTakenOver"], f"no host has come back and found its run taken: {said}"


def cut_off_for_long(fleet: Fleet, run: Contested, cut: Cut) -> str:
    """What the host says that was cut off."""
    fleet.net.heal()
    moment, number, lost = cut
    first, second = fleet.hosts
    if not run.halted(first, (moment, number)):
        return "nothing"
    fleet.net.cut(first.machine, lost)
    rest = first.go_on()
    time.sleep(LEASE + 1)  # what it decided to send in time may leave a moment later
    before = run.done_outside(first)
    outcome = run.bring_to_an_end(second)
    at_the_end, on_record = run.done_outside(), run.on_record()
    fleet.net.heal()
    ended = rest.result(PATIENCE)
    assert run.done_outside(first) == before, "it has sent requests after its lease"
    assert run.done_outside() == at_the_end, "it has done something after its lease"
    assert run.on_record() == on_record, "it has written something after its lease"
    if "error" in ended:
        check_loss(run, ended)
        run.kills += 1
    else:  # there was nothing left to do but to tell of it
        assert ended["output"] == outcome["output"]
    run.check_end(outcome, run.calm)
    return str(ended.get("raised"))


def check_loss(run: Contested, outcome: dict[str, Any]) -> None:
    """The error names what happened, and to what."""
    assert outcome["raised"] in LOST_RUN | {"RunExists"}, outcome["error"]
    named = "10.77.0.1" if outcome["raised"] == "RunStoreUnavailable" else run.run_id
    assert named in outcome["says"], outcome["says"]


@pytest.mark.parametrize(("kind", "shape"), ON_REDIS)
def test_a_host_that_is_cut_off_for_less_than_its_lease_goes_on_and_does_nothing_twice(
    fleet: Fleet, kind: str, shape: str
) -> None:
    for cut in cuts(fleet, kind, shape, "short"):
        try:
            cut_off_for_a_moment(fleet, Contested(fleet, kind, shape), cut)
        except BaseException as error:
            noted(error, f"{kind} {shape} {cut}")
            raise


def cut_off_for_a_moment(fleet: Fleet, run: Contested, cut: Cut) -> None:
    moment, number, lost = cut
    first = fleet.hosts[0]
    if not run.halted(first, (moment, number)):
        return
    fleet.net.cut(first.machine, lost)
    rest = first.go_on()
    time.sleep(SHORT)
    fleet.net.heal()
    outcome = rest.result(PATIENCE)
    if "error" in outcome:  # beginning a run is tried once, and so is answering for it
        assert outcome["raised"] == "RunStoreUnavailable", outcome["error"]
        outcome = run.bring_to_an_end(first)
    run.look()
    run.check_end(outcome, run.calm)
    assert outcome["committed_usd"] == outcome["cost_usd"], "a request was lost"
    assert run.done_outside()["request"] == len(run.lane.server.ledger.entries)


@pytest.mark.parametrize(("kind", "shape"), ON_POSTGRES)
def test_whatever_cuts_there_are_between_hosts_that_contend_for_a_run_it_ends_right(
    fleet: Fleet, kind: str, shape: str
) -> None:
    for number in range(AT_RANDOM):
        seed = f"{SEED} {kind} {shape} {number}"
        try:
            contend(fleet, Contested(fleet, kind, shape), random.Random(seed))
        except BaseException as error:
            noted(error, f"seed {seed!r}")
            raise


def contend(fleet: Fleet, run: Contested, chance: random.Random) -> None:
    """Both hosts work at it, each again where it has failed, and are cut off at random meanwhile."""
    end = time.monotonic() + PATIENCE
    working: dict[Future[dict[str, Any]], Host] = {}
    has_ended = False
    while working or not has_ended:
        assert time.monotonic() < end, "it does not end"
        for host in fleet.hosts:
            if not has_ended and host not in working.values():
                at = chance.choice(MOMENTS), chance.randint(1, run.calm.writes)
                working[run.attempt(host, at)] = host
        done, _ = wait(working, chance.uniform(0.01, LEASE), FIRST_COMPLETED)
        if has_ended or (not done and chance.random() < HEALED):
            fleet.net.heal()
        for one in done:
            host, result = working.pop(one), one.result()
            if result.get("halted"):
                fleet.net.cut(host.machine, chance.choice(WAYS))
                working[host.go_on()] = host
            else:
                has_ended = run.came_to(result) or has_ended
    # A host that was about to take it up may have been cut off before it saw that the run has ended.
    run.check_end(run.bring_to_an_end(fleet.hosts[0]), run.calm)


def test_a_host_that_is_gone_keeps_no_connection_of_a_server_for_long(fleet: Fleet) -> None:
    run, first, end = Contested(fleet, "postgres", "effects"), fleet.hosts[0], time.monotonic() + PATIENCE
    with psycopg.connect(fleet.lanes["postgres"].place[1], autocommit=True) as connection:

        def connected() -> set[int]:
            query = "SELECT pid FROM pg_stat_activity WHERE client_addr = %s"
            return {pid for (pid,) in connection.execute(query, [first.machine.address]).fetchall()}

        before = connected()
        while not run.halted(first, ("before", run.calm.writes // 2)):  # its store was too slow for it
            assert time.monotonic() < end, "it never comes to its connection"
            run = Contested(fleet, "postgres", "effects")
        assert connected() - before, "it has no connection"
        fleet.net.cut(first.machine, "all")
        rest, end = first.go_on(), time.monotonic() + PATIENCE
        while connected() - before:
            assert time.monotonic() < end, "the server has not noticed"
            time.sleep(SOON)
    fleet.net.heal()
    rest.result(PATIENCE)


# --- spend limits ---

MOST_BEFORE: Final = 20
"""Requests of both hosts before one of them is cut off, of about fifty that the limit has room for."""


@pytest.mark.parametrize("kind", KINDS if WHOLE else KINDS[:1])
def test_whatever_cuts_there_are_hosts_never_spend_more_than_a_limit_that_they_share(
    fleet: Fleet, kind: str
) -> None:
    for number in range(AT_RANDOM):
        seed = f"{SEED} {kind} spending {number}"
        try:
            spend(fleet, kind, random.Random(seed))
        except BaseException as error:
            noted(error, f"seed {seed!r}")
            raise


def spend(fleet: Fleet, kind: str, chance: random.Random) -> None:
    """One host is cut off while both spend. The other uses up the limit; then the first comes back."""
    fleet.net.heal()
    ledger, name = fleet.server.ledger, f"test_{uuid.uuid4().hex}"
    ledger.clear()
    bound_usd = bound_of(fleet.server.model(CHAT), SPENDING, MAX_TOKENS).cost_usd
    assert bound_usd is not None
    task = Task(
        shape=SPENDING,
        run_id=name,
        store=(*fleet.places[kind][:2], name),
        notes="",
        outcome=str(fleet.folder / name),
        lease=LEASE,
        timeout=TIMEOUT,
        pause=SOON,
    )
    first, second = chance.sample(fleet.hosts, 2)
    spending = {host: host.begin(task) for host in fleet.hosts}
    ledger.wait_for_sync(chance.randint(1, MOST_BEFORE))
    fleet.net.cut(first.machine, chance.choice(WAYS))
    before = sum(map(first.has_sent, ledger.entries))
    others = spending[second].result(PATIENCE)
    alone = sum(map(first.has_sent, ledger.entries))
    fleet.net.heal()
    own = spending[first].result(PATIENCE)

    for outcome in (own, others):
        assert "error" not in outcome, outcome["error"]
    assert alone <= before + LINES, "it has sent more than it had reserved"
    assert all("10.77.0.1" in refusal for refusal in own["refusals"]), own["refusals"]
    billed_usd = sum(map(listed_cost, ledger.billed), Decimal(0))
    balance = asyncio.run(balance_of(open_spend_store(*fleet.lanes[kind].place[:2], name)))
    assert billed_usd <= balance.spent_usd <= LIMIT_USD
    assert balance.reserved_usd == 0
    late_usd = LINES * bound_usd  # of the host that was cut off; what is settled late is corrected then
    assert LIMIT_USD - balance.spent_usd < bound_usd + late_usd, "they were refused although there was room"


async def balance_of(store: Any) -> SpendBalance:
    try:
        return await store.balance(ACCOUNT)  # type: ignore[no-any-return]
    finally:
        await store.aclose()
