"""The facts of runs, steps, agent calls, requests and tools: one vocabulary for machines, logs and traces.

Packages with facts of their own declare these themselves: see `fastroai.runtime.kinds`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from time import time
from typing import Annotated, Any, ClassVar, Final, Literal, Protocol, Self, TypeAlias

from pydantic import (
    Field,
    JsonValue,
    PlainSerializer,
    PlainValidator,
)
from typing_extensions import override

from fastroai.data_kinds import Definition, Name, Payload, Text
from fastroai.errors import ConfigurationError
from fastroai.places import quoted, step_name, without_attempts
from fastroai.records import RequestRecord, Usage
from fastroai.runtime.fact_base import (
    NOWHERE,
    Begins,
    Ends,
    Fact,
    FailureFacts,
    Key,
    Notes,
    Outcome,
    Part,
    PlacedFact,
    PlanFact,
    Raised,
    RunFact,
    Telling,
    checked_text,
)
from fastroai.runtime.retrying.classification import FailureClass
from fastroai.runtime.retrying.retry import RetriesUsed

FORMAT: Final = 3
"""Version of the format of logs that are written; `fastroai.store.record.formats` has those that are read."""

RunStatus = Literal["running", "finished", "paused", "failed", "cancelled"]
"""Status of a run. A `paused` run goes on when somebody answers its question or resumes it."""

ReasonCode: TypeAlias = str
"""Reason for which a run ended or paused, for programs. Packages that end runs have reasons of their own.

- finished: `completed`;
- paused: the thing that it waits for, the first that applies: an answer (`question`), a `message`, another
  thing (see `Wait.what`), the end of a `sleep`; or a conversation is `incomplete`; or somebody asked for the
  pause (`pause_requested`);
- cancelled: `cancelled`; in a workflow also `killed`, at a gate;
- failed: a step or node, or the decision after one (`step_failed`); a budget of the run or around it
  (`budget_exceeded`), or a time limit of them (`timed_out`); any other exception from around the steps
  (`error`). Graphs and workflows: also a branch that took too long (`branch_timeout`) or went in a circle of
  nodes that have all reached their `max_visits`; the `max_steps` of a graph, or the loops of a workflow; the
  `max_rounds` of a workflow; a graph without a terminal that was reached (`no_terminal`); values of branches
  that could not be brought together (`memory_conflict`).
"""


@dataclass(slots=True, kw_only=True)
class UnknownFact(Notes):
    """A fact that was read from a log, and whose kind no imported module declares.

    `fields` has the fact as it is in the log. To resume a run with a fact of this kind, import the module
    that declares the kind first; otherwise `resume` raises `UnknownFactKind`.
    """

    kind: str  # type: ignore[misc]  # pyright: ignore[reportIncompatibleVariableOverride]
    fields: Payload[dict[str, JsonValue]]
    """The fact as the log has it."""
    identity: ClassVar = ("unknown", "kind")

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        shown = json.dumps(self.fields, ensure_ascii=False)
        return (f"{self.kind}, a kind of fact that no imported module declares: {shown}",)


def what_changed(names: Sequence[str]) -> str:
    """Return which declared parts of a call have changed, as the end of a sentence."""
    *before, last = names
    listed = f"{', '.join(before)} and {last}" if before else last
    verb = "has" if not before and last not in _PLURALS else "have"
    return f"its {listed} {verb} changed since its answer was put on record"


_PLURALS: Final = ("instructions", "settings")


class Spender(Protocol):
    """An object that knows its usage, such as a scope."""

    def spent(self) -> Usage:
        """Return a snapshot of the usage."""
        ...


@dataclass(frozen=True, slots=True)
class FailedAgentCall:
    """An agent call in the code of a flow that has failed."""

    place: str
    """The attempt at the step or function that made it."""
    call: Name[str]
    """Agent and number of the call, as in `RequestPlace.call`; empty for the code of the place itself."""
    attempt: int
    """Number of the attempt at that call."""

    def is_inside(self, other: FailedAgentCall) -> bool:
        """Return whether a tool of the other call made this one, or a function that such a tool called."""
        if self.place == other.place:
            return self.call.startswith(f"{other.call}/" if other.call else "")
        return self.place.startswith(f"{other.place}/")


Told: TypeAlias = Annotated[Spender | None, Field(exclude=True), PlainValidator(lambda given: given)]
Written: TypeAlias = Annotated[Mapping[str, object], Field(exclude=True), PlainValidator(lambda given: given)]
Asked: TypeAlias = Annotated[
    Callable[[], str] | None, Field(exclude=True), PlainValidator(lambda given: given)
]
"""Types of fields that only the process of the run has; the log has them in other facts or another form."""


_NOTHING_WRITTEN: Final[Mapping[str, object]] = {}


def _spent(spender: Spender | None, fact: object) -> Usage:
    if spender is None:
        name = type(fact).__name__
        raise ConfigurationError(
            "usage",
            name,
            "an entry that this process made. A log does not hold usage: read trace.attempts or "
            "trace.steps instead",
        )
    return spender.spent()


# --- what halted steps wait for ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The thing that a halted step waits for, such as the answer to a question or a point in time."""

    what: str
    """The kind of thing: `question`, `message`, `sleep`, or a word of the package that waits."""
    id: str
    """Identifies the wait in its run, whatever the attempt and the process: 12 hexadecimal digits."""
    name: str = ""
    """The name of the message, or of another thing."""
    deadline: float | None = None
    """Time at which the wait ends by itself, in seconds since 1970; `None` if it has no end."""
    began: float | None = None
    """Time at which the step first waited, in seconds since 1970; `None` if it is not on record."""
    why: Text[str] = ""
    """The reason for the wait, for people, if there is more to say."""

    @property
    def until(self) -> datetime | None:
        """Time in UTC at which the wait ends by itself: the end of a sleep, or of the time to wait.

        For a wait of your own (`ctx.wait_for`), the time at which the step looks again. `None` if there is no
        such time.
        """
        return None if self.deadline is None else datetime.fromtimestamp(self.deadline, UTC)

    @property
    def in_full(self) -> str:
        """The whole wait as text for people, with its reason if it has one: `waits for file 'a.txt': …`."""
        return f"{self}: {self.why}" if self.why else str(self)

    @property
    def thing(self) -> str:
        """The thing that the step waits for, in words: its kind and its name, as in `file 'report.txt'`."""
        what = self.what.replace("_", " ")
        return f"{what} {self.name!r}" if self.name else what

    def __str__(self) -> str:
        if self.what == "sleep":
            return f"sleeps until {self.until:%Y-%m-%d %H:%M:%S} UTC"
        waits = "waits for an answer" if self.what == "question" else f"waits for {self.thing}"
        if self.what not in ("question", "message") and self.until is not None:
            return f"{waits}, and looks again at {self.until:%Y-%m-%d %H:%M:%S} UTC"
        return waits if self.until is None else f"{waits} until {self.until:%Y-%m-%d %H:%M:%S} UTC"


