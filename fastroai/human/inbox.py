"""The inbox: the open questions of all runs in a store, and the recording of answers."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

from fastroai.errors import AnswerRejected, RevisionConflict, RunConflict, RunNotFound, ValueNotStorable
from fastroai.human.answers import answer_to, last_answer, last_asked, split_ref, why_closed
from fastroai.runtime.fact_base import Fact
from fastroai.runtime.facts import AnswerGiven, Wait
from fastroai.runtime.options import check_count
from fastroai.store.backends.adapter import adapt_run_store
from fastroai.store.backends.run_memory import process_run_store
from fastroai.store.open_questions import (
    Answer,
    Question,
    page_of_questions,
    positions_of,
    questions_of_run,
    unsealed_question,
)
from fastroai.store.reading.history import EVERY_RUN
from fastroai.store.reading.run_queries import PAGE, Page, RunQuery, check_page
from fastroai.store.record.entry_sizes import entry_for
from fastroai.store.record.headers import first_due, log_key, read_header, read_log
from fastroai.store.record.memo import Memo
from fastroai.store.record.payloads import PayloadCodec, check_codec
from fastroai.store.record.runs import append_own, change_header, foresee, parent_due
from fastroai.store.record.unsealing import unseal_entry, unseal_one
from fastroai.store.run_store import RunStore, RunStoreLike, largest_value

_TRIES: Final = 10


class Inbox:
    """The questions to people that wait for an answer, in all runs of a store.

        inbox = Inbox(SQLiteRunStore("runs.db"))
        for asked in await inbox.list():
            print(asked.id, asked.question)
        await inbox.answer("order-1182:3f9a1c20b7d4", True, reviewer="Mia")

    Without a store, `Inbox()` has the questions that `await_human` asks in this process and no store keeps.
    The inbox needs no code of the pipelines. It keeps nothing in memory: each call reads the store.
    """

    def __init__(self, store: RunStoreLike | None = None, *, codec: PayloadCodec | None = None) -> None:
        """Without a store, these are the questions of this process that no store keeps: see `await_human`.

        `codec` is the codec of the runs, if they have one.

        Raises:
            ConfigurationError: `store` is not a store of runs, or `codec` is not a codec.
        """
        check_codec(codec)
        self._store: RunStore = process_run_store() if store is None else adapt_run_store(store)
        self._codec = codec

    def __repr__(self) -> str:
        return f"Inbox({self._store!r})"

    async def list(
        self,
        *,
        run_id: str | None = None,
        pipeline: str | None = None,
        tag: str | None = None,
        tenant: str | None = None,
        limit: int | None = None,
    ) -> tuple[Question, ...]:
        """Return the questions that wait for an answer, those of the newest run first, in the order asked.

        A run waits when nothing else in it can continue, so a question is listed when the run is paused. The
        list finds these runs in an index, and reads their logs only from the first open question on. A run
        that cannot be read is left out, and a warning in the log of Python names it. A question that the
        codec cannot decode is listed as it is stored.

        Args:
            run_id: Return only questions of this run; none if the store has no such run.
            pipeline: Return only questions of the pipeline or graph with this name.
            tag: Return only questions of runs with this tag.
            tenant: Return only questions of runs of this tenant.
            limit: Return at most this many questions.

        Raises:
            ConfigurationError: a name is not text or no id, or `limit` is not a whole number, 1 or more.
            RunCorrupt: the run of `run_id` cannot be read.
            RunStoreUnavailable: the store could not be read.
        """
        check_count("limit", limit, least=1)
        query = RunQuery(pipeline=pipeline, tag=tag, tenant=tenant)
        if run_id is None:
            return (await page_of_questions(self._store, query, self._codec, limit)).items
        try:
            found = await read_header(self._store, run_id)
        except RunNotFound:
            return ()
        matches = query.matches(found.header)
        return (await questions_of_run(self._store, found, self._codec))[:limit] if matches else ()

    async def page(
        self, query: RunQuery = EVERY_RUN, *, limit: int = PAGE, after: str | None = None
    ) -> Page[Question]:
        """Return a page of the questions that wait for an answer, in the order of their runs.

            page = await inbox.page(RunQuery(tenant="acme"))
            while page.next is not None:
                page = await inbox.page(RunQuery(tenant="acme"), after=page.next)

        Questions of one run are in the order asked. A page reads only the logs of the runs on it.

        Args:
            query: The runs whose questions are wanted, and their order; by default all, newest first.
            limit: Maximum number of questions on the page, from 1 to 1,000; by default 50.
            after: `Page.next` of the page before; by default, the first page is returned.

        Returns:
            A `Page`: its `items` are the questions, and its `next` is `None` on the last page.

        Raises:
            ConfigurationError: `limit` is not from 1 to 1,000, or `after` is not from a page in this order.
            RunStoreUnavailable: the store could not be read.
        """
        check_page(limit)
        return await page_of_questions(self._store, query, self._codec, limit, after)

    async def get(self, question_id: str) -> Question:
        """Return a question, open or closed, with its answer or the reason why it cannot be answered.

        `answer` of the question is `None` if it has none, and `closed`, the reason, is empty while the
        question is open. `question_id` is the `Question.id`, such as `"order-1182:3f9a1c20b7d4"`.

        Raises:
            ConfigurationError: `question_id` is not the id of a question.
            QuestionClosed: the run has not asked the question.
            RunNotFound: the store has no such run.
            RunCorrupt: the record of the run cannot be read.
        """
        run_id, key = split_ref(question_id)
        found = await read_header(self._store, run_id)
        recorded = Memo(run_id, await read_log(self._store, found.header))
        asked, given = last_asked(recorded, key), last_answer(recorded, key)
        return replace(
            Question.of(unsealed_question(asked, self._codec), found.header),
            answer=None if given is None else self._unsealed(run_id, given),
            closed=why_closed(recorded, asked, found.now),
        )

    def _unsealed(self, run_id: str, given: AnswerGiven) -> Answer:
        read = unseal_one(run_id, 0, given, lambda one: unseal_entry(one, self._codec))
        return Answer(value=read.answer, reviewer=read.reviewer, rationale=read.rationale, given_at=read.at)

    async def answer(
        self, question_id: str, value: object, *, reviewer: str = "", rationale: str = ""
    ) -> bool:
        """Put the answer to a question on record in the store. A question takes one answer.

        This does not continue the run: `wake`, `serve` or `resume` does, in any process, with the answer.

        Args:
            question_id: The `Question.id`.
            value: The answer, as JSON or as a value that has a form in JSON. It is checked against the JSON
                Schema of the type, or against the options; the step checks it again by the type itself.
            reviewer: The person who answers.
            rationale: The reason for the answer.

        Returns:
            `True` if this was the last open question of the run; `False` if others are still open.

        Raises:
            ConfigurationError: `question_id` is not the id of a question, or another option is not text.
            AnswerRejected: the value is not of the type, none of the options, not possible in JSON or too
                large for the store; or the run has a codec and this inbox has none. The question stays open.
            QuestionClosed: the question was answered, its time is over, or its run does not wait for it.
            RunNotFound: the store has no such run.
            RunInProgress: a process is running the run.
            RunCorrupt: the record of the run cannot be read.
            RunStoreUnavailable: the store fails.
        """
        run_id, key = split_ref(question_id)
        entries: list[Fact] = []
        for _ in range(_TRIES):
            found = await read_header(self._store, run_id)
            found.check_not_running()
            entries = await read_log(self._store, found.header)
            recorded = Memo(run_id, entries)
            given = answer_to(
                recorded,
                key,
                value,
                codec=self._codec,
                now=found.now,
                reviewer=reviewer,
                rationale=rationale,
            )
            try:
                stored = [entry_for(largest_value(self._store), given, self._codec)]
            except ValueNotStorable as error:
                raise AnswerRejected(question_id, str(error)) from error
            is_due = recorded.ended is None or recorded.ended.is_waiting
            with suppress(RevisionConflict):
                if is_due and found.header.owner is None:
                    await foresee(self._store, found)
                await append_own(self._store, log_key(found.header), stored, len(entries))
                return await self._leave(run_id, given, is_due=is_due)
        raise RunConflict(run_id, len(entries))

    async def _leave(self, run_id: str, given: AnswerGiven, *, is_due: bool) -> bool:
        """Remove a question from the header of its run, unless a process has taken up the run.

        With `is_due`, the run is due from now on; without it, the run is paused for something else.
        """
        for _ in range(_TRIES):
            found = await read_header(self._store, run_id)
            header = found.header
            answered = Wait(what="question", id=given.id)
            entries = await read_log(self._store, header)
            asked = positions_of([answered], enumerate(entries, 1))
            left = tuple(position for position in header.questions if position not in asked)
            if header.owner is not None or left == header.questions:
                return not left
            with suppress(RevisionConflict):
                due = first_due(header.due_at, found.now) if is_due else None
                header = replace(
                    header, questions=left, due_at=due, log_revision=len(entries), updated_at=found.now
                )
                await change_header(self._store, found, header)
                await parent_due(self._store, header)
                return not left
        return False
