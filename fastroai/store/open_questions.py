"""The questions to people that wait for an answer, in all runs of a store."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import JsonValue

from fastroai.errors import RunCorrupt, RunFromNewerVersion, RunFromOlderVersion
from fastroai.runtime.facts import AnyFact, QuestionAsked, Wait
from fastroai.store.entries import RunHeader
from fastroai.store.headers import is_running, read_log_at
from fastroai.store.index import Find, held_run, indexed
from fastroai.store.payloads import PayloadCodec, unseal
from fastroai.store.run_store import RunStore


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """A question of a run to a person that has no answer yet."""

    id: str
    """Identifies the question among those of all runs: pass it to `Inbox.answer`."""
    run_id: str
    pipeline: str
    """The name of the outermost pipeline or graph."""
    node: str
    """The step or node that asks."""
    visit: int
    question: JsonValue
    """The question, as JSON. That of a pause node is the output of the node."""
    answer_schema: dict[str, JsonValue] | None
    """JSON Schema of the answer when the question was asked; `None` if the node declares no type of it."""
    options: tuple[JsonValue, ...] | None
    """The answers that can be given, if they are limited."""
    to: str
    """The people to ask, as the step says."""
    asked_at: datetime
    deadline: datetime | None
    """Time after which no answer is taken."""
    tags: tuple[str, ...]
    tenant: str | None


def question_of(asked: QuestionAsked, header: RunHeader, codec: PayloadCodec | None) -> OpenQuestion:
    """Return a question in the form that people see."""
    options = asked.options
    return OpenQuestion(
        id=f"{header.run_id}:{asked.id}",
        run_id=header.run_id,
        pipeline=header.pipeline,
        node=asked.step_id,
        visit=asked.visit,
        question=unseal(asked.question, codec),
        answer_schema=asked.answer_schema,
        options=None if options is None else tuple(unseal(one, codec) for one in options),
        to=asked.to,
        asked_at=asked.at,
        deadline=None if asked.deadline is None else datetime.fromtimestamp(asked.deadline, UTC),
        tags=header.tags,
        tenant=header.tenant,
    )


def positions_of(waits: Collection[Wait], entries: Iterable[AnyFact]) -> tuple[int, ...]:
    """Return where in a log the questions among these were last asked."""
    asked = {
        entry.id: position for position, entry in enumerate(entries, 1) if isinstance(entry, QuestionAsked)
    }
    return tuple(asked[one.id] for one in waits if one.what == "question")


async def open_questions(
    store: RunStore, find: Find, codec: PayloadCodec | None, limit: int | None
) -> tuple[OpenQuestion, ...]:
    """Return the open questions of the runs that match. See `Inbox.list`."""
    found: list[OpenQuestion] = []
    async for entry in indexed(store, find):
        try:
            held = await held_run(store, entry)
        except (RunCorrupt, RunFromNewerVersion, RunFromOlderVersion):
            continue  # nothing says that it still asks
        # The header has them before the log says that the run waits: until then, the process has the run.
        if held is not None and held.header.questions and not is_running(held.header, held.now):
            found += await _questions_of(store, held.header, codec)
        if limit is not None and len(found) >= limit:
            break
    return tuple(found[:limit])


async def _questions_of(store: RunStore, header: RunHeader, codec: PayloadCodec | None) -> list[OpenQuestion]:
    # One that is not stored is asked anew, because the process died; another report may have come first.
    entries = await read_log_at(store, header, header.questions)
    return [question_of(asked, header, codec) for asked in entries if isinstance(asked, QuestionAsked)]
