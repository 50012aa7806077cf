"""Sinks: they tell people of questions, once the question is on record and the run waits."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

from fastroai.contracts.brief import plain
from fastroai.errors import ConfigurationError
from fastroai.runtime.facts import QuestionAsked, RunFinished
from fastroai.runtime.threads import run_in_thread
from fastroai.store.open_questions import Question
from fastroai.store.runs import DurableRun
from fastroai.store.unsealing import unseal_payloads

Sink: TypeAlias = Callable[[Question], Awaitable[None] | None]
"""Tells people of a question: an `async` function, or another function, which runs in a worker thread."""

logger = logging.getLogger("fastroai.human")


def to_console(asked: Question) -> None:
    """Print a question, with the command that answers it, on standard error. This function is a sink."""
    to = f" to {asked.to}" if asked.to else ""
    lines = (f"question{to}: {asked.question}", f"  fastroai review answer {asked.id} ANSWER")
    print(plain("\n".join(lines)), file=sys.stderr)


def checked_sinks(sinks: Sequence[Sink]) -> tuple[Sink, ...]:
    """Return the sinks of a configuration. Raises `ConfigurationError` for a sink that is not a function."""
    if isinstance(sinks, Sequence) and not isinstance(sinks, str) and all(map(callable, sinks)):
        return tuple(sinks)
    raise ConfigurationError("sinks", sinks, "a list of functions that take a question")


async def tell_people(sinks: Sequence[Sink], run: DurableRun, finish: RunFinished | None) -> None:
    """Tell people of the questions for which a run has just paused: once, and again after a refused answer.

    A sink that raises is logged. The question is in the inbox even then.
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
    except Exception:  # a sink is code of the user
        logger.exception("sink %r failed to tell of question %r", sink, asked.id)
