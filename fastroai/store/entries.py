"""What the log of a run holds: what happened, as values that are stored as JSON, one after the other.

A *place* says where: step ids and attempts from the outermost pipeline inwards, as in `write@1/inner/check`.
`write` is a step, `write@1` its first attempt, `inner` a pipeline that runs in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import ConfigDict, Discriminator, JsonValue, TypeAdapter, ValidationError
from pydantic_core import from_json

from fastroai.errors import RunCorrupt, RunFromNewerVersion, RunFromOlderVersion
from fastroai.records import RequestRecord
from fastroai.store.checksums import with_checksum, without_checksum

FORMAT: Final = 2
"""Version of what is written here; a reader refuses every other one."""

RunStatus = Literal["running", "finished", "waiting", "failed", "cancelled"]
"""Where a run is. `waiting`: a step has returned an incomplete `ConversationState`."""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureFacts:
    """An exception, as far as it can be written down."""

    error_type: str
    message: str
    failure_class: str
    """`recoverable`, `terminal` or `ambiguous`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Something that happened."""

    at: datetime = field(default_factory=_now)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Entry):
    """The run began. Always the first entry."""

    kind: Literal["run_opened"] = "run_opened"
    format: int = FORMAT
    run_id: str
    pipeline: str
    definition: JsonValue
    """Its shape, to be compared when it is resumed."""
    inputs: dict[str, JsonValue]
    forked_from: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResumed(Entry):
    """A process took it up again."""

    kind: Literal["run_resumed"] = "run_resumed"
    inputs: dict[str, JsonValue] = field(default_factory=dict)
    """Inputs that were given anew."""
    definition: JsonValue = None
    """The new shape, where it was resumed by force although that had changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished(Entry):
    """It came to an end, which may be taken up again if it is not `finished`."""

    kind: Literal["run_ended"] = "run_ended"
    status: RunStatus
    failure: FailureFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted(Entry):
    """A step was started, because of `cause`."""

    kind: Literal["step_start"] = "step_start"
    place: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRetried(Entry):
    """An attempt at a step failed, and another follows after `delay` seconds."""

    kind: Literal["step_retry"] = "step_retry"
    place: str
    attempt: int
    """The one that failed, from 1."""
    failure: FailureFacts
    delay: float
    used: dict[str, int]
    """Retries used so far, by failure class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRetried(Entry):
    """An attempt at an agent call in a step failed, and another follows after `delay` seconds."""

    kind: Literal["call_retry"] = "call_retry"
    place: str
    """The attempt at the step that makes the call."""
    call: str
    """The call: its ordinal in that attempt, or its name."""
    attempt: int
    failure: FailureFacts
    delay: float
    used: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished(Entry):
    """A step finished with an output."""

    kind: Literal["step_output"] = "step_output"
    place: str
    attempt: int
    output: JsonValue
    conversation: Literal["complete", "incomplete"] | None = None
    """Where it is a `ConversationState`: its status."""
    degraded: bool = False
    """Whether something inside of it failed, and it went on."""
    duration_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFailed(Entry):
    """A step failed, after its retries."""

    kind: Literal["step_failure"] = "step_failure"
    place: str
    attempt: int
    failure: FailureFacts
    stopped: bool = False
    """Whether it did not fail by itself: a budget stopped it, so that the attempt can be gone on with."""
    duration_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSkipped(Entry):
    """A step will not run, because of `cause`."""

    kind: Literal["step_skip"] = "step_skip"
    place: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCancelled(Entry):
    """A node of a graph was cancelled while others went on, because of `cause`."""

    kind: Literal["step_cancelled"] = "step_cancelled"
    place: str
    attempt: int
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeFacts:
    """What became of an edge of a graph."""

    target: str
    when: str
    taken: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgesResolved(Entry):
    """It was decided where a graph goes after a visit to a node."""

    kind: Literal["edges_resolved"] = "edges_resolved"
    place: str
    edges: tuple[EdgeFacts, ...]
    """All that leave the node, in declaration order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchTimedOut(Entry):
    """A branch of a graph took too long."""

    kind: Literal["branch_failed"] = "branch_failed"
    graph: str
    """The place of the graph; empty for the outermost."""
    branch: str
    failure: FailureFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsked(Entry):
    """A pause node gave its question, and waits for the answer."""

    kind: Literal["question_asked"] = "question_asked"
    place: str
    attempt: int
    question: JsonValue
    duration_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerGiven(Entry):
    """A person answered the question of a pause node: that is its output."""

    kind: Literal["answer_given"] = "answer_given"
    place: str
    answer: JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueWritten(Entry):
    """A node of a graph put a value into memory before its end."""

    kind: Literal["value_written"] = "value_written"
    place: str
    """The attempt at the node."""
    key: str
    value: JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesAdded(Entry):
    """What an attempt at a node has added to the conversation of a graph."""

    kind: Literal["messages_added"] = "messages_added"
    place: str
    """The attempt at the node."""
    messages: JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPlace:
    """Which request of a run it is."""

    place: str
    """The attempt at the step that it is made in."""
    call: str
    """The agent call that it belongs to: its ordinal in that attempt, or its name.

    `1/inner#2` is the second call of `inner` in tools of the first; `1/` are plain agents there.
    """
    attempt: int
    """The attempt at that call."""
    model: str
    """The model that is asked."""
    fingerprint: str
    """The hash of what it is asked."""
    tools: tuple[str, ...] = ()
    """The tool calls in which it is made, outermost first."""

    @property
    def is_of_agent_call(self) -> bool:
        """Whether a `FastroAgent` makes it, and not a plain agent, whose calls are not counted."""
        return bool(self.call) and not self.call.endswith("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSent(Entry):
    """A request to a model is about to be sent."""

    kind: Literal["request_sent"] = "request_sent"
    id: str
    request: RequestPlace
    record: RequestRecord
    """What counts if it never ends: unmeasured, with its bounds."""
    rejects: bool = False
    """Whether it asks again for what the response before it in its call was to give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEnded(Entry):
    """A request ended in the account, with a response if there was one."""

    kind: Literal["request_ended"] = "request_ended"
    id: str
    record: RequestRecord
    response: JsonValue = None
    """PydanticAI's `ModelResponse`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingRecorded(Entry):
    """A step recorded spending that no agent made, or reserves it."""

    kind: Literal["spending_recorded"] = "spending_recorded"
    place: str
    record: RequestRecord
    """Of what is only reserved: what counts if nothing more is heard of it."""
    id: str = ""
    """Of spending that was reserved. A later entry with the same id says what became of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnded(Entry):
    """A tool returned, or asked the model to try again."""

    kind: Literal["tool_ended"] = "tool_ended"
    place: str
    tool: str
    """Which call it was: the name, and a hash of the id and the arguments."""
    result: JsonValue = None
    retry: JsonValue = None
    """What it told the model instead of a result."""
    is_final: bool = False
    """Whether it told it that it failed, and not to try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceStarted(Entry):
    """A side effect of `ctx.once` is about to happen."""

    kind: Literal["once_started"] = "once_started"
    place: str
    """The step, whatever the attempt at it and at those around it."""
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceDone(Entry):
    """A side effect of `ctx.once` has happened."""

    kind: Literal["once_done"] = "once_done"
    place: str
    name: str
    result: JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceFailed(Entry):
    """A side effect of `ctx.once` has raised an exception, so it was not interrupted."""

    kind: Literal["once_failed"] = "once_failed"
    place: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayDiverged(Entry):
    """A request is not the one that is on record for its place, so it is sent and paid for."""

    kind: Literal["replay_diverged"] = "replay_diverged"
    place: str
    call: str


AnyFact: TypeAlias = (
    RunStarted
    | RunResumed
    | RunFinished
    | StepStarted
    | StepRetried
    | StepRetried
    | StepFinished
    | StepFailed
    | StepSkipped
    | StepCancelled
    | EdgesResolved
    | BranchTimedOut
    | QuestionAsked
    | AnswerGiven
    | ValueWritten
    | MessagesAdded
    | RequestSent
    | RequestEnded
    | SpendingRecorded
    | ToolEnded
    | OnceStarted
    | OnceDone
    | OnceFailed
    | ReplayDiverged
)


@cache
def _adapter() -> TypeAdapter[AnyFact]:
    # NaN and infinity would be `null` by default.
    config = ConfigDict(ser_json_inf_nan="constants")
    return TypeAdapter(Annotated[AnyFact, Discriminator("kind")], config=config)


def encode_entry(entry: AnyFact) -> bytes:
    """An entry as JSON text."""
    return _adapter().dump_json(entry)


def decode_entry(run_id: str, position: int, text: bytes) -> AnyFact:
    """An entry as it was.

    Raises:
        RunFromNewerVersion: a later version of FastroAI has written it.
        RunFromOlderVersion: an earlier version of FastroAI has written it.
        RunCorrupt: it cannot be read.
    """
    try:
        entry = _adapter().validate_json(text)
    except ValidationError as error:
        check_format_in(run_id, text)
        first = error.errors(include_url=False, include_input=False)[0]
        raise RunCorrupt(run_id, position, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if isinstance(entry, RunStarted):
        check_format(run_id, entry.format)
    return entry


def check_format(run_id: str, written: int) -> None:
    """Refuse what another version has written. Raises `RunFromNewerVersion` and `RunFromOlderVersion`."""
    if written > FORMAT:
        raise RunFromNewerVersion(run_id, written, FORMAT)
    if written < FORMAT:
        raise RunFromOlderVersion(run_id, written, FORMAT)


def check_format_in(run_id: str, text: bytes) -> None:
    """The same for what cannot be read, if it tells its format. Raises as `check_format`."""
    try:
        known = from_json(text)
    except ValueError:
        return
    if isinstance(known, dict) and isinstance(known.get("format"), int):
        check_format(run_id, known["format"])


def entry_to_store(entry: AnyFact) -> bytes:
    """An entry as it is stored."""
    return with_checksum(encode_entry(entry))


def entry_in_store(run_id: str, position: int, stored: bytes) -> AnyFact:
    """An entry that was stored. Raises as `decode_entry`."""
    try:
        text = without_checksum(stored)
    except ValueError as error:
        check_format_in(run_id, stored)  # format 1 had no checksums
        raise RunCorrupt(run_id, position, str(error)) from error
    return decode_entry(run_id, position, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """What is known of a run without reading its log."""

    format: int = FORMAT
    run_id: str
    epoch: str
    """The name of this run among all that ever had its id. The key of its log ends with it."""
    pipeline: str
    status: RunStatus
    started_at: datetime
    updated_at: datetime
    owner: str | None = None
    """The process that runs it."""
    lease_until: datetime | None = None
    """When that process counts as dead, unless it renews this."""
    requests: int = 0
    cost_usd: Decimal = Decimal(0)
    """Known cost so far, in US dollars, as of `updated_at`."""
    error: str | None = None
    forked_from: str | None = None
    tags: tuple[str, ...] = ()
    tenant: str | None = None