# --- runs ---


def _whole_part(given: object) -> Part:
    if isinstance(given, Part):
        return given
    if not isinstance(given, dict) or {"run_id", "name"} - given.keys():
        raise ValueError("expected a JSON object with the run_id and the name of the run")
    return Part(
        checked_text(given["run_id"]),
        checked_text(given["name"]),
        tuple(map(checked_text, given.get("path", ()))),
    )


WholePart: TypeAlias = Annotated[
    Part,
    PlainSerializer(lambda part: {"run_id": part.run_id, "name": part.name, "path": part.path}),
    PlainValidator(_whole_part),
]
"""Part that is stored with the id and the name of the run, which other facts do not repeat."""


@dataclass(slots=True, kw_only=True)
class RunStarted(RunFact):
    """A run of any kind began. It is the first fact in the log of the run.

    Listeners (`on_event`) get it again each time that the run is resumed, and also for nested runs, which
    have none in the log.
    """

    kind: ClassVar[str] = "run_started"
    part: WholePart = NOWHERE
    format: int = FORMAT
    definition: Definition[JsonValue] = None
    """The shape of the pipeline or graph, which is compared when the run is resumed."""
    inputs: Mapping[Text[str], Payload[Any]] = field(default_factory=dict)
    forked_from: str | None = None
    budgets: list[JsonValue] | None = None
    """The budgets that the caller gave this run, as plain data; `None` without any."""

    @property
    def steps(self) -> tuple[str, ...]:
        """The ids of the steps or nodes in the definition of the run; empty for a run of rows (`map`)."""
        steps = self.definition.get("steps") if isinstance(self.definition, dict) else None
        return tuple(steps) if isinstance(steps, dict) else ()

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        source = f", forked from {self.forked_from!r}" if self.forked_from else ""
        what = f"{run.shape(self.definition)} {self.pipeline!r}{run.version(self.definition)}"
        return (f"run {self.run_id!r} of {what} began{source}{run.unread(self.definition)}",)


@dataclass(slots=True, kw_only=True)
class RunResumed(RunFact):
    """A process resumed the run. Everything that had started and not ended starts again.

    Only the log and traces have this fact. Listeners (`on_event`) get a `RunStarted` when a run is resumed.
    """

    kind: ClassVar[str] = "run_resumed"
    reopens: ClassVar = True
    inputs: Mapping[Text[str], Payload[Any]] = field(default_factory=dict)
    """Inputs that were replaced when the run was resumed."""
    definition: Definition[JsonValue] = None
    """The new shape, if the run was resumed by force although its shape had changed."""
    budgets: list[JsonValue] | None = None
    """The budgets that the caller gave the run in place of earlier ones; `None` to keep those."""

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        stopped = ", ".join(f"{place}{run.cost_until(place, self.at)}" for place in run.running)
        found = f"; its process had died or stopped in {stopped}" if stopped else ""
        given = f"; inputs given anew: {', '.join(self.inputs)}" if self.inputs else ""
        changed = ""
        if self.definition:
            changed = f"; the {run.shape(self.definition)} had changed{run.version(self.definition)}"
        return (f"the run was resumed{found}{given}{changed}",)


@dataclass(slots=True, kw_only=True)
class RunFinished(RunFact, PlanFact):
    """A run ended or paused. Unless it is `finished`, it goes on when it is resumed.

    A run that its own rules ended, such as `max_visits` of a graph or a `kill` at a gate, ends in the same
    way again. For nested runs, only listeners (`on_event`) get this event. For a run whose task was
    cancelled, only the log has it.
    """

    kind: ClassVar[str] = "run_finished"
    short: ClassVar = "the run {0.status}"
    status: RunStatus
    reason: Text[str] = ""
    """The reason, for people."""
    reason_code: ReasonCode | None = None
    """The reason, for programs; `None` if it is not on record, as in a log of an earlier version."""
    resume_at: tuple[str, ...] = ()
    """The steps or nodes with which a run that is not `finished` goes on when it is resumed."""
    waits: tuple[Wait, ...] = ()
    """What the halted steps of a paused run wait for."""
    step_id: str = ""
    """The step whose failure made the run fail, if one did; in a workflow, the step that gave its output."""
    failure: FailureFacts | None = None
    agent_calls: tuple[FailedAgentCall, ...] = ()
    """Agent calls in the code of flows that made the run fail. They are made anew when the run is resumed."""
    failed_calls: tuple[FailedAgentCall, ...] = ()
    """All calls in the code of flows whose failures made the run fail. Failures of other calls, which the
    code has handled, are given back to it when the run is resumed."""
    duration_ms: float = 0.0
    raised: Raised = field(default=None, compare=False, repr=False)
    spent_in: Told = field(default=None, compare=False, repr=False)

    @property
    def questions(self) -> tuple[str, ...]:
        """The ids of the questions for which the paused run waits, first asked first.

        They are unique in the run only. `Inbox` takes longer ids: the run id, `:`, and this id.
        """
        return tuple(one.id for one in self.waits if one.what == "question")

    @property
    def is_waiting(self) -> bool:
        """Whether the run is paused until something comes: an answer, a message, a time, or a row of `map`.

        Then `wake` resumes the run when that has come. False for a run that is paused because somebody asked
        for it, or because a conversation is incomplete: such a run needs a call of `resume`.
        """
        return self.reason_code == "rows_waiting" or any(one.what == self.reason_code for one in self.waits)

    @property
    def error(self) -> BaseException | None:
        """The exception with which the run failed; `None` if it did not fail.

        In a fact from a log or a trace, it is a `RecordedError` with the type and message of the exception.
        """
        if self.raised is not None or self.failure is None:
            return self.raised
        return self.failure.as_error()

    @property
    def usage(self) -> Usage:
        """The usage of the run: its cost, tokens and requests, also those of earlier processes.

        The events that listeners (`on_event`, `stream`) get have it. In a fact from a log or a trace, this
        raises `ConfigurationError`.
        """
        return _spent(self.spent_in, self)

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        stopped = ", ".join(f"{place}{run.attempt(place, self.at)[1]}" for place in run.running)
        why = "" if self.failure is None else f": {self.failure}"
        cancelled = f"; cancelled with it: {stopped}" if stopped else ""
        return (f"the run {'was ' if self.status == 'cancelled' else ''}{self.status}{why}{cancelled}",)


