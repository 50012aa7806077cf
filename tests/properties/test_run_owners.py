"""Processes that begin, take up, lose and delete one run, in any order, against a model of who has it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.examples import examples
from support.stored_runs import entries_of

from fastroai.errors import RunExists, RunInProgress, RunNotFound, RunTakenOver
from fastroai.records import Usage
from fastroai.runtime import owner
from fastroai.runtime.fact_base import Part
from fastroai.runtime.facts import RunFinished, RunResumed, RunStarted, StepStarted
from fastroai.store import MemoryRunStore, RunHistory
from fastroai.store.lease import LeaseTerms
from fastroai.store.record.headers import read_header, read_log
from fastroai.store.record.memo import Memo
from fastroai.store.record.runs import DurableRun, RecordOptions, seize

PROCESSES: Final = 3
Rule = TypeVar("Rule", bound=Callable[..., None])
TERMS: Final = LeaseTerms(seconds=86_400)
"""So long that the renewing thread never comes: the rules renew."""
WHO = st.integers(0, PROCESSES - 1)


def by_one_with_a_run(act: Rule) -> Rule:
    """A rule for when some process has a run in its hands."""
    return precondition(lambda self: any(self.held))(rule(pick=WHO)(act))  # type: ignore[no-any-return]


def by_one_without(act: Rule) -> Rule:
    """A rule for when some process has none."""
    return precondition(lambda self: not all(self.held))(rule(pick=WHO)(act))  # type: ignore[no-any-return]


@dataclass
class Model:
    """The truth: which process has the run, and what is on record of it."""

    holder: int | None = None
    """The last process that has taken the run, until it ends it, or loses it to nobody."""
    until: float = 0.0
    """When its lease ends, by the steady clock."""
    log: list[str] = field(default_factory=list)
    exists: bool = False


class Owners(RuleBasedStateMachine):
    loop: asyncio.AbstractEventLoop
    sleep: Callable[[float], None]
    steady: Callable[[], float]

    @initialize()
    def start(self) -> None:
        self.clock = datetime(2000, 1, 1, tzinfo=UTC)
        self.store = MemoryRunStore(clock=lambda: self.clock)
        self.model = Model()
        self.held: list[DurableRun | None] = [None] * PROCESSES
        self.number = 0
        self.begin(0)

    def do(self, operation: Any) -> Any:
        return self.loop.run_until_complete(operation)

    def one_of(self, pick: int, *, busy: bool) -> int:
        """A process that has a run in its hands, which others may have taken since; or one that has none."""
        known = [who for who, run in enumerate(self.held) if (run is not None) is busy]
        return known[pick % len(known)]

    def owner(self, pick: int) -> tuple[int, DurableRun]:
        """A process that has a run in its hands, and the run."""
        who = self.one_of(pick, busy=True)
        run = self.held[who]
        assert run is not None
        return who, run

    def has_it(self, who: int) -> bool:
        return self.model.holder == who

    def has_lease(self) -> bool:
        return self.model.holder is not None and self.model.until > self.steady()

    def took(self, who: int, run: DurableRun) -> None:
        self.held[who] = run
        self.model.holder, self.model.until = who, self.steady() + TERMS.seconds

    # --- taking it ---

    @by_one_without
    def begin(self, pick: int) -> None:
        who = self.one_of(pick, busy=False)
        opened = RunStarted(part=Part("r", "p", ("p",)))
        beginning = DurableRun.begin(RecordOptions(store=self.store, codec=None, terms=TERMS), [opened])
        if self.model.exists:
            with pytest.raises(RunExists):
                self.do(beginning)
            return
        self.took(who, self.do(beginning))
        self.model.exists, self.model.log = True, ["run_started"]

    async def _take_up(self) -> DurableRun:
        found = await read_header(self.store, "r")
        found.check_not_running()
        recorded = Memo("r", await read_log(self.store, found.header))
        options = RecordOptions(store=self.store, codec=None, terms=TERMS)
        return await DurableRun.take_up(options, recorded, RunResumed(), found=found)

    @by_one_without
    def take_up(self, pick: int) -> None:
        who = self.one_of(pick, busy=False)
        if not self.model.exists:
            with pytest.raises(RunNotFound):
                self.do(self._take_up())
        elif self.has_lease():
            with pytest.raises(RunInProgress):
                self.do(self._take_up())
        else:
            self.took(who, self.do(self._take_up()))
            self.model.log.append("run_resumed")

    @precondition(
        lambda self: self.held.count(None) > 1 and self.model.exists and not self.has_lease()  # type: ignore[attr-defined]
    )
    @rule()
    def take_up_at_once(self) -> None:
        """Two processes try, of which one succeeds."""
        first, second = (self.one_of(pick, busy=False) for pick in range(2))

        async def both() -> list[Any]:
            return await asyncio.gather(self._take_up(), self._take_up(), return_exceptions=True)

        outcomes = self.do(both())
        winners = [number for number, one in enumerate(outcomes) if isinstance(one, DurableRun)]
        assert len(winners) == 1, outcomes
        assert isinstance(outcomes[1 - winners[0]], RunInProgress), outcomes
        self.took((first, second)[winners[0]], outcomes[winners[0]])
        self.model.log.append("run_resumed")

    @rule()
    def seize(self) -> None:
        """Somebody takes the run from whichever process has it, and does not go on with it."""
        if not self.model.exists:
            with pytest.raises(RunNotFound):
                self.do(seize(self.store, "r"))
            return
        was_leased = self.has_lease()
        self.do(seize(self.store, "r"))
        if was_leased:
            self.model.holder = None
            self.model.log.append("run_resumed")

    # --- having it ---

    @by_one_with_a_run
    def commit(self, pick: int) -> None:
        """Entries are on record when their process is told so; those of one that lost the run never are."""
        who, run = self.owner(pick)
        at_once = pick + 1
        names = [f"s{self.number + number}" for number in range(at_once)]
        self.number += at_once

        async def write() -> list[BaseException | None]:
            commits = [run.journal.commit(StepStarted(name, "")) for name in names]
            return await asyncio.gather(*commits, return_exceptions=True)

        outcomes = self.do(write())
        if self.has_it(who):
            assert outcomes == [None] * at_once
            self.model.log += names
        else:
            assert all(isinstance(one, RunTakenOver) for one in outcomes), outcomes

    @by_one_with_a_run
    def look_before_acting(self, pick: int) -> None:
        """Nothing happens outside of a run that another process has, once the lease is over."""
        who, run = self.owner(pick)
        if self.has_it(who):
            was_over = run.lease.has_ended
            self.do(run.check_held())
            if was_over:
                self.model.until = self.steady() + TERMS.seconds
        elif run.lease.has_ended:
            with pytest.raises(RunTakenOver):
                self.do(run.check_held())

    @by_one_with_a_run
    def renew(self, pick: int) -> None:
        who, run = self.owner(pick)
        if self.has_it(who):
            self.do(run.lease.renew())
            self.model.until = self.steady() + TERMS.seconds
        else:
            with pytest.raises(RunTakenOver):
                self.do(run.lease.renew())

    @by_one_with_a_run
    def end(self, pick: int) -> None:
        who, run = self.owner(pick)
        ending = run.end(RunFinished(status="finished"), Usage())
        if self.has_it(who):
            self.do(ending)
            self.model.holder = None
            self.model.log.append("run_finished")
            assert self.do(read_header(self.store, "r")).header.status == "finished"
        else:
            with pytest.raises(RunTakenOver):
                self.do(ending)
        self.held[who] = None

    @by_one_with_a_run
    def die(self, pick: int) -> None:
        """A process dies; that of a run that it has is free at once, on this machine."""
        who, run = self.owner(pick)
        self.do(run.release())
        self.held[who] = None
        if self.has_it(who):
            self.model.holder = None

    # --- from outside ---

    @rule(force=st.booleans())
    def delete(self, force: bool) -> None:
        deleting = RunHistory(self.store).delete("r", force=force)
        if not self.model.exists:
            with pytest.raises(RunNotFound):
                self.do(deleting)
        elif self.has_lease() and not force:
            with pytest.raises(RunInProgress):
                self.do(deleting)
        else:
            self.do(deleting)
            self.model = Model()
            assert not self.do(self.store.list("")), "something of it is left"

    @rule(seconds=st.sampled_from([1.0, TERMS.seconds / 2, TERMS.seconds + 1]))
    def pass_time(self, seconds: float) -> None:
        self.sleep(seconds)
        self.clock += timedelta(seconds=seconds)

    @rule(hours=st.sampled_from([-100, -5, 5, 100]))
    def set_the_clock(self, hours: int) -> None:
        """The clock of the store jumps, which changes nothing for processes of one machine."""
        self.clock += timedelta(hours=hours)

    @invariant()
    def what_is_on_record_is_what_its_owners_were_told(self) -> None:
        if not hasattr(self, "model"):
            return
        entries = self.do(entries_of(self.store, "r"))
        told = [entry.step_id if isinstance(entry, StepStarted) else entry.kind for entry in entries]
        assert told == self.model.log

    def teardown(self) -> None:
        for run in self.held if hasattr(self, "held") else ():
            if run is not None:
                self.do(run.release())


def test_a_run_has_one_owner_and_its_log_has_what_each_owner_was_told(
    monkeypatch: pytest.MonkeyPatch, quiet: None
) -> None:
    slept, awake = [0.0], owner.steady_seconds

    def steady() -> float:
        return awake() + slept[0]

    def pass_seconds(seconds: float) -> None:
        slept[0] += seconds

    for module in ("lease", "record.runs", "record.headers"):
        monkeypatch.setattr(f"fastroai.store.{module}.steady_seconds", steady)
    with asyncio.Runner() as runner:

        class Here(Owners):
            loop = runner.get_loop()
            sleep = staticmethod(pass_seconds)

        Here.steady = staticmethod(steady)
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            Here,
            settings=settings(max_examples=examples(10), stateful_step_count=40),
        )


@pytest.fixture
def quiet() -> Iterator[None]:
    """Runs that are lost are what this is about."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
