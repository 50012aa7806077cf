"""The log of a run: its facts, in the order in which they came, with or without a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from fastroai.errors import trace_source_of
from fastroai.runtime import Scope
from fastroai.runtime.facts import NOWHERE, AnyFact, RunFinished
from fastroai.store.live_spending import with_spending
from fastroai.store.runs import DurableRun
from fastroai.store.telling import as_told
from fastroai.store.trace import RunTrace


class Log:
    """The facts of one run; what is nested in it adds to the same log.

    Without a store they are in memory, as they were made: nothing is encoded before somebody reads it. With
    one, they are written down.
    """

    def __init__(self, scope: Scope, run: DurableRun | None = None) -> None:
        """Of the run that this scope is of; `run` keeps it in a store."""
        self.scope, self.run = scope, run
        self.live: list[AnyFact] = []
        """Those that no store keeps."""
        self.finished: RunFinished | None = None
        """How the run ended, where no exception says so."""

    def note(self, fact: AnyFact, stored: AnyFact | None = None) -> None:
        """Keep a fact; a store gets it soon, at the latest with the next that is committed. From any thread.

        `stored` is the same with values as a store has them, where it has any.
        """
        if self.run is None:
            self.live.append(fact)
        else:
            self.run.journal.note(fact if stored is None else stored)

    def facts(self) -> list[AnyFact]:
        """All of them, in order, as people are told of them."""
        if self.run is None:
            facts = with_spending(map(as_told, self.live), self.scope)
        else:
            facts = list(map(as_told, self.run.entries()))
        for fact in facts:
            if fact.part is NOWHERE:  # those of requests and side effects have a place in the run instead
                fact.part = self.scope.part
        return facts


class RunLog:
    """Gives the trace of a run when it is asked for, not before: most runs are never asked."""

    def __init__(self, facts: Callable[[], Sequence[AnyFact]]) -> None:
        self._facts = facts

    @cached_property
    def trace(self) -> RunTrace:
        """As it is when it is first asked for."""
        return RunTrace(self._facts())

    def __reduce__(self) -> tuple[Callable[[Sequence[AnyFact]], RunLog], tuple[Sequence[AnyFact]]]:
        return _known, (self.trace.entries,)


def _known(facts: Sequence[AnyFact]) -> RunLog:
    return RunLog(lambda: facts)


def log_of(scope: Scope | None) -> Log | None:
    """The log of the run that a scope is part of; `None` outside of any."""
    log = None if scope is None else scope.log
    return log if isinstance(log, Log) else None


def run_of(scope: Scope | None) -> DurableRun | None:
    """The run on record that a scope is part of; `None` where no store keeps it."""
    log = None if scope is None else scope.log
    return log.run if isinstance(log, Log) else None


def trace_of(error: BaseException) -> RunTrace | None:
    """What happened in the run that this exception ended, for FastroAI's errors and for any other.

    `None` if the exception, and those that it was raised from, never left a run of a pipeline or a graph.

        try:
            await pipeline.execute(inputs)
        except Exception as error:
            if (trace := trace_of(error)) is not None:
                print(trace.explain())
    """
    source = trace_source_of(error)
    return source.trace if isinstance(source, RunLog) else None