@dataclass(slots=True, kw_only=True)
class PauseRequested(RunFact, PlanFact):
    """Somebody asked the run to pause: running steps may finish, no other step starts, and the run pauses.

    A nested pipeline or graph has a `PauseRequested` of its own.
    """

    kind: ClassVar[str] = "pause_requested"
    says: ClassVar = None


@dataclass(slots=True, kw_only=True)
class StopRequested(RunFact, PlanFact):
    """The run was asked to stop at once: running steps are cancelled, and the run ends `cancelled`.

    `reason` says why, in words: `cancel` was called for the run, or the task that ran it was cancelled. In
    the second case, only the log and traces have this fact, and listeners do not get it.
    """

    kind: ClassVar[str] = "stop_requested"
    says: ClassVar = None
    reason: Text[str]


@dataclass(slots=True)
class StepFact(Fact):
    """A fact about a step, which in a graph is a visit to a node."""

    of_running: ClassVar[bool] = False
    """Whether the step must be running when this happens."""

    identity: ClassVar = ("step", "place")
    step_id: str
    _: KW_ONLY
    visit: int = 1
    """Number of the visit, from 1; always 1 in a pipeline."""
    branch: str = ""
    """The branch of a graph in which it runs; empty outside of forks."""

    @property
    def place(self) -> str:
        """The place of the step, such as `write` or `write@1/inner/check#2`."""
        # Added, not formatted: the place of most steps is their id, and so it is the same text in memory.
        place = self.part.prefix + quoted(self.step_id)
        return place if self.visit == 1 else f"{place}#{self.visit}"

    @property
    @override
    def where(self) -> str:
        return self.place


@dataclass(slots=True)
class UnitDecision(StepFact, PlanFact):
    """A decision of a state machine about a step or a visit to a node."""

    noun: ClassVar[str]
    """What was decided, for people."""

    def agrees(self, decided: UnitDecision) -> bool:
        """Return whether a machine that is told the log again has decided the same."""
        raise NotImplementedError


@dataclass(slots=True)
class DecidedAfter(UnitDecision, Notes):
    """A decision about what comes after a step or a visit to a node, which may have been skipped."""

    @property
    def ways_taken(self) -> tuple[tuple[str, str], ...]:
        """The ways that the run goes on from there: the step to which each leads, and its `when`."""
        raise NotImplementedError


@dataclass(slots=True)
class StepEnds(StepFact, Ends, PlanFact):
    """A fact after which the step does not run any more."""

    counted_as: ClassVar = "step"
    of_running: ClassVar[bool] = True


@dataclass(slots=True, init=False)
class StepStarted(UnitDecision, Begins):
    """A step started, or in a graph a visit to a node. `cause` says why, in words.

    It is sent once for all attempts: a retry has a `StepRetried` instead. When a run is resumed, the steps
    that had not finished start again.
    """

    kind: ClassVar[str] = "step_started"
    counted_as: ClassVar = "step"
    short: ClassVar = "{0.step_id!r} started, because {0.cause}"
    says: ClassVar = "{0.place}: started, because {0.cause}"
    noun: ClassVar = "start"
    cause: str
    _: KW_ONLY
    in_line: bool = field(default=False, compare=False)
    """For the body of a flow inside another flow: whether the outer body called it in its own task, so that
    its calls come in the same order each time."""

    def __init__(
        self,
        step_id: str,
        cause: str,
        part: Part = NOWHERE,
        visit: int = 1,
        branch: str = "",
        *,
        in_line: bool = False,
        timestamp: float | None = None,
    ) -> None:
        """Written out, as each step makes one: arguments in order take half the time of named ones."""
        self.step_id, self.cause, self.part = step_id, cause, part
        self.visit, self.branch, self.in_line = visit, branch, in_line
        self.timestamp = time() if timestamp is None else timestamp

    @override
    def agrees(self, decided: UnitDecision) -> bool:
        assert isinstance(decided, StepStarted)
        # A resumed run may give a shorter cause, without the step that was waited for.
        return self.cause.startswith(decided.cause) or decided.cause.startswith(self.cause)


@dataclass(slots=True)
class StepSkipped(UnitDecision, Ends):
    """A step will not run. `cause` says why, in words, such as `it needs 'load', which failed`.

    A node of a graph may still run in a later visit.
    """

    kind: ClassVar[str] = "step_skipped"
    counted_as: ClassVar = "step"
    short: ClassVar = "{0.step_id!r} skipped, because {0.cause}"
    says: ClassVar = "{0.place}: skipped, because {0.cause}"
    noun: ClassVar = "skip"
    ends_as: ClassVar[Outcome] = "skipped"
    cause: str

    @override
    def agrees(self, decided: UnitDecision) -> bool:
        return isinstance(decided, StepSkipped) and self.cause == decided.cause


