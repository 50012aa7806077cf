"""The open questions to people in all runs of a store."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import JsonValue

from fastroai.errors import RunNotFound, RunStoreUnavailable
from fastroai.runtime.fact_base import Fact, Part
from fastroai.runtime.facts import AnswerGiven, QuestionAsked, Wait
from fastroai.store.reading.index import every_run
from fastroai.store.reading.run_queries import Cursor, Page, Place, RunQuery
from fastroai.store.record.entries import RunHeader
from fastroai.store.record.headers import (
    UNREADABLE,
    FoundHeader,
    decode_header,
    is_running,
    read_header,
    read_log_from,
)
from fastroai.store.record.payloads import PayloadCodec
from fastroai.store.record.unsealing import unseal_entry
from fastroai.store.run_store import RunStore

logger: Final = logging.getLogger("fastroai.store")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer on record: its value as JSON, who gave it, the reason, and the time.

    `reviewer` and `rationale` are empty if they are not known.
    """

    value: JsonValue
    reviewer: str
    """The person who answered, if that is known; `an agent` or `the system` if it decided at a gate."""
    rationale: str
    """The reason for the answer, if one was given."""
    given_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question of a run to a person, as `Inbox.list` returns it and `result.questions` has it.

    `id` identifies it among the questions of all runs: pass it to `Inbox.answer`. `question` is JSON.
    `answer` is the answer on record, and `closed` the reason why it takes no answer; only `Inbox.get` sets
    these two.
    """

    id: str
    """Identifies the question among those of all runs: pass it to `Inbox.answer`."""
    run_id: str
    pipeline: str
    """The name of the outermost pipeline or graph."""
    node: str
    """The step or node that asks."""
    visit: int
    question: Any
    """The question, as JSON; of a pause node, the output of the node, as it is in the run's result."""
    answer_schema: dict[str, JsonValue] | None
    """JSON Schema of the answer when the question was asked; `None` if the node declares no type of it."""
    options: tuple[JsonValue, ...] | None
    """The answers that can be given, if they are limited."""
    to: str
    """The people to ask, as the step says."""
    asked_at: datetime
    """Time at which it was asked first."""
    deadline: datetime | None
    """Time after which no answer is taken."""
    tags: tuple[str, ...] = ()
    tenant: str | None = None
    answer: Answer | None = None
    """The answer on record."""
    closed: str = ""
    """The reason why the question takes no answer, for people; empty while it is open."""

    @classmethod
    def of(cls, asked: QuestionAsked, run: RunHeader | Part) -> Question:
        """Return a question as people see it, from the fact that it was asked.

        `asked` must be decoded already, if a codec encoded it. `run` is the header of its run; or, for a run
        without a store, the outermost pipeline or graph: then the question has no tags and no tenant.
        `answer` and `closed` are not set.
        """
        header = run if isinstance(run, RunHeader) else None
        return cls(
            id=f"{run.run_id}:{asked.id}",
            run_id=run.run_id,
            pipeline=run.pipeline if isinstance(run, RunHeader) else run.name,
            node=asked.step_id,
            visit=asked.visit,
            question=asked.question,
            answer_schema=asked.answer_schema,
            options=asked.options,
            to=asked.to,
            asked_at=asked.at if asked.first_at is None else datetime.fromtimestamp(asked.first_at, UTC),
            deadline=None if asked.deadline is None else datetime.fromtimestamp(asked.deadline, UTC),
            tags=() if header is None else header.tags,
            tenant=None if header is None else header.tenant,
        )


def positions_of(waits: Collection[Wait], entries: Iterable[tuple[int, Fact]]) -> tuple[int, ...]:
    """Return the positions in a log at which the questions of these waits were last asked.

    `entries` come with their positions.
    """
    asked = {entry.id: position for position, entry in entries if isinstance(entry, QuestionAsked)}
    return tuple(asked[one.id] for one in waits if one.what == "question")


