"""`review list`, `show` and `answer`: the inbox. `runs send`: messages."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from pydantic import JsonValue

from fastroai.cli.exits import OK
from fastroai.cli.opened import opened_store
from fastroai.cli.reading import print_json
from fastroai.cli.shapes import question_shape
from fastroai.cli.targets import codec_at, json_value
from fastroai.cli.text import local
from fastroai.human import Inbox, send_message
from fastroai.human.console import takes_text
from fastroai.plain_text import plain
from fastroai.store.open_questions import Question
from fastroai.store.reading.history import RunHistory


@asynccontextmanager
async def opened_inbox(place: str, codec: str | None) -> AsyncGenerator[Inbox]:
    """Open the inbox of the store that `--store` names."""
    async with opened_store(place) as store:
        yield Inbox(store, codec=codec_at(codec))


async def list_questions(
    store: str, pipeline: str | None, limit: int, codec: str | None, as_json: bool
) -> int:
    """See `app`."""
    async with opened_inbox(store, codec) as inbox:
        found = await inbox.list(pipeline=pipeline, limit=limit + 1)
    shown = found[:limit]
    if as_json:
        print_json([question_shape(question) for question in shown])
        return OK
    from fastroai.cli.tables import console, nothing, questions_table

    output = console()
    output.print(questions_table(shown) if shown else nothing("no questions found", store))
    if len(found) > limit:
        output.print(f"... these are {limit}; --limit shows more")
    return OK


async def show(question_id: str, store: str, codec: str | None, as_json: bool) -> int:
    """See `app`."""
    async with opened_inbox(store, codec) as inbox:
        asked = await inbox.get(question_id)
    if as_json:
        print_json(question_shape(asked))
        return OK
    lines = {
        "question": _text(asked.question),
        "asked by": f"{asked.node!r} of run {asked.run_id!r} of {asked.pipeline!r}",
        "asked at": local(asked.asked_at),
        "to": asked.to,
        "until": "" if asked.deadline is None else local(asked.deadline),
        "options": ", ".join(_text(option) for option in asked.options or ()),
        "answer": "" if asked.answer_schema is None else json.dumps(asked.answer_schema),
    }
    if (given := asked.answer) is not None:
        who = f" by {given.reviewer}" if given.reviewer else ""
        lines["answered"] = f"{_text(given.value)}{who} at {local(given.given_at)}"
        lines["because"] = given.rationale
    else:
        lines["closed"] = asked.closed
    print("\n".join(f"{name:9} {plain(value)}" for name, value in lines.items() if value))
    return OK


async def answer(
    question_id: str,
    value: str,
    store: str,
    reviewer: str,
    rationale: str,
    codec: str | None,
    as_json: bool,
) -> int:
    """See `app`."""
    run_id = question_id.rpartition(":")[0]
    async with opened_store(store) as opened:
        inbox = Inbox(opened, codec=codec_at(codec))
        given = _answer(await inbox.get(question_id), value)
        can_go_on = await inbox.answer(question_id, given, reviewer=reviewer, rationale=rationale)
        queue = (await RunHistory(opened).summary(run_id)).queue
    if as_json:
        print_json({"question_id": question_id, "answer": given, "waits": not can_go_on})
        return OK
    then = "resume it" if queue is None else f"the workers of queue {queue} continue it"
    left = f"waits for no other answer: {then}" if can_go_on else "waits for other answers, too"
    print(plain(f"answered; run {run_id} {left}"))
    return OK


async def send(run_id: str, name: str, value: str, store: str, codec: str | None, as_json: bool) -> int:
    """See `app`."""
    given = _json_or_text(value)
    async with opened_store(store) as opened:
        known = codec_at(codec)
        await send_message(run_id, name, given, store=opened, codec=known)
        ended = (await RunHistory(opened, codec=known).trace(run_id)).ended
    if as_json:
        print_json({"run_id": run_id, "name": name, "value": given})
        return OK
    print(plain(f"sent {name} to run {run_id}"))
    awaited = [wait.name for wait in (() if ended is None else ended.waits) if wait.what == "message"]
    if awaited and name not in awaited:
        print(
            plain(f"note: the run waits for {', '.join(map(repr, awaited))}, not for {name!r}"),
            file=sys.stderr,
        )
    return OK


def _answer(asked: Question, text: str) -> JsonValue:
    """Return the text itself if the question asks for text. Otherwise parse it as JSON, if it is JSON."""
    return text if takes_text(text, asked) else _json_or_text(text)


def _json_or_text(text: str) -> JsonValue:
    try:
        return json_value("answer", text)
    except ValueError:
        if text.startswith("@"):
            raise
        return text


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