@dataclass(slots=True, init=False)
class StepFinished(StepEnds):
    """A step finished with an output, perhaps after retries.

    An incomplete `ConversationState` is an output, too: `conversation` is `incomplete` then.
    """

    kind: ClassVar[str] = "step_finished"
    short: ClassVar = "an output of {0.step_id!r}"
    holds: ClassVar = "the output of {0.place!r}"
    output: Payload[Any]
    """The value itself; in a fact from a log, and in a trace, its JSON."""
    _: KW_ONLY
    attempt: int = 1
    conversation: Literal["complete", "incomplete"] | None = None
    """Status of the output, if that is a `ConversationState`."""
    degraded: bool = False
    """Whether something inside the step failed, and the step went on."""
    duration_ms: float = 0.0
    written: Written = field(default_factory=lambda: _NOTHING_WRITTEN, compare=False, repr=False)
    """The values that a node writes into the memory of its graph."""
    spent_in: Told = field(default=None, compare=False, repr=False)

    def __init__(
        self,
        step_id: str,
        output: Any,
        part: Part = NOWHERE,
        visit: int = 1,
        branch: str = "",
        *,
        attempt: int = 1,
        conversation: Literal["complete", "incomplete"] | None = None,
        degraded: bool = False,
        duration_ms: float = 0.0,
        written: Mapping[str, object] = _NOTHING_WRITTEN,
        spent_in: Spender | None = None,
        timestamp: float | None = None,
    ) -> None:
        """Written out for speed, as that of `StepStarted` is: each step makes one."""
        self.step_id, self.output, self.part, self.visit, self.branch = step_id, output, part, visit, branch
        self.attempt, self.conversation, self.degraded = attempt, conversation, degraded
        self.duration_ms, self.written, self.spent_in = duration_ms, written, spent_in
        self.timestamp = time() if timestamp is None else timestamp

    @property
    @override
    def outcome(self) -> Outcome:
        return "incomplete" if self.conversation == "incomplete" else "succeeded"

    @property
    def usage(self) -> Usage:
        """The usage of the step, all its attempts included: its cost, tokens and requests.

        The events that listeners (`on_event`, `stream`) get have it. In a fact from a log or a trace, this
        raises `ConfigurationError`.
        """
        return _spent(self.spent_in, self)

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        if self.place not in run.running:
            return (f"{self.place}: its output is taken over, and it does not run",)
        what = "asked for more from the user" if self.conversation == "incomplete" else "finished"
        number, cost = run.attempt(self.place, self.at)
        return (f"{self.place}: {what} at attempt {number}{cost}",)


@dataclass(slots=True)
class StepFailed(StepEnds):
    """A step failed for good, after its retries. `failure` and `error` are those of its last attempt.

    In a workflow, each attempt whose result is not accepted has a `StepFailed`.
    """

    kind: ClassVar[str] = "step_failed"
    short: ClassVar = "a failure of {0.step_id!r}"
    ends_as: ClassVar[Outcome] = "failed"
    failure: FailureFacts
    _: KW_ONLY
    attempt: int = 1
    budget: Literal["own", "outer"] | None = None
    """The budget that was used up, if that is the reason: one of the step or inside it, or one around it."""
    budget_of: str | None = None
    """In a workflow, the flow with that budget, named by the step that runs it; empty for the entry flow."""
    goes_on: bool = False
    """Whether the same attempt goes on when the run is resumed, because its work so far is on record."""
    call_changed: bool = False
    """Whether a call in it was refused because it has changed. Then the same attempt goes on, too."""
    violations: tuple[Text[str], ...] = ()
    """In a workflow, the reasons why the result was not accepted, if the step failed because of them."""
    output: Payload[Any] = None
    """The result that was not accepted; in a fact from a log, and in a trace, its JSON."""
    duration_ms: float = 0.0
    raised: Raised = field(default=None, compare=False, repr=False)
    written: Written = field(default_factory=dict, compare=False, repr=False)
    spent_in: Told = field(default=None, compare=False, repr=False)

    @property
    def error(self) -> BaseException:
        """The exception with which the step failed.

        In a fact from a log or a trace, it is a `RecordedError` with the type and message of the exception.
        """
        return self.failure.as_error() if self.raised is None else self.raised

    @property
    def usage(self) -> Usage:
        """The usage of the step, all its attempts included: its cost, tokens and requests.

        The events that listeners (`on_event`, `stream`) get have it. In a fact from a log or a trace, this
        raises `ConfigurationError`.
        """
        return _spent(self.spent_in, self)

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        number, cost = run.attempt(self.place, self.at)
        return (f"{self.place}: attempt {number} {self.failure.sentence}{cost}",)


@dataclass(slots=True)
class StepCancelled(StepEnds):
    """A step that had started was cancelled. `cause` says why, in words, such as `'load' failed`.

    In a pipeline, the step starts again when the run is resumed.
    """

    kind: ClassVar[str] = "step_cancelled"
    says: ClassVar = "{0.place}: cancelled, because {0.cause}"
    ends_as: ClassVar[Outcome] = "cancelled"
    cause: Text[str]
    _: KW_ONLY
    attempt: int = 1
    written: Written = field(default_factory=dict, compare=False, repr=False)


@dataclass(slots=True)
class StepHalted(StepEnds):
    """A step stopped without an output, because it waits for something, or the run inside it was paused.

    It waits for an answer, a message, a time or the like. When the run is resumed, the step runs again from
    its beginning.
    """

    kind: ClassVar[str] = "step_halted"
    ends_as: ClassVar[Outcome] = "incomplete"
    waits: tuple[Wait, ...]
    """The waits of the step, or of a pipeline or graph that runs in it; empty if that was paused."""
    _: KW_ONLY
    attempt: int = 1
    duration_ms: float = 0.0
    written: Written = field(default_factory=dict, compare=False, repr=False)

    @override
    def in_short(self) -> str:
        return f"{self.step_id!r} {'waiting for an answer' if self.waits else 'paused'}"

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        why = ", ".join(f"and {wait}" for wait in self.waits) or "because a pause was requested"
        return (f"{self.place}: halted, {why}{run.attempt(self.place, self.at)[1]}",)