async def page_of_questions(
    store: RunStore, query: RunQuery, codec: PayloadCodec | None, limit: int | None, after: str | None = None
) -> Page[Question]:
    """Return a page of the open questions of the runs that match; all of them without `limit`.

    See `Inbox.page`.
    """
    found: list[tuple[Cursor, Question]] = []
    place: Place | None = None
    if after is not None:
        cursor = Cursor.of(query, after)
        place = cursor.place
        found += await _left_of(store, query, cursor, codec)
    at_once = None if limit is None else limit + 1
    async for run, asked in _asking(store, query, codec, after=place, at_once=at_once):
        found += [(Cursor(run, position), question) for position, question in asked]
        if limit is not None and len(found) > limit:
            break
    return Page(
        items=tuple(question for _, question in found[:limit]),
        next=None if limit is None or len(found) <= limit else found[limit - 1][0].text(query),
    )


async def _left_of(
    store: RunStore, query: RunQuery, cursor: Cursor, codec: PayloadCodec | None
) -> list[tuple[Cursor, Question]]:
    """Return the questions of a run that come after one of them, if the run matches."""
    try:
        held = await read_header(store, cursor.place.run_id)
        if not query.matches(held.header):  # a cursor may come from a client, and name any run
            return []
        asked = await _asked_by(store, held, codec)
    except (RunNotFound, *UNREADABLE):
        return []
    return [(Cursor(cursor.place, at), question) for at, question in asked if at > cursor.item]


async def _asking(
    store: RunStore,
    query: RunQuery,
    codec: PayloadCodec | None,
    *,
    at_once: int | None,
    after: Place | None = None,
) -> AsyncIterator[tuple[Place, Sequence[tuple[int, Question]]]]:
    """Yield the runs that match and wait for answers, each with its open questions and their positions."""
    async for one, now in every_run(store, replace(query, asks=True), after=after, at_once=at_once):
        run_id = one.place.run_id
        try:
            header = decode_header(run_id, one.value)
            held = FoundHeader(header=header, revision=one.revision, now=now)
            yield one.place, await _asked_by(store, held, codec)
        except RunNotFound:
            continue  # it was deleted meanwhile
        except UNREADABLE as error:
            logger.warning("run %r may wait for answers and is left out: %s", run_id, error)


async def questions_of_run(
    store: RunStore, found: FoundHeader, codec: PayloadCodec | None
) -> tuple[Question, ...]:
    """Return the open questions of a run, first asked first.

    Only the part of the log from the first question on is read.
    """
    return tuple(question for _, question in await _asked_by(store, found, codec))


async def _asked_by(
    store: RunStore, found: FoundHeader, codec: PayloadCodec | None
) -> Sequence[tuple[int, Question]]:
    header = found.header
    # A header has questions before the log says that the run waits. Until then, the process has the run.
    if not header.questions or is_running(header, found.now):
        return ()
    entries = await read_log_from(store, header, min(header.questions))
    asked = _open_at(sorted(header.questions), entries)
    return [(position, Question.of(unsealed_question(one, codec), header)) for position, one in asked]


def unsealed_question(asked: QuestionAsked, codec: PayloadCodec | None) -> QuestionAsked:
    """Return a question as it was before it was sealed; if the codec has another key, as it is stored."""
    try:
        return unseal_entry(asked, codec)
    except RunStoreUnavailable as error:
        logger.warning("question %r cannot be decoded: %s", asked.id, error.reason)
        return unseal_entry(asked, None)


def asked_at(positions: Iterable[int], entries: Mapping[int, Fact]) -> Iterator[QuestionAsked]:
    """Yield the questions at these positions of a log that nobody has answered since."""
    return (asked for _, asked in _open_at(positions, entries))


def _open_at(positions: Iterable[int], entries: Mapping[int, Fact]) -> Iterator[tuple[int, QuestionAsked]]:
    answered = {one.id: position for position, one in entries.items() if isinstance(one, AnswerGiven)}
    for position in positions:
        asked = entries.get(position)
        # If not, the process died before the question was stored, or another report came first.
        if isinstance(asked, QuestionAsked) and answered.get(asked.id, 0) < position:
            yield position, asked
