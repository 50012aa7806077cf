"""The log of a run: its facts, in the order in which they came, with or without a store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fastroai.errors import trace_source_of
from fastroai.places import outwards
from fastroai.runtime import Scope
from fastroai.runtime.fact_base import NOWHERE, Fact, Key
from fastroai.runtime.facts import QuestionAsked, RunFinished, Wait, WaitEnded, WaitStarted
from fastroai.store.open_questions import Question
from fastroai.store.record.packed import PackedFacts
from fastroai.store.record.payloads import seal
from fastroai.store.record.runs import DurableRun
from fastroai.store.record.unsealing import seal_payloads
from fastroai.store.record.values import value_to_json
from fastroai.store.signals import Signal

if TYPE_CHECKING:
    from fastroai.store.reading.trace import RunTrace


class Log:
    """The facts of one run; nested runs add to the same log.

    Without a store, the facts stay in memory as they were made, and are encoded only when they are read, or
    when there are thousands of them. With a store, they are written to it.
    """

    def __init__(self, scope: Scope, run: DurableRun | None = None, *, records_messages: bool = True) -> None:
        """Open the log of the run of this scope. `run` keeps the log in a store."""
        self.scope, self.run = scope, run
        self.records_messages = records_messages
        """Whether what requests add to their conversations is in the log."""
        self.live = PackedFacts()
        """Facts that no store keeps."""
        self.finished: RunFinished | None = None
        """The fact with which the run ended, if no exception ended it."""
        self.heeding: dict[Scope, Callable[[Signal], None]] = {}
        """The handlers of signals, by scope: of the outermost run, then of runs that are its steps."""
        self.is_pausing = self.is_let_go = False
        """Whether somebody has asked the run to pause, and whether its process lets go of it then."""
        self.is_handed_over = False
        """Whether its process also lets go of it if its task is cancelled."""
        self.is_carried = False
        """Whether some process goes on with the run when it is due, so that this one need not wait."""
        self.is_cancelling = False
        """Whether somebody has asked to cancel the run."""
        self.sinks: dict[str, list[Callable[[Question], Awaitable[None] | None]]] = {}
        """Functions that tell people of the questions at a place, and inside it; those at "" tell of all."""
        self.asked: dict[str, QuestionAsked] = {}
        """The questions that wait for an answer, by id, as this process has asked them."""
        self.waited: dict[Key, list[WaitStarted | WaitEnded]] = {}
        """The beginnings and ends of waits of steps, by what they are about. Each process adds its own."""
        self.received: dict[str, int] = {}
        """The number of the last message that was received, by name."""
        for entry in () if run is None else run.recorded.entries:
            if isinstance(entry, WaitStarted | WaitEnded):
                self.waited.setdefault(entry.about, []).append(entry)
            if isinstance(entry, WaitEnded):
                name = entry.wait.name
                self.received[name] = max(entry.number, self.received.get(name, 0))
        self.resume_at: tuple[str, ...] = ()
        """The steps or nodes with which the run goes on when it is resumed, if an exception ended it."""
        self._waits: defaultdict[str, dict[str, Wait]] = defaultdict(dict)
        """Waits of halted steps, by the place of the step and of each step around it, and then by id."""
        self._is_over = False

    def heed(self, signal: Signal) -> None:
        """Carry out a signal to the run, from any thread.

        A pause or interruption reaches the runs inside too, also those that begin later. A cancellation
        reaches them through the outermost run.
        """
        self.is_pausing |= signal != "cancel"
        self.is_let_go |= signal == "interrupt"
        self.is_cancelling |= signal == "cancel"
        for heed in [*self.heeding.values()][: 1 if signal == "cancel" else None]:
            heed(signal)

    def halt(self, run: DurableRun, fact: QuestionAsked | WaitStarted, place: str) -> None:
        """Keep the question or wait that halts the step at a place, in the run on record. From any thread."""
        self._add_wait(place, fact.wait)
        if isinstance(fact, QuestionAsked):
            self.asked[fact.id] = fact
        run.journal.note(seal_payloads(fact, run.codec))

    def add_sinks(self, place: str, sinks: Sequence[Callable[[Question], Awaitable[None] | None]]) -> None:
        """Have people told of questions that are asked at a place of the run, and inside that place."""
        if sinks:  # there can be any number of nested runs, and few have sinks of their own
            held = self.sinks.setdefault(place, [])
            held += [sink for sink in sinks if sink not in held]

    def keep_open(self, question: QuestionAsked) -> None:
        """Keep a question on record that still waits for its answer."""
        self._add_wait(question.place, question.wait)
        self.asked[question.id] = question

    def waits_in(self, place: str) -> tuple[Wait, ...]:
        """Return the waits of a step and of everything that runs in it, first halted first."""
        return tuple(self._waits.get(place, {}).values())

    def _add_wait(self, place: str, wait: Wait) -> None:
        for around in outwards(place):
            self._waits[around][wait.id] = wait

    def note(self, fact: Fact, stored: Fact | None = None) -> None:
        """Keep a fact, from any thread. A store gets it soon, at the latest with the next commit.

        `stored` is the same fact with its values as the store keeps them, if it has values.
        """
        if self.run is not None:
            self.run.journal.note(fact if stored is None else stored)
        elif not self._is_over:
            self.live.append(fact)

    async def commit(self, fact: Fact) -> None:
        """Keep a fact before anything goes on: a store has it when this returns. From any event loop.

        Raises:
            RunStoreUnavailable: the store has failed in all attempts.
            RunTakenOver: another process writes this log now, or the run was deleted.
            ScopeClosedError: the run has ended.
        """
        if self.run is None:
            self.note(fact)
        else:
            await self.run.journal.commit(fact)

    async def begin(self, fact: Fact) -> None:
        """Keep the beginning of an effect before it happens outside of the run. From any event loop.

        The lease is checked afterwards, because the store may take longer than the lease, or the machine may
        be suspended meanwhile.

        Raises:
            RunStoreUnavailable: the store has failed in all attempts.
            RunTakenOver: another process has the run, or the run was deleted.
            ScopeClosedError: the run has ended.
        """
        await self.commit(fact)
        if self.run is not None:
            await self.run.check_held()

    def stored(self, value: object, declared: Any, what: str) -> object:
        """Return a value as the log keeps it: as it is without a store, else as sealed JSON.

        Raises:
            ValueNotStorable: the value cannot be stored. `what` names it.
        """
        return value if self.run is None else seal(value_to_json(value, declared, what), self.run.codec)

    def end(self, ended: RunFinished) -> None:
        """Keep the last fact of a run without a store. Later facts are dropped."""
        self.note(ended)
        self._is_over = True

    def place(self, scope: Scope) -> str:
        """Return the place of a scope of this run."""
        return scope.place_within(self.scope)

    def facts(self) -> list[Fact]:
        """Return all facts, in order, as traces show them."""
        facts = self.live.told(self.scope.part) if self.run is None else self.run.entries()
        for fact in facts:
            if fact.part is NOWHERE:  # facts of requests and side effects have a place in the run instead
                fact.part = self.scope.part
        return facts


class RunLog:
    """Makes the trace of a run when it is first asked for, because most traces are never read."""

    def __init__(self, facts: Callable[[], Sequence[Fact]]) -> None:
        self._facts = facts

    @cached_property
    def trace(self) -> RunTrace:
        """The trace, made when it is first asked for."""
        from fastroai.store.reading.trace import RunTrace  # late: most traces are never read

        return RunTrace(self._facts())

    def __reduce__(self) -> tuple[Callable[[Sequence[Fact]], RunLog], tuple[Sequence[Fact]]]:
        return _known, (self.trace.entries,)


def _known(facts: Sequence[Fact]) -> RunLog:
    return RunLog(lambda: facts)


def trace_of(error: BaseException) -> RunTrace | None:
    """Return the trace of the run that an exception ended: what happened in it until then, and its cost.

    It takes any exception, with or without a store. Exceptions that it was raised from, and members of
    exception groups, are searched as well. Returns `None` if none of them ended a run of a pipeline, graph,
    flow or workflow.

        try:
            await pipeline.execute(inputs)
        except Exception as error:
            if (trace := trace_of(error)) is not None:
                print(trace.explain())

    Raises:
        ConfigurationError: `error` is not an exception.
    """
    source = trace_source_of(error)
    return source.trace if isinstance(source, RunLog) else None  # pyright: ignore[reportReturnType]
