"""A question in the middle of a step: it is answered from the record, or the step halts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from weakref import WeakKeyDictionary

from pydantic import JsonValue
from pydantic.errors import PydanticInvalidForJsonSchema

from fastroai.contracts import adapter_of
from fastroai.errors import ConfigurationError, QuestionTimedOut, ValueNotStorable
from fastroai.human.answers import question_ref
from fastroai.human.halting import Halted
from fastroai.records import Duration, NotGiven, in_seconds
from fastroai.runtime import Scope
from fastroai.runtime.facts import AnswerGiven, QuestionAsked, question_id
from fastroai.runtime.options import check_seconds
from fastroai.store.record.log import Log
from fastroai.store.record.log_of_scope import log_of
from fastroai.store.record.payloads import unseal
from fastroai.store.record.runs import DurableRun
from fastroai.store.record.values import value_from_json, value_to_json

logger = logging.getLogger("fastroai.human")


def kept_log(scope: Scope, what: str) -> tuple[Log, DurableRun]:
    """Return the log of a run that is about to wait, and the run on record. Raises `ConfigurationError`."""
    log = log_of(scope)
    if log is None or log.run is None:
        expected = f"a store that keeps the run, which waits for {what}: execute(..., store=...)"
        raise ConfigurationError("store", None, expected)
    return log, log.run


def check_deadline(called: str, timeout: Duration | None, on_timeout: object) -> None:
    """Check the timeout of a wait, which may be longer than an hour, and its `on_timeout`.

    Raises:
        ConfigurationError: one of them is invalid.
    """
    check_seconds(f"timeout of {called}", timeout)
    if not isinstance(on_timeout, NotGiven) and timeout is None:
        raise ConfigurationError("on_timeout", on_timeout, "timeout= too")


def json_schema_of(option: str, declared: object) -> dict[str, Any]:
    """Return the JSON Schema of the type of an answer or message. Raises `ConfigurationError`."""
    adapter = adapter_of(declared)
    try:
        if adapter is not None:
            return adapter.json_schema()
    except PydanticInvalidForJsonSchema:
        pass
    raise ConfigurationError(option, declared, "a type with a JSON Schema, such as bool")


prepared_answers: Final = WeakKeyDictionary[Scope, "PreparedAnswers"]()
"""The answers that a test has prepared, by the scope in which the questions are asked."""


@dataclass(frozen=True, slots=True)
class PreparedAnswers:
    """The answers that a test gives beforehand to the questions of a step."""

    answers: Mapping[str, object] | Callable[[object], object]
    """The answers by the texts or names of the questions; or a function from a question to its answer."""

    @staticmethod
    def around(scope: Scope | None) -> PreparedAnswers | None:
        """Return the answers that a scope has; `None` if people are asked."""
        scopes = () if scope is None or not prepared_answers else scope.lineage()
        return next((prepared_answers[one] for one in scopes if one in prepared_answers), None)

    def answer(self, asked: Ask) -> object:
        """Return the answer to a question, checked as that of a person is.

        Raises:
            ConfigurationError: there is no answer, or it is not of the type, or none of the options.
        """
        question = asked.question
        if callable(self.answers):
            return self._checked(asked, repr(question), self.answers(question))
        text = question.get("question") if isinstance(question, Mapping) else question
        name = next((one for one in (text, asked.name) if isinstance(one, str) and one in self.answers), None)
        if name is None:
            raise ConfigurationError("answers", tuple(self.answers), f"an answer to the question {text!r}")
        return self._checked(asked, name, self.answers[name])

    @staticmethod
    def _checked(asked: Ask, name: str, given: object) -> object:
        try:
            answer = value_to_json(given, asked.answer_type, f"the answer to {name!r}")
            return asked.read(answer, asked.options_in_json(f"the question {name!r}"))
        except (ValueError, ValueNotStorable) as error:
            raise ConfigurationError(
                "answers", {name: given}, f"an answer of the declared type: {error}"
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A question of a step, with its options and its timeout."""

    question: object
    answer_type: Any
    options: Sequence[object] | None
    timeout: Duration | None
    """Seconds from the time when the question is first asked."""
    on_timeout: object
    """The answer when the time is over; `NOT_GIVEN` raises `QuestionTimedOut`."""
    to: str
    name: str

    def __post_init__(self) -> None:
        check_deadline("a question", self.timeout, self.on_timeout)
        if not isinstance(self.to, str):
            raise ConfigurationError("to", self.to, "text")
        if not isinstance(self.name, str) or not self.name:
            raise ConfigurationError("name", self.name, "a non-empty text")
        if self.options is not None and (isinstance(self.options, str) or not self.options):
            raise ConfigurationError("options", self.options, "a list of the answers that can be given")

    def answered(self, scope: Scope, place: str, visit: int) -> object:
        """Return the recorded answer for the step at a place. If there is none, put the question on record.

        In a test, return the prepared answer.

        Raises:
            Halted: there is no answer yet.
            QuestionTimedOut: there is no answer, the time is over, and `on_timeout` is not given.
            ConfigurationError: no store keeps the run, or there is no JSON Schema of the answer.
            ValueNotStorable: the question, or an option, cannot be stored.
        """
        if (prepared := PreparedAnswers.around(scope)) is not None:
            return prepared.answer(self)
        log, run = kept_log(scope, "the answer")
        key = question_id(place, self.name)
        before = run.recorded.first(("question", key), QuestionAsked)
        asked = self._asked(scope, key, visit, before, run.now)
        given = run.recorded.last(("question", key), AnswerGiven)
        if given is not None:
            try:
                return self.read(unseal(given.answer, run.codec), asked.options)
            except ValueError as error:
                ref = question_ref(scope.run_id, key)
                logger.warning("question %r is asked again: its answer does not fit: %s", ref, error)
        if before is not None and asked.deadline is not None and run.now >= asked.deadline:
            if not isinstance(self.on_timeout, NotGiven):
                return self.on_timeout
            raise QuestionTimedOut(
                question_ref(scope.run_id, key), datetime.fromtimestamp(asked.deadline, UTC)
            )
        log.halt(run, asked, place)
        raise Halted

    def _asked(
        self, scope: Scope, key: str, visit: int, before: QuestionAsked | None, now: float
    ) -> QuestionAsked:
        what = f"the question of step {scope.name!r}"
        deadline = None if self.timeout is None else now + in_seconds(self.timeout)
        return QuestionAsked(
            scope.name,
            value_to_json(self.question, None, what),
            part=scope.part,
            visit=visit,
            attempt=scope.attempt,
            id=key,
            name=self.name,
            answer_schema=json_schema_of("answer_type", self.answer_type),
            options=self.options_in_json(what),
            deadline=deadline if before is None else before.deadline,
            first_at=None if before is None else before.timestamp,
            to=self.to,
        )

    def options_in_json(self, what: str) -> tuple[JsonValue, ...] | None:
        """Return the options as a store keeps them. Raises `ValueNotStorable`."""
        if self.options is None:
            return None
        return tuple(value_to_json(one, self.answer_type, f"an option of {what}") for one in self.options)

    def read(self, stored: JsonValue, options: Sequence[JsonValue] | None = None) -> object:
        """Return an answer from its JSON. Raises `ValueError`."""
        if options is not None and stored not in options:
            raise ValueError(f"{stored!r} is none of the options")
        return value_from_json(stored, self.answer_type)