def _retries_used(given: object) -> RetriesUsed:
    if isinstance(given, RetriesUsed):
        return given
    if not isinstance(given, dict):
        raise ValueError("expected a JSON object")
    try:
        return RetriesUsed.from_json(given)
    except (TypeError, ConfigurationError) as error:
        raise ValueError(str(error)) from None


@dataclass(slots=True, kw_only=True)
class StepRetried(PlacedFact, Ends):
    """An attempt at a step, or at an agent call in it, failed; another follows after `delay` seconds."""

    kind: ClassVar[str] = "step_retried"
    identity: ClassVar = ("step", "place")
    ends_as: ClassVar[Outcome] = "retried"
    place: str
    """Place of the step or, for an agent call, of the attempt at the step that makes the call."""
    attempt: int
    """Number of the attempt that failed, from 1."""
    failure: FailureFacts
    delay: float
    used: Annotated[
        RetriesUsed,
        PlainSerializer(RetriesUsed.to_json),
        PlainValidator(_retries_used),
    ]
    """Retries used, including the one that follows."""
    call: Name[str] = ""
    """The agent call that is repeated: its number in the attempt at the step, or its name."""
    unit: Literal["step", "call"] = "step"
    """The work that is repeated: the code of the step, or an agent call in it."""
    raised: Raised = field(default=None, compare=False, repr=False)

    @property
    @override
    def about(self) -> Key:
        return (
            super(StepRetried, self).about if self.unit == "step" else ("agent call", self.place, self.call)
        )

    @property
    def step_id(self) -> str:
        """The id of the step that is retried, or of the step whose agent call is retried."""
        return step_name(self.place)

    @property
    def error(self) -> BaseException:
        """The exception with which the attempt failed.

        In a fact from a log or a trace, it is a `RecordedError` with the type and message of the exception.
        """
        return self.failure.as_error() if self.raised is None else self.raised

    @property
    def failure_class(self) -> FailureClass:
        """The class of the failure, which decides whether the work is retried."""
        return FailureClass(self.failure.failure_class)

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        again = f"tried again after {self.delay:.3g} s" if self.delay else "tried again at once"
        if self.unit == "step":
            number, cost = run.attempt(self.place, self.at)
            return (f"{self.place}: attempt {number} {self.failure.sentence}{cost}; {again}",)
        failed = f"attempt {self.attempt}, {self.failure.sentence}"
        return (f"{self.place}: agent call {self.call}, {failed}; {again}",)


def question_id(place: str, name: str = "") -> str:
    """Return the id of a question by its name and the place of its step. Attempts make no difference."""
    return wait_id(place, name)


def first_until(waits: Iterable[Wait]) -> datetime | None:
    """Return the time at which the first of some waits ends by itself; `None` if none does."""
    return min((wait.until for wait in waits if wait.until is not None), default=None)


def wait_id(place: str, *names: str) -> str:
    """Return the id of a wait, from the place of its step and from its names. Attempts make no difference."""
    return hashlib.sha256("\0".join((without_attempts(place), *names)).encode()).hexdigest()[:12]


@dataclass(slots=True)
class QuestionAsked(StepFact, Begins, PlanFact):
    """A step asked a person a question: with `ctx.ask` or `await_human`, as a pause node, or at a gate.

    A pause node of a graph returns the question, and its output is the answer. Listeners (`on_event`) get
    this event for pause nodes only; for other questions, they get a `StepHalted`. If the run is resumed and
    a step asks a question again that has no answer, there is another `QuestionAsked` with the same `id`.
    """

    kind: ClassVar[str] = "question_asked"
    short: ClassVar = "a question of {0.step_id!r}"
    of_running: ClassVar = True
    holds: ClassVar = "the question of {0.place!r}"
    identity: ClassVar = ("question", "id")
    question: Payload[Any]
    _: KW_ONLY
    id: str = ""
    """Identifies the question in its run, whatever the attempt and the process: 12 hexadecimal digits.

    `inbox_id` is its id in the inbox.
    """
    name: str = ""
    """Name of the question in its step, by default its number there; empty for a pause node."""
    answer_schema: Payload[dict[str, JsonValue]] | None = None
    """JSON Schema of the answer, if its type is declared."""
    options: tuple[Payload[JsonValue], ...] | None = None
    """The answers that can be given, if they are limited."""
    deadline: float | None = None
    """Time after which no answer is taken, in seconds since 1970."""
    first_at: float | None = None
    """Time at which it was asked first, in seconds since 1970, if a run that goes on asks it again."""
    to: Text[str] = ""
    """The people to ask: a label for inboxes and sinks."""
    attempt: int = 1
    duration_ms: float = 0.0
    written: Written = field(default_factory=dict)

    @property
    def inbox_id(self) -> str:
        """The id of the question, unique in the store: the run id, `:`, and `id`.

        `Inbox.get` and `Inbox.answer` take it.
        """
        return f"{self.run_id}:{self.id}"

    @property
    def wait(self) -> Wait:
        """The wait of the step for the answer, with its deadline if there is one."""
        return Wait(what="question", id=self.id, deadline=self.deadline)

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        if self.name:
            return (f"{self.place}: asks a person (question {self.id})",)
        _, cost = run.attempt(self.place, self.at)
        return (f"{self.place}: asks a person, and waits for the answer{cost}",)


@dataclass(slots=True)
class AnswerGiven(StepFact, Ends, PlanFact):
    """Somebody answered a question. The answer to a pause node of a graph is the output of the node.

    A person has answered, except at gates of workflows that `WorkflowRuns` drives: there, `reviewer` can be
    `an agent`, or `the system` for the policy of the gate and the end of its time.
    """

    kind: ClassVar[str] = "answer_given"
    holds: ClassVar = "the answer to {0.place!r}"
    identity: ClassVar = ("question", "id")
    answer: Payload[Any]
    _: KW_ONLY
    id: str = ""
    """The id of the question."""
    name: str = ""
    """The name of the question in its step; empty for a pause node."""
    reviewer: Text[str] = ""
    """The person who answered, if that is known; `an agent` or `the system` if it decided at a gate."""
    rationale: Text[str] = ""
    """The reason for the answer, if one was given."""
    written: Written = field(default_factory=dict, compare=False, repr=False)

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        why = f", because {self.rationale}" if self.rationale else ""
        return (f"{self.place}: {self.reviewer or 'a person'} has answered{why}",)


