"""Sinks: they tell people of questions, once the question is on record and the run waits."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

from fastroai.errors import ConfigurationError
from fastroai.places import is_in
from fastroai.plain_text import plain, plain_line, quoted
from fastroai.runtime.concurrency.threads import run_in_thread
from fastroai.runtime.facts import AnswerGiven, QuestionAsked
from fastroai.store.open_questions import Question
from fastroai.store.record.log import Log
from fastroai.store.record.runs import DurableRun
from fastroai.store.record.unsealing import unseal_payloads

Sink: TypeAlias = Callable[[Question], Awaitable[None] | None]
"""Tells people of a question: an `async` function, or another function, which runs in a worker thread."""

logger = logging.getLogger("fastroai.human")


def to_console(asked: Question) -> None:
    """Print a question, and the command that answers it, to standard error.

    Pass it as `PipelineConfig(sinks=[to_console])`: sinks are functions that are called with each question
    for which a run pauses. This one does not wait for the answer.
    """
    to = f" to {plain_line(asked.to)}" if asked.to else ""
    text = str(asked.question)
    question = f"\n{quoted(text)}" if "\n" in text else f" {plain(text)}"
    lines = (f"question{to}:{question}", f"  fastroai review answer {plain_line(asked.id)} ANSWER")
    print("\n".join(lines), file=sys.stderr)


def checked_sinks(sinks: Sequence[Sink]) -> tuple[Sink, ...]:
    """Return the sinks of a configuration. Raises `ConfigurationError` for a sink that is not a function."""
    if isinstance(sinks, Sequence) and not isinstance(sinks, str) and all(map(callable, sinks)):
        return tuple(sinks)
    raise ConfigurationError("sinks", sinks, "a list of functions that take a question")


async def tell_people(log: Log, run: DurableRun) -> None:
    """Tell people of the questions for which a run has just paused: once, and again after a refused answer.

    A question of a nested run is told by the sinks of that run, and of the runs around it. A sink that raises
    is logged. The question is in the inbox even then.
    """
    waits_for = frozenset(() if log.finished is None else log.finished.questions)
    for entry in run.journal.halting.values() if waits_for else ():
        before = run.recorded.about(entry.about)
        is_open = bool(before) and not any(isinstance(one, AnswerGiven) for one in before)
        if isinstance(entry, QuestionAsked) and entry.id in waits_for and not is_open:
            asked = Question.of(unseal_payloads(entry, run.codec), run.header)
            for sink in _sinks_for(entry.place, log):
                await _tell(sink, asked)


def _sinks_for(place: str, log: Log) -> list[Sink]:
    """Return the sinks for questions of a place, each once."""
    found: list[Sink] = []
    for outer, sinks in log.sinks.items():
        if not outer or is_in(place, outer):
            found += [sink for sink in sinks if sink not in found]
    return found


async def _tell(sink: Sink, asked: Question) -> None:
    try:
        if inspect.iscoroutinefunction(sink):
            await sink(asked)
        else:
            told = await run_in_thread(partial(sink, asked), what=f"sink {sink!r}")
            if inspect.isawaitable(told):
                await told
    except Exception:  # a sink is code of the user
        logger.exception("sink %r failed to tell of question %r", sink, asked.id)
