"""Answers on their way to the log: each is for an open question, and fits its type and options."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from fastroai.errors import AnswerRejected, ConfigurationError, QuestionClosed, ValueNotStorable
from fastroai.human.schema_checks import problems_of
from fastroai.runtime.facts import AnswerGiven, QuestionAsked, RunFinished
from fastroai.store.record.memo import Memo
from fastroai.store.record.payloads import PayloadCodec, is_sealed, seal
from fastroai.store.record.unsealing import unseal_one, unseal_payloads
from fastroai.store.record.values import value_to_json


def question_ref(run_id: str, key: str) -> str:
    """Return the id of a question that is unique among all runs."""
    return f"{run_id}:{key}"


def split_ref(question_id: str) -> tuple[str, str]:
    """Split the id of a question into the run and the id in that run. Raises `ConfigurationError`."""
    run_id, colon, key = question_id.rpartition(":") if isinstance(question_id, str) else ("", "", "")
    if not colon or not run_id or not key:
        expected = "the id of a question, such as 'order-1182:3f9a1c20b7d4'"
        raise ConfigurationError("question_id", question_id, expected)
    return run_id, key


def answer_to(
    recorded: Memo,
    key: str,
    value: object,
    *,
    codec: PayloadCodec | None,
    now: datetime,
    reviewer: str = "",
    rationale: str = "",
) -> AnswerGiven:
    """Return the answer to an open question of a run, in the form in which it is stored.

    Raises:
        QuestionClosed: the run does not wait for the answer, or the time of the question is over.
        AnswerRejected: the value is not of the type, or none of the options.
        RunCorrupt: the codec cannot decode the question.
        ConfigurationError: `reviewer` or `rationale` is not text.
    """
    for option, text in (("reviewer", reviewer), ("rationale", rationale)):
        if not isinstance(text, str):
            raise ConfigurationError(option, text, "text")
    ref, asked = question_ref(recorded.opened.run_id, key), last_asked(recorded, key)
    if why := why_closed(recorded, asked, now):
        raise QuestionClosed(ref, why)
    return AnswerGiven(
        asked.step_id,
        seal(_checked(ref, asked, value, codec), codec),
        part=asked.part,
        visit=asked.visit,
        branch=asked.branch,
        id=key,
        name=asked.name,
        reviewer=reviewer,
        rationale=rationale,
    )


def answers_to(
    recorded: Memo, answers: Mapping[str, object] | None, now: datetime, *, codec: PayloadCodec | None
) -> list[AnswerGiven]:
    """Return the answers with which a run is resumed, given by question. Raises as `answer_to`.

    `now` is the time of the store's clock.
    """
    if answers is not None and not isinstance(answers, Mapping):
        raise ConfigurationError("answers", answers, "a mapping of question ids to answers")
    given = []
    for question_id, value in (answers or {}).items():
        run_id, key = split_ref(question_id)
        if run_id != recorded.opened.run_id:
            raise QuestionClosed(question_id, f"run {recorded.opened.run_id!r} has not asked it")
        given.append(answer_to(recorded, key, value, codec=codec, now=now))
    return given


def last_asked(recorded: Memo, key: str) -> QuestionAsked:
    """Return a question as it was last asked. Raises `QuestionClosed` if the run has not asked it."""
    if (asked := recorded.last(("question", key), QuestionAsked)) is None:
        raise QuestionClosed(
            question_ref(recorded.opened.run_id, key),
            "the run has not asked it; `fastroai review list` or Inbox(store).list() has the open ones",
        )
    return asked


def why_closed(recorded: Memo, asked: QuestionAsked, now: datetime) -> str:
    """Return why a question takes no answer; empty if it takes one."""
    ended = recorded.ended
    if (given := last_answer(recorded, asked.id)) is not None:
        who = f" by {given.reviewer}" if given.reviewer else ""
        return f"it was answered{who} at {given.at:%Y-%m-%d %H:%M:%S} UTC"
    if ended is None or asked.id not in ended.questions:
        status = "running or interrupted" if ended is None else ended.status
        return f"the run is {status}, and does not wait for the answer"
    if asked.deadline is not None and now.timestamp() >= asked.deadline:
        until = datetime.fromtimestamp(asked.deadline, UTC)
        return f"its deadline was {until:%Y-%m-%d %H:%M:%S} UTC"
    return ""


def last_answer(recorded: Memo, key: str) -> AnswerGiven | None:
    """Return the answer that holds for a question: the run has not asked again since it was given."""
    for entry in reversed(recorded.entries):
        if isinstance(entry, AnswerGiven) and entry.id == key:
            return entry
        if isinstance(entry, QuestionAsked) and entry.id == key:
            return None
        if isinstance(entry, RunFinished) and key in entry.questions:
            return None
    return None


def given_json(value: object) -> JsonValue:
    """Return an answer or a message as JSON. Raises `ValueError` if a store could not give it back."""
    try:
        return value_to_json(to_jsonable_python(value, inf_nan_mode="constants"), None, "the value")
    except ValueNotStorable as error:
        raise ValueError(error.reason) from error


def _checked(ref: str, asked: QuestionAsked, value: object, codec: PayloadCodec | None) -> JsonValue:
    if codec is None and is_sealed(asked.question):
        raise AnswerRejected(
            ref, "the run has a codec; pass it as codec=, so that the answer is stored encoded, too"
        )
    asked = unseal_one(split_ref(ref)[0], 0, asked, lambda one: unseal_payloads(one, codec))
    try:
        given = given_json(value)
    except ValueError as error:
        raise AnswerRejected(ref, f"JSON cannot hold it: {error}") from error
    if asked.options is not None:
        if not any(given == one and type(given) is type(one) for one in asked.options):
            raise AnswerRejected(ref, f"it is none of the options: {', '.join(map(repr, asked.options))}")
    elif asked.answer_schema is not None and (problems := problems_of(given, asked.answer_schema)):
        raise AnswerRejected(ref, "; ".join(problems))
    return given