@dataclass(slots=True)
class WaitStarted(StepFact, Begins):
    """A step began to sleep, or to wait for a message or for anything else but an answer.

    Only the log and traces have this fact. If the run is resumed and the step still waits, there is another
    one, with the same `wait.id`.

    Listeners (`on_event`) get a `StepHalted` instead, when the step halts. A step does not halt for a sleep
    of at most 10 seconds. Without a store, it does not halt for any sleep. Listeners get nothing of such
    sleeps.
    """

    kind: ClassVar[str] = "wait_started"
    says: ClassVar = "{0.place}: {0.wait.in_full}"
    identity: ClassVar = ("wait", "wait.id")
    wait: Wait
    _: KW_ONLY
    value_schema: Payload[dict[str, JsonValue]] | None = None
    """JSON Schema of the value of the message."""
    seen: int = 0
    """Number of messages to the run that the step has looked at."""
    attempt: int = 1


@dataclass(slots=True)
class WaitEnded(StepFact, Ends):
    """A wait of a step is over: it has slept, received its message or value, or waited in vain.

    `in_vain` says that the time to wait was over before anything came. Only the log and traces have this
    fact; listeners (`on_event`) do not get it.
    """

    kind: ClassVar[str] = "wait_ended"
    holds: ClassVar = "the message that {0.place!r} received"
    identity: ClassVar = ("wait", "wait.id")
    wait: Wait
    _: KW_ONLY
    number: int = 0
    """Number of the message among all messages to the run, from 1; 0 if none came in time, and for others."""
    value: Payload[Any] = None
    """The value that the wait gave, such as that of a message; in a fact from a log or a trace, its JSON."""
    in_vain: bool = False
    """Whether the step waits no longer although nothing has come."""
    attempt: int = 1

    @property
    @override
    def outcome(self) -> Outcome:
        # Earlier versions recorded that a message did not come by its number alone.
        is_late = self.in_vain or (self.wait.what == "message" and not self.number)
        return "failed" if is_late else "succeeded"

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        if self.number:
            return (f"{self.place}: has received message {self.wait.name!r} (number {self.number})",)
        if self.wait.what == "sleep":
            return (f"{self.place}: has slept",)
        if self.wait.what == "message":
            return (f"{self.place}: {self.wait.thing} has not come in time",)
        in_vain = "" if self.outcome == "succeeded" else " in vain"
        return (f"{self.place}: has waited for {self.wait.thing}{in_vain}",)


# --- what is declared for calls ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Asks:
    """What is declared for an agent call, and what the call was given.

    A finished call is found by its inputs. If what is declared differs, the call has changed.
    """

    declared: Mapping[str, Name[str]]
    """Hashes of what is declared, such as the `instructions` and the `model`, by name."""
    inputs: Name[str]
    """Hash of the prompt; for a call in a typed function, of the arguments."""


@dataclass(slots=True, kw_only=True)
class CallFact(PlacedFact, Notes):
    """A note about a call whose answer is on record, in a run that was taken up."""

    identity: ClassVar = ("call", "place")
    place: str
    """The place of the call; for an agent call, of the attempt at the step that makes it."""
    call: Name[str] = ""
    """The agent call, as in `RequestPlace.call`; empty for a call of a typed function."""

    @property
    @override
    def about(self) -> Key:
        return ("agent call", self.place, self.call) if self.call else super(CallFact, self).about

    @property
    def name(self) -> str:
        """The call, as texts for people show it."""
        return f"{self.place}: agent call {self.call}" if self.call else f"{self.place}: the call"


@dataclass(slots=True, kw_only=True)
class CallChanged(CallFact):
    """A resumed run found that the code declares a call differently than when its answer was stored.

    `answer` says whether the stored answer is used all the same (`kept`), or the model is asked again
    (`asked_anew`), as `on_changed` says. Listeners (`on_event`) get this event, too.
    """

    kind: ClassVar[str] = "call_changed"
    attempt: int = 1
    """Number of the attempt on record at that call."""
    changed: tuple[str, ...]
    """What has changed: `intent`, `context`, `instructions`, `model`, `output` or `settings`."""
    answer: Literal["kept", "asked_anew"]
    """Whether the answer on record is used, or the model is asked again. What is on record stays charged."""

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        kept = self.answer == "kept"
        done = "keeps its answer, although" if kept else "asks anew, because"
        return (f"{self.name} {done} {what_changed(self.changed)}",)


@dataclass(slots=True, kw_only=True)
class CallLeftOver(CallFact):
    """A stored call or nested run was not made again in a resumed run, after an earlier answer was replaced.

    The model was asked again for an answer before it, and with the new answer the step took another way. The
    cost of the stored call stays charged. Listeners (`on_event`) get this event, too.
    """

    kind: ClassVar[str] = "call_left_over"

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        return (f"{self.name} on record is not made again, because an answer before it was asked anew",)


# --- calls of typed functions ---


