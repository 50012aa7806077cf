"""`await_human`: a person decides, in the middle of a flow or a function."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Generic, Literal, TypeVar, overload

from pydantic import JsonValue, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python
from typing_extensions import TypedDict, Unpack

from fastroai.callers import warn_caller
from fastroai.contracts import adapter_of
from fastroai.errors import (
    ConfigurationError,
    FastroAIError,
    FastroAIWarning,
    QuestionTimedOut,
    StepExecutionError,
    ValueNotStorable,
)
from fastroai.functions.configuring import configuration, tell_reviewers
from fastroai.functions.declaring.schemas import digest
from fastroai.functions.errors import HumanTimeoutError
from fastroai.functions.kept_calls import note_review
from fastroai.human.answers import question_ref
from fastroai.human.asking import Ask, PreparedAnswers, json_schema_of, kept_log
from fastroai.human.console import ask_at_terminal, has_terminal
from fastroai.human.inbox import Inbox
from fastroai.pipelines import Pipeline, PipelineConfig
from fastroai.places import without_attempts
from fastroai.records import NOT_GIVEN, Duration
from fastroai.runs.openings import store_of
from fastroai.runtime import Scope, current_scope
from fastroai.runtime.concurrency.tasks import end_task
from fastroai.runtime.facts import AnswerGiven, QuestionAsked, question_id
from fastroai.runtime.scope import RUNS, current_tool_calls, make_current
from fastroai.steps import StepContext, step
from fastroai.steps.context import scope_of
from fastroai.steps.durability import step_place
from fastroai.store.backends.run_memory import process_run_store
from fastroai.store.record.headers import read_header
from fastroai.store.record.log_of_scope import run_of
from fastroai.store.run_store import RunStore

T = TypeVar("T")

EVERY: Final = 0.5
"""Seconds between two looks for an answer, outside of runs."""
_RAISE: Final = "raise"


@dataclass(frozen=True, slots=True)
class HumanReviewContext:
    """A question for a person, with the information that they need for the decision; for `await_human`.

    `trigger` is the reason why a person is asked. `artifacts` are objects for the person to look at, by name:
    plain JSON, or values that pydantic can convert to it.
    """

    question: str
    trigger: str = ""
    """The reason why a person is asked."""
    artifacts: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Objects for the person to look at, by name: plain JSON, or values that pydantic can convert to it."""

    def as_question(self) -> JsonValue:
        """Return the question as the inbox shows it, as JSON.

        Without a `trigger` and `artifacts`, this is the text of the question. Otherwise, it is a dict with
        the keys `question`, `trigger` and `artifacts`, and each artifact is converted to JSON.

        Raises:
            ValueNotStorable: pydantic cannot convert an artifact to JSON.
        """
        if not self.trigger and not self.artifacts:
            return self.question
        artifacts = {name: _as_json(name, value) for name, value in self.artifacts.items()}
        return {"question": self.question, "trigger": self.trigger, "artifacts": artifacts}


@dataclass(frozen=True, slots=True)
class HumanDecision(Generic[T]):
    """The decision of a person, which `await_human` returns.

    If nobody answered in time, `value` is the `on_timeout` of `await_human`, `reviewer` and `rationale` are
    empty, and `decided_at` is the deadline.
    """

    value: T
    """The decision, as a value of the `decision_type`."""
    reviewer: str
    """The person who decided; empty if the answer came without a name, or nobody answered in time."""
    rationale: str
    """The reason for the decision; empty if none was given."""
    decided_at: datetime
    """The time of the decision, in UTC; if nobody answered, the time until which an answer was taken."""
    review_id: str
    """The id of the question, as the inbox has it; empty if a test has prepared the answer."""


def _as_json(name: str, value: object) -> JsonValue:
    try:
        made: JsonValue = to_jsonable_python(value)
    except (PydanticSerializationError, ValueError) as error:
        what, reason = f"artifact {name!r} of the question", f"{error}; convert it to plain JSON"
        raise ValueNotStorable(what, "", type(value).__name__, reason) from error
    return made


class ReviewOptions(TypedDict, Generic[T], total=False):
    """The keyword arguments of `await_human`, which explains them."""

    options: Sequence[T] | None
    timeout: Duration | None
    on_timeout: T | Literal["raise"]
    to: str


