"""Questions at the terminal, for scripts: the person who started the script answers."""

from __future__ import annotations

import asyncio
import json
import os
import select
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from pydantic import JsonValue
from pydantic_core import from_json

from fastroai.errors import AnswerRejected, FastroAIError
from fastroai.human.inbox import Inbox
from fastroai.plain_text import plain
from fastroai.store.open_questions import Question

_EVERY: Final = 0.05
"""Seconds between two looks for a line."""

_lock: Final = threading.Lock()
"""Held while a question is asked, so that the answers to two questions cannot be confused."""


def has_terminal() -> bool:
    """Return whether a person can answer at standard input. On Windows, lines there cannot be awaited."""
    try:
        return os.name == "posix" and sys.stdin is not None and sys.stdin.isatty()  # pyright: ignore[reportUnnecessaryComparison]
    except ValueError:  # it is closed
        return False


async def ask_at_terminal(asked: Question, inbox: Inbox) -> None:
    """Ask a question on standard error until a line of standard input answers it, or the input ends."""
    async with _alone():
        _say(_as_text(asked))
        while line := await _line():
            try:
                await inbox.answer(asked.id, _answer_in(line.strip(), asked))
            except AnswerRejected as refused:
                _say(f"{refused.reason}\nanswer: ")
            except FastroAIError as error:  # somebody else has answered, or its time is over
                _say(f"{error}\n")
                return
            else:
                return


def takes_text(text: str, asked: Question) -> bool:
    """Return whether a text itself can be the answer to a question, so that it is not to be read as JSON."""
    return text in (asked.options or ()) or (asked.answer_schema or {}).get("type") == "string"


def _answer_in(line: str, asked: Question) -> JsonValue:
    if takes_text(line, asked):
        return line
    try:
        given: JsonValue = from_json(line)
    except ValueError:
        return line
    return given


@asynccontextmanager
async def _alone() -> AsyncGenerator[None]:
    """Wait until no other question is asked, in any event loop of this process."""
    while True:
        if _lock.acquire(blocking=False):
            break
        await asyncio.sleep(_EVERY)
    try:
        yield
    finally:
        _lock.release()


def _as_text(asked: Question) -> str:
    to = f" to {asked.to}" if asked.to else ""
    question = asked.question if isinstance(asked.question, str) else json.dumps(asked.question, indent=2)
    lines = [f"question{to}: {question}"]
    if asked.options is not None:
        lines.append(f"  one of: {', '.join(map(_shown, asked.options))}")
    elif (schema := asked.answer_schema or {}) and schema.get("type") != "string":
        lines.append(f"  {json.dumps(schema)}")
    return "\n".join([*lines, "answer: "])


def _shown(option: JsonValue) -> str:
    return option if isinstance(option, str) else json.dumps(option)


def _say(text: str) -> None:
    print(plain(text), end="", file=sys.stderr, flush=True)


async def _line() -> str:
    """Wait for a line of standard input, and return it; an empty text if there will be none."""
    while True:
        if select.select([sys.stdin], [], [], 0)[0]:
            return sys.stdin.readline()
        await asyncio.sleep(_EVERY)