@dataclass(slots=True, kw_only=True)
class CallEnded(PlacedFact, Ends):
    """A call of a typed function (`@infer` or `@compute`) ended: it returned, raised, or was cancelled.

    `failure` is `None` if it returned. Listeners (`on_event`) do not get the ends of cancelled calls.
    """

    kind: ClassVar[str] = "call_ended"
    counted_as: ClassVar = "call"
    holds: ClassVar = "the output of {0.place!r}"
    identity: ClassVar = ("call", "place")
    place: str
    """Place of the call, the same for all attempts: `body@1/classify#3f2a9c1b0d4e`."""
    attempt: int = 1
    """Number of the attempt. A call whose failure ended the run has another attempt when it is resumed."""
    call: Payload[Any]
    """The `CallRecord`; in a fact from a log, and in a trace, its JSON. The output is not in it."""
    output: Payload[Any] = None
    """The value that was returned; in a fact from a log, and in a trace, its JSON."""
    failure: FailureFacts | None = None
    """The exception that was raised, if one was."""
    exception: Payload[JsonValue] = None
    """The arguments and attributes of that exception as JSON; empty if JSON cannot hold them. `None` if the
    call is made again when the run is resumed."""
    goes_on: bool = False
    """Whether the same attempt goes on when the run is resumed: a budget stopped it, or it was cancelled."""
    is_code: bool = False
    """Whether the function has a body and asks no model."""
    in_line: bool = True
    """Whether the calling body made the call in its own task, so that its calls come in the same order each
    time."""
    is_stored: bool = True
    """Whether the output is on record. It is not if it has no JSON form."""
    declared: Mapping[str, Name[str]] = field(default_factory=dict)
    """Hashes of what is declared for the call, by name, as in `Asks`. Empty for a function that has a body,
    in a run without a store, and in a log of format 2."""

    @property
    @override
    def outcome(self) -> Outcome:
        return "succeeded" if self.failure is None else "failed"

    @property
    def step_id(self) -> str:
        """The name of the function that was called."""
        return step_name(self.place)

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        ended = "returned" if self.failure is None else self.failure.sentence
        return (f"{self.place}: the call, attempt {self.attempt}, {ended}",)


# --- requests, tools, side effects ---


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPlace:
    """Identifies one request of a run."""

    place: str
    """Place of the attempt at the step in which the request is made, such as `write@1`."""
    call: Name[str]
    """The agent call that the request belongs to: the number of the call in that attempt, or its name.

    `1/inner#2` is the second call of agent `inner` by tools of call 1; `1/` stands for plain agents there.
    """
    attempt: int
    """Number of the attempt at that agent call."""
    model: str
    """The model to which the request goes."""
    fingerprint: Name[str]
    """Hash of the content of the request; in a fact of a run without a store, empty until it is read."""
    tools: tuple[Name[str], ...] = ()
    """The tool calls inside which the request is made, outermost first."""
    effects: tuple[Name[str], ...] = ()
    """The effects of `once` inside which the request is made, outermost first."""

    @property
    def is_of_agent_call(self) -> bool:
        """Whether a `FastroAgent` makes the request. Calls of plain agents have no number."""
        return bool(self.call) and not self.call.endswith("/")


@dataclass(slots=True, kw_only=True)
class RequestSent(Begins):
    """A request to a model is about to be sent. Each attempt at a request has its own.

    Only the log and traces have this fact; listeners (`on_event`) do not get it.
    """

    kind: ClassVar[str] = "request_sent"
    says: ClassVar = None
    makes_values: ClassVar = True
    holds: ClassVar = (
        "the messages to model {0.record.model!r} (PipelineConfig(record_messages=False) leaves them out)"
    )
    identity: ClassVar = ("request", "id")
    id: str
    request: RequestPlace
    record: RequestRecord
    """The record that counts if the request never ends: unmeasured, with its bounds."""
    rejects: bool = False
    """Whether it repeats the previous request of the same call, because that response was not usable."""
    asks: Asks | None = None
    """What the agent call asks for, with the first request that a process sends for it. `None` in a run
    without a store, and in a log of format 2."""
    messages: Payload[Any] = None
    """What the request adds to its conversation: the messages after the last response.

    In a fact from a log, and in a trace, the JSON of a list of messages of PydanticAI. `None` if messages are
    not on record, and if the same messages were just sent and not answered. No run needs them to go on.
    """
    history: int = 0
    """Number of messages in the request before them: of earlier requests, or given to the agent."""
    asked: Asked = field(default=None, compare=False, repr=False)
    """Function that computes the fingerprint, in a run without a store; else `None`."""

    @override
    def detached(self) -> Self:
        if self.asked is None:
            return self
        return replace(self, request=replace(self.request, fingerprint=self.asked()), asked=None)

    @property
    @override
    def where(self) -> str:
        return self.request.place

    @property
    @override
    def spending(self) -> RequestRecord:
        return self.record


@dataclass(slots=True, kw_only=True)
class RequestEnded(Ends):
    """A request to a model ended.

    `record` has its cost, if it was charged. `response` is `None` if no answer came, or if it was cut. Only
    the log and traces have this fact; listeners (`on_event`) get a `SpendRecorded`.
    """

    kind: ClassVar[str] = "request_ended"
    says: ClassVar = None
    makes_values: ClassVar = True
    holds: ClassVar = "a response of model {0.record.model!r}"
    identity: ClassVar = ("request", "id")
    id: str
    record: RequestRecord
    response: Payload[Any] = None
    """The response, a `ModelResponse` of PydanticAI; in a fact from a log, and in a trace, its JSON."""

    @property
    @override
    def outcome(self) -> Outcome:
        return "failed" if self.response is None else "succeeded"

    @property
    @override
    def spending(self) -> RequestRecord:
        return self.record


@dataclass(slots=True, kw_only=True)
class RequestInBatch(PlacedFact, Notes):
    """A request was sent in a batch, or is answered in the background of its provider.

    If the process of the run dies, the process that resumes the run collects the answer, and does not send
    the request again. Only runs with a store have this fact, and listeners (`on_event`) do not get it.
    """

    kind: ClassVar[str] = "request_in_batch"
    says: ClassVar = None
    holds: ClassVar = "where the answer to a request will be"
    identity: ClassVar = ("request", "id")
    id: str
    pending: Payload[Any]
    """The response that PydanticAI gives meanwhile, which says where the answer will be."""
    claims: dict[str, str] = field(default_factory=dict)
    """Ids of the claims with which spend limits count the request, by a hash of the window and the key."""