@overload
async def await_human(
    context: HumanReviewContext, decision_type: type[T], **options: Unpack[ReviewOptions[T]]
) -> HumanDecision[T]: ...
@overload
async def await_human(
    context: HumanReviewContext, decision_type: Any, **options: Unpack[ReviewOptions[Any]]
) -> HumanDecision[Any]: ...
@overload
async def await_human(
    context: HumanReviewContext, **options: Unpack[ReviewOptions[str]]
) -> HumanDecision[str]: ...
async def await_human(
    context: HumanReviewContext,
    decision_type: Any = str,
    *,
    options: Sequence[Any] | None = None,
    timeout: Duration | None = None,
    on_timeout: object = _RAISE,
    to: str = "",
) -> HumanDecision[Any]:
    """Ask a person, wait for the decision, and return it as a `HumanDecision`: the value, by whom, and why.

    It is `ctx.ask` for flows and functions.

        decision = await await_human(
            HumanReviewContext("Refund $80?", trigger="above $50", artifacts={"ticket": ticket}),
            Literal["refund", "refuse"],
        )

    In a flow, or any other run that a store keeps, the run ends `paused` until there is an answer, so that no
    process waits: the call of a flow raises `FlowStopped`, and `wake` or `resume` continues. The question is
    in the inbox, and `fastroai review` answers it. A question is known by its content: `context`,
    `decision_type`, `options` and `to`. So the order in which parallel branches ask different questions makes
    no difference; and if the content has changed when the run is resumed, it is a new question.

    Where no store keeps a run, this waits in the process. If `configure(store=...)` names a store, the
    question is in its inbox. If the process ends, the question stays there, and nobody waits for the answer:
    ask in a flow that a store keeps if the work has to continue. Without a store, a script asks at its
    terminal. If there is none, `Inbox()` has the question, and code of this process answers it there. A
    warning is issued if nobody is told of the question: no store, no terminal and no `review_sink` of
    `configure`.

    Args:
        context: The question, and the information that a person needs for it.
        decision_type: The type of the decision, which must have a JSON Schema.
        options: The only decisions that can be made; by default, any of that type.
        timeout: Seconds, from when the question is first asked, after which no answer is taken; by default,
            there is no limit.
        on_timeout: The value of the decision after that time; it needs `timeout`. The text `"raise"`, the
            default, always means that `HumanTimeoutError` is raised.
        to: The people to ask: a label that inboxes show.

    Raises:
        HumanTimeoutError: nobody answered in time.
        ConfigurationError: an option is invalid, such as one of `options` that is not of the decision type,
            or `on_timeout` without `timeout`.
        ValueNotStorable: the question, or one of `options`, cannot be stored.
    """
    if not isinstance(context, HumanReviewContext):
        raise ConfigurationError("context", context, "a HumanReviewContext")
    is_raised = isinstance(on_timeout, str) and on_timeout == _RAISE
    after = NOT_GIVEN if is_raised else _checked("on_timeout", on_timeout, decision_type)
    if options is not None:
        if isinstance(options, str) or not isinstance(options, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError("options", options, "a list of the answers that can be given")
        options = [_checked("options", one, decision_type) for one in options]
    ask = Ask(
        question=context.as_question(),
        answer_type=decision_type,
        options=options,
        timeout=timeout,
        on_timeout=after,
        to=to,
        name="await_human",
    )
    scope = current_scope()
    if scope is not None and (prepared := PreparedAnswers.around(scope)) is not None:
        return HumanDecision(prepared.answer(ask), "", "", datetime.now(UTC), "")
    if scope is None or run_of(scope) is None:
        return await _decided_in_process(ask, scope)
    return _decided(ask, scope)


def _checked(option: str, value: object, decision_type: Any) -> object:
    """Return a decision given as an option, as pydantic validates it. Raises `ConfigurationError`."""
    adapter = adapter_of(decision_type)
    try:
        return value if adapter is None else adapter.validate_python(value)
    except ValidationError as error:
        name = decision_type.__name__ if isinstance(decision_type, type) else repr(decision_type)
        also = "'raise', or " if option == "on_timeout" else ""
        expected = f"{also}a value of decision_type, which is {name}: {error.errors()[0]['msg']}"
        raise ConfigurationError(option, value, expected) from error


def _decided(ask: Ask, scope: Scope) -> HumanDecision[Any]:
    """Return the decision on record. Without one, put the question on record, and halt the step."""
    _, run = kept_log(scope, "the answer")
    # The step of the run halts: functions that are called in it do not halt by themselves.
    step_scope = next(one for one in scope.lineage() if one.parent is not None and one.parent.kind in RUNS)
    ask = replace(ask, name=_name(ask, scope))
    place = step_place(step_scope)
    key = question_id(place, ask.name)
    review_id = question_ref(scope.run_id, key)
    note_review(scope, review_id)
    try:
        value: Any = ask.answered(step_scope, place, step_scope.ordinal)
    except QuestionTimedOut as error:
        raise HumanTimeoutError(error.question_id, error.deadline) from None
    given = run.recorded.last(("question", key), AnswerGiven)
    if given is not None:
        return HumanDecision(value, given.reviewer, given.rationale, given.at, review_id)
    asked = run.recorded.first(("question", key), QuestionAsked)
    deadline = 0.0 if asked is None or asked.deadline is None else asked.deadline
    return HumanDecision(value, "", "", datetime.fromtimestamp(deadline, UTC), review_id)


def _name(ask: Ask, scope: Scope) -> str:
    """Return a name for the question that does not depend on order. Equal questions are numbered."""
    asks = next(one for one in scope.lineage() if one.kind == "step")
    around = without_attempts(step_place(asks))
    schema = json_schema_of("decision_type", ask.answer_type)
    options = ask.options_in_json("the question")
    asked: Any = [ask.question, schema, None if options is None else [*options], ask.to]
    name = digest([current_tool_calls.get().key, around, *asked])
    number = asks.count_child(f"question {name}")
    return name if number == 1 else f"{name}.{number}"


async def _decided_in_process(ask: Ask, scope: Scope | None) -> HumanDecision[Any]:
    """Ask in a separate run, outside of all scopes, and wait for its end."""
    store = store_of(None, configuration().store) or process_run_store()
    if store is process_run_store() and not has_terminal() and configuration().review_sink is None:
        advice = "configure(review_sink=...) tells people, and Inbox() has the question"
        warn_caller(f"nobody is told of a question to a person: {advice}", FastroAIWarning)
    context = copy_context()
    context.run(make_current, None)
    asking = asyncio.create_task(_decided_in(store, ask), context=context)
    try:
        decision = await asking
    finally:
        await end_task(asking)
    if scope is not None:
        note_review(scope, decision.review_id)
    return decision


async def _decided_in(store: RunStore, question: Ask) -> HumanDecision[Any]:
    decisions: list[HumanDecision[Any]] = []

    @step
    async def ask(ctx: StepContext[None]) -> None:
        decisions.append(_decided(question, scope_of(ctx)))

    pipeline = Pipeline[None, Any, None](
        "await_human", {"ask": ask}, config=PipelineConfig(store=store, sinks=[tell_reviewers])
    )
    try:
        result = await pipeline.execute()
        while not decisions:
            await _answered(store, result.run_id, pipeline)
            result = await pipeline.resume(result.run_id)
    except StepExecutionError as error:
        raise error.original_error from None
    return decisions[0]


async def _answered(store: RunStore, run_id: str, pipeline: Pipeline[Any, Any, Any]) -> None:
    """Wait for an answer, or until its time is over. If this is cancelled, close the question."""
    at_terminal: asyncio.Task[None] | None = None
    if store is process_run_store() and has_terminal():
        inbox = Inbox()
        (asked,) = await inbox.list(run_id=run_id)
        at_terminal = asyncio.create_task(ask_at_terminal(asked, inbox))
    try:
        while not (await read_header(store, run_id)).is_due:
            if at_terminal is None:
                await asyncio.sleep(EVERY)
            elif (await asyncio.wait([at_terminal], timeout=EVERY))[0]:
                at_terminal = at_terminal.result()
    except asyncio.CancelledError:
        with suppress(FastroAIError):
            await pipeline.cancel(run_id)
        raise
    finally:
        if at_terminal is not None:
            await end_task(at_terminal)
