"""What is noted of a run that no store keeps, so that its trace can be told afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import cached_property
from typing import Final

from fastroai.errors import trace_source_of
from fastroai.runtime import Scope
from fastroai.runtime.facts import (
    AnyFact,
)
from fastroai.store.trace import RunTrace


class LiveLog:
    """Entries that are noted as they happen, and parts that are asked for when somebody wants the trace."""

    def __init__(self, scope: Scope) -> None:
        """Of the run whose outermost pipeline has this scope."""
        self.scope = scope
        self.notes: list[AnyFact] = []
        self.parts: list[Callable[[], Iterable[AnyFact]]] = []

    def add(self, part: Callable[[], Iterable[AnyFact]]) -> None:
        """Have a pipeline of the run tell its part."""
        self.parts.append(part)

    def entries(self) -> list[AnyFact]:
        """All of it, in the order of time."""
        entries = [*self.notes, *(entry for part in self.parts for entry in part())]
        return sorted(entries, key=lambda entry: entry.at)


current_live_log: Final[ContextVar[LiveLog | None]] = ContextVar("fastroai_live_log", default=None)
"""That of the run in which the running code is, if no store keeps it."""


class RunLog:
    """Gives the trace of a run when it is asked for, not before: most runs are never asked."""

    def __init__(self, entries: Callable[[], Sequence[AnyFact]]) -> None:
        self._entries = entries

    @cached_property
    def trace(self) -> RunTrace:
        """As it is when it is first asked for."""
        return RunTrace(self._entries())

    def __reduce__(self) -> tuple[Callable[[Sequence[AnyFact]], RunLog], tuple[Sequence[AnyFact]]]:
        return _known, (self.trace.entries,)


def _known(entries: Sequence[AnyFact]) -> RunLog:
    return RunLog(lambda: entries)


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