@dataclass(slots=True, kw_only=True)
class AgentCallEnded(PlacedFact, Ends):
    """An attempt at an agent call failed, or an agent call ended whose last answer calls function tools.

    Most calls have no such event. If the last answer calls no function tool, that answer is the end of the
    call. Output tools do not count as function tools.

    A failed attempt has the event if `ctx.run` or the code of a flow makes the call. It has none in a stream,
    or if a budget or a changed declaration stopped it. Another attempt may follow: see `StepRetried`.

    Only the log and traces of runs with a store have this event. Listeners (`on_event`) do not get it. Calls
    that tools make do not have it.

    `place` is the attempt at the step that makes the call. `attempt` is the number of the attempt at the
    call, from 1. `failure` is `None` if the call did not fail.
    """

    kind: ClassVar[str] = "agent_call_ended"
    says: ClassVar = None
    identity: ClassVar = ("agent call", "place", "call")
    call: Name[str]
    attempt: int
    failure: FailureFacts | None = None
    """The exception that was raised, if one was."""
    exception: Payload[JsonValue] = None
    """The arguments and attributes of that exception as JSON; empty if JSON cannot hold them."""

    @property
    @override
    def outcome(self) -> Outcome:
        return "succeeded" if self.failure is None else "failed"


@dataclass(slots=True, kw_only=True)
class SpendingRecorded(PlacedFact, Begins, PlanFact):
    """A step recorded spending (`ctx.record_usage`), or reserved money for a purchase (`spend`).

    A purchase has two of these facts with the same `id`: at its beginning, with the most that it can cost,
    and at its end, with its cost. Only the log and traces have them; listeners get a `SpendRecorded`.
    """

    kind: ClassVar[str] = "spending_recorded"
    says: ClassVar = None
    identity: ClassVar = ("spending", "id")
    record: RequestRecord
    """For a reservation, the record that counts if no later fact settles it."""
    id: str = ""
    """Id of the reservation, if it is one. A later fact with the same id settles it."""
    call: Name[str] = ""
    """The agent call whose tool spends it, as requests name it; empty outside of tools."""
    attempt: int = 0
    """Number of the attempt at that agent call."""
    tools: tuple[Name[str], ...] = ()
    """The tool calls inside which it is spent, outermost first."""
    effects: tuple[Name[str], ...] = ()
    """The effects of `once` inside which it is spent, outermost first."""

    @property
    @override
    def spending(self) -> RequestRecord:
        return self.record


@dataclass(slots=True, kw_only=True)
class ToolEnded(PlacedFact, Ends):
    """A tool returned, raised `ModelRetry` or `ToolFailed` for the model, or deferred its call.

    A tool that raised another exception has no such event. A tool with `metadata={"repeatable": True}` never
    has one. Only the log and traces have this event; listeners (`on_event`) do not get it.
    """

    kind: ClassVar[str] = "tool_ended"
    says: ClassVar = None
    makes_values: ClassVar = True
    holds: ClassVar = "the result of tool {0.tool!r} in {0.place!r}"
    identity: ClassVar = ("tool", "place", "tool")
    tool: Name[str]
    """Identifies the tool call: the name, and a hash of the id and the arguments."""
    result: Payload[Any] = None
    """The result, or the metadata of a deferred call. In a fact from a log, and in a trace, its JSON."""
    retry: Payload[JsonValue] = None
    """The message to the model, if the tool gave no result."""
    is_final: bool = False
    """Whether `retry` says that the tool failed, instead of asking the model to try again."""
    deferred: Literal["approval", "call"] | None = None
    """Why the call was deferred: it needs `approval`, or its result comes from outside (`call`)."""

    @property
    @override
    def outcome(self) -> Outcome:
        if self.deferred is not None:
            return "incomplete"
        if self.retry is None:
            return "succeeded"
        return "failed" if self.is_final else "retried"


@dataclass(slots=True, kw_only=True)
class OnceStarted(PlacedFact, Begins):
    """A side effect of `ctx.once` is about to happen. `name` is its name in the step.

    Only the log and traces have this fact; listeners (`on_event`) do not get it.
    """

    kind: ClassVar[str] = "once_started"
    says: ClassVar = "{0.place}: does {0.name!r}, once in this run"
    identity: ClassVar = ("once", "place", "name")
    place: str
    """Place of the step, without the attempts at it and at the steps around it."""
    name: Name[str]


@dataclass(slots=True, kw_only=True)
class OnceDone(PlacedFact, Ends):
    """A side effect of `ctx.once` has happened, and returned `result`. It is not repeated in this run.

    Only the log and traces have this fact; listeners (`on_event`) do not get it.
    """

    kind: ClassVar[str] = "once_done"
    says: ClassVar = None
    holds: ClassVar = "the result of once({0.name!r}) in {0.place!r}"
    identity: ClassVar = ("once", "place", "name")
    name: Name[str]
    result: Payload[Any]
    """The result of the side effect; in a fact from a log, and in a trace, its JSON."""


@dataclass(slots=True, kw_only=True)
class OnceFailed(PlacedFact, Ends):
    """A side effect of `ctx.once` raised an exception. The next attempt at the step repeats the effect.

    Only the log and traces have this fact; listeners (`on_event`) do not get it.
    """

    kind: ClassVar[str] = "once_failed"
    says: ClassVar = None
    identity: ClassVar = ("once", "place", "name")
    ends_as: ClassVar[Outcome] = "failed"
    name: Name[str]


@dataclass(slots=True, kw_only=True)
class ReplayDiverged(PlacedFact, Notes):
    """A resumed run makes another request than the one that is stored for this place.

    So the stored answer is not used, and the new request is sent and paid for, too. Only the log and traces
    have this fact; listeners (`on_event`) do not get it.
    """

    kind: ClassVar[str] = "replay_diverged"
    identity: ClassVar = ("agent call", "place", "call")
    call: Name[str]

    @override
    def sentences(self, run: Telling) -> tuple[str, ...]:
        what = "sends another request than the one on record, which is paid for"
        return (f"{self.place}: agent call {self.call} {what}",)


AnyFact: TypeAlias = Fact
"""Any fact that the log of a run can hold: another name of `Fact`."""
