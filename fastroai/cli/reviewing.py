"""`review list`, `show` and `answer`: the inbox. `runs send`: messages."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from fastroai.cli.exits import OK
from fastroai.cli.opened import opened_store
from fastroai.cli.options import AsJson, Codec, Limit, Run, Store
from fastroai.cli.reading import print_json
from fastroai.cli.shapes import question_shape
from fastroai.cli.targets import codec_at, json_value
from fastroai.cli.text import local
from fastroai.plain_text import plain

if TYPE_CHECKING:
    from pydantic import JsonValue

    from fastroai.human import Inbox

Question = Annotated[
    str, typer.Argument(metavar="QUESTION", help="The id of a question.", show_default=False)
]


@asynccontextmanager
async def opened_inbox(place: str, codec: str | None) -> AsyncGenerator[Inbox]:
    """Open the inbox of the store that `--store` names."""
    from fastroai.human import Inbox

    async with opened_store(place) as store:
        yield Inbox(store, codec=codec_at(codec))


async def list_questions(
    store: Store,
    pipeline: Annotated[
        str | None, typer.Option(help="Only questions of this pipeline, graph or workflow.")
    ] = None,
    limit: Limit = 100,
    codec: Codec = None,
    as_json: AsJson = False,
) -> int:
    """List the questions that wait for an answer, those of the newest run first."""
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


async def show(question: Question, store: Store, codec: Codec = None, as_json: AsJson = False) -> int:
    """Show a question that waits for an answer."""
    async with opened_inbox(store, codec) as inbox:
        asked = await inbox.get(question)
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
    question: Question,
    value: Annotated[
        str,
        typer.Argument(metavar="ANSWER", help="The answer: text, JSON, or @file.", show_default=False),
    ],
    store: Store,
    reviewer: Annotated[str, typer.Option(help="The person who answers.")] = "",
    rationale: Annotated[str, typer.Option(help="The reason for the answer.")] = "",
    codec: Codec = None,
    as_json: AsJson = False,
) -> int:
    """Store the answer to a question. The run continues when it is resumed."""
    run_id = question.rpartition(":")[0]
    from fastroai.human import Inbox
    from fastroai.human.console import takes_text
    from fastroai.store.reading.history import RunHistory

    async with opened_store(store) as opened:
        inbox = Inbox(opened, codec=codec_at(codec))
        given = value if takes_text(value, await inbox.get(question)) else _json_or_text(value)
        can_go_on = await inbox.answer(question, given, reviewer=reviewer, rationale=rationale)
        queue = (await RunHistory(opened).summary(run_id)).queue
    if as_json:
        print_json({"question_id": question, "answer": given, "waits": not can_go_on})
        return OK
    then = "resume it" if queue is None else f"the workers of queue {queue} continue it"
    left = f"waits for no other answer: {then}" if can_go_on else "waits for other answers, too"
    print(plain(f"answered; run {run_id} {left}"))
    return OK


async def send(
    run: Run,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the message.", show_default=False)],
    store: Store,
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="The message: JSON, text or @file.", show_default=False)
    ] = "null",
    codec: Codec = None,
    as_json: AsJson = False,
) -> int:
    """Send a message to a run, which a step receives with ctx.receive."""
    given = _json_or_text(value)
    from fastroai.human import send_message
    from fastroai.store.reading.history import RunHistory

    async with opened_store(store) as opened:
        known = codec_at(codec)
        await send_message(run, name, given, store=opened, codec=known)
        ended = (await RunHistory(opened, codec=known).trace(run)).ended
    if as_json:
        print_json({"run_id": run, "name": name, "value": given})
        return OK
    print(plain(f"sent {name} to run {run}"))
    awaited = [wait.name for wait in (() if ended is None else ended.waits) if wait.what == "message"]
    if awaited and name not in awaited:
        print(
            plain(f"note: the run waits for {', '.join(map(repr, awaited))}, not for {name!r}"),
            file=sys.stderr,
        )
    return OK


def _json_or_text(text: str) -> JsonValue:
    try:
        return json_value("answer", text)
    except ValueError:
        if text.startswith("@"):
            raise
        return text


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
