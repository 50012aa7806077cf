"""Telling people that they are asked, when the question is on record and the run waits."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

from fastroai.errors import ConfigurationError
from fastroai.runtime.facts import QuestionAsked, RunFinished
from fastroai.runtime.threads import run_in_thread
from fastroai.store.open_questions import Question
from fastroai.store.runs import DurableRun
from fastroai.store.unsealing import unseal_payloads

Sink: TypeAlias = Callable[[Question], Awaitable[None] | None]
"""Tells somebody of a question: an `async` function, or any other, which is called in a worker thread."""

logger = logging.getLogger("fastroai.human")


def to_console(asked: Question) -> None:
    """Print a question, and how to answer it, on standard error. A sink."""
    to = f" to {asked.to}" if asked.to else ""
    lines = (f"question{to}: {asked.question}", f"  fastroai review answer {asked.id} ANSWER")
    print("\n".join(lines), file=sys.stderr)


def checked_sinks(sinks: Sequence[Sink]) -> tuple[Sink, ...]:
    """Return the sinks of a configuration. Raises `ConfigurationError` for anything that is no function."""
    if isinstance(sinks, Sequence) and not isinstance(sinks, str) and all(map(callable, sinks)):
        return tuple(sinks)
    raise ConfigurationError("sinks", sinks, "a list of functions that take a question")


async def tell_people(sinks: Sequence[Sink], run: DurableRun, finish: RunFinished | None) -> None:
    """Tell of the questions that a run has just paused for, each once; of a refused answer, once more.

    A sink that raises is logged: the question is in the inbox whatever becomes of it.
    """
    waits_for = () if finish is None else finish.questions
    known = run.recorded.asked.keys() - run.recorded.answers.keys()
    for entry in run.journal.halting.values() if waits_for else ():
        if isinstance(entry, QuestionAsked) and entry.id in waits_for and entry.id not in known:
            asked = Question.of(unseal_payloads(entry, run.codec), run.header)
            for sink in sinks:
                await _tell(sink, asked)


async def _tell(sink: Sink, asked: Question) -> None:
    try:
        if inspect.iscoroutinefunction(sink):
            await sink(asked)
        else:
            told = await run_in_thread(partial(sink, asked), what=f"sink {sink!r}")
            if inspect.isawaitable(told):
                await told
    except Exception:  # the sink is the user's
        logger.exception("sink %r failed to tell of question %r", sink, asked.id)
