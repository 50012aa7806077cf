"""Answers of the calls that drive a workflow from outside: the same for Python, the command line and MCP.

Each answer says by its `status` what to do next. An error is an answer as well: `status` is `error`, and
`error_type` says which one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from fastroai.workflows.machine.iterations import IterationOutcome
from fastroai.workflows.machine.state import ResolvedBy
from fastroai.workflows.spec.document import FieldSpec, FieldType, GatePolicy, Mode

EndStatus: TypeAlias = Literal["complete", "killed", "failed"]
ENDS: Final[Mapping[str, EndStatus]] = {"finished": "complete", "cancelled": "killed", "failed": "failed"}
"""The statuses of flows that are over, by those of their runs."""

FlowStatus: TypeAlias = Literal["in_progress", EndStatus, "cancelled"]
"""The status of a flow in an audit."""

ListedStatus: TypeAlias = Literal["in_progress", EndStatus, "unreadable"]
"""The status of a flow in a list, which shows cancelled flows as killed."""

ErrorType: TypeAlias = Literal[
    "invalid_spec",
    "invalid_input",
    "unknown_flow",
    "unknown_tool",
    "flow_exists",
    "flow_not_found",
    "not_a_workflow",
    "flow_running",
    "flow_ended",
    "flow_unreadable",
    "conflict",
    "store_unavailable",
    "step_not_found",
    "step_not_due",
    "invalid_result",
    "invalid_usage",
    "gate_step_requires_gate_resolve",
    "not_a_gate_step",
    "invalid_outcome",
    "invalid_resolved_by",
    "missing_on_revise",
    "no_revisions_left",
    "child_flow_unfinished",
    "no_iterations",
    "iteration_active",
    "iteration_not_active",
    "iteration_ended",
    "invalid_label",
    "checkpoint_not_found",
    "not_revertible",
]
"""The kind of error that an `ErrorAnswer` reports.

`invalid_spec`: the spec has problems, all of which are in `problems`. `invalid_input`: the inputs are not
those that the flow takes, or an argument is no JSON or too large. `unknown_flow`: the spec has no flow of
this name. `unknown_tool`: the MCP server has no tool of this name. `flow_exists`: the store already has a
flow with this id. `flow_not_found`: the store has no flow with this id. `not_a_workflow`: the run is one of a
pipeline or graph. `flow_running`: another process runs the flow. `flow_ended`: nothing is due in the flow any
more. `flow_unreadable`: the record of the flow is damaged. `conflict`: another call changed the flow first;
nothing of this call is on record, so read the flow with `resume` and decide again. `store_unavailable`: the
store fails; read the flow before another attempt.

`step_not_found`, `step_not_due`: `available` has the steps that are due. `invalid_result`, `invalid_usage`:
the value is not JSON, is too large, or does not have the form that is asked for.
`gate_step_requires_gate_resolve`, `not_a_gate_step`: the call is for the other kind of step.
`invalid_outcome`, `invalid_resolved_by`, `missing_on_revise`: the call does not fit the gate.
`no_revisions_left`: the flow has had all revisions that its `max_rounds` allows; approve or kill.
`child_flow_unfinished`: a step that runs a flow is done when its flow is. `no_iterations`: the step has no
`max_iterations`. `iteration_active`: finish or abort the loop first. `iteration_not_active`: start a loop
first. `iteration_ended`: the loop is over, so report the step. `invalid_label`, `checkpoint_not_found`,
`not_revertible`: the call does not fit the checkpoints of the flow.
"""


class Answer(BaseModel):
    """The answer of one call."""

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the answer as plain data, without fields that have their defaults."""
        return self.model_dump(mode="json", exclude_defaults=True)


class DeclaredField(Answer):
    """A field of a contract, or an input of a flow, as the spec declares it."""

    type: FieldType
    required: bool
    """Whether a value must be given."""
    values: tuple[JsonValue, ...] | None = None
    """The only values that are allowed; null: all values of the type."""
    default: JsonValue = None
    """The value of an input that is not given."""
    description: str = ""

    @classmethod
    def of(cls, field: FieldSpec) -> DeclaredField:
        """Return a field of a spec in the form that answers have."""
        return cls(
            type=field.type,
            required=field.required and not field.has_default,
            values=field.values,
            default=field.default,
            description=field.description,
        )


class Skipped(Answer):
    """A step that was left out on the way to this answer."""

    step_id: str
    reason: str


class _Next(Answer):
    """A step that is due."""

    flow_id: str
    """Id of the flow. Pass it, with `step_id`, to the call that reports the step."""
    flow: str
    """The name of the flow."""
    step_id: str
    step_number: int
    """Position in the flow, from 1."""
    total_steps: int
    round: int = 0
    """Number of times that a gate has sent the flow back."""
    routed_from: str | None = None
    """The step that led here by `on_fail`, `next` or a gate; `None` if this step follows the one before."""
    reverted_to: str | None = None
    """The label of the checkpoint that the call went back to."""
    skipped: tuple[Skipped, ...] = ()
    violations: tuple[str, ...] = ()
    """Violations of the result that led here: a result of this step, or of the step in `routed_from`."""


class LoopState(Answer):
    """A loop of a step, as it is now."""

    iteration: int
    """Number of results that were reported."""
    outcome: IterationOutcome
    accumulated_count: int = 0
    dry_streak: int = 0
    """Number of reports in a row that brought no new item."""


class ExecuteStep(_Next):
    """The answer of a call to a workflow when a step is due: do the step, then report its result.

    `intent` says what to do, `inputs` are its data, and `next_call` names the call that is next. If that is
    `iteration_start`, call it first: it takes no result. With the status `ensure_failed` or `schema_failed`,
    the last result was not accepted, for the reasons in `violations`. Do the step again.
    """

    status: Literal["execute_step", "ensure_failed", "schema_failed"]
    next_call: Literal["step_done", "iteration_start", "iteration_report"]
    """The call that is due. A step with `max_iterations` is repeated: `iteration_start` begins that,
    `iteration_report` takes the result of each iteration, and `step_done` the result of the step.
    """
    step_mode: Literal["function", "inline"]
    intent: str
    inputs: dict[str, JsonValue]
    output_contract: str | None
    output_fields: dict[str, str]
    """The types of the fields of the result, by name."""
    contract: dict[str, DeclaredField] = Field(default_factory=dict)
    """The fields of the result, as the contract of the step declares them."""
    ensure: tuple[str, ...]
    """Conditions that the result has to meet."""
    attempt: int
    max_attempts: int
    """Attempts in all, the first included."""
    retries_remaining: int
    """Attempts that are left, this one included, in every version of specs."""
    function: str | None = None
    mode: Mode | None = None
    agent: str | None = None
    model: str | None = None
    context: str = ""
    output_schema: dict[str, JsonValue] | None = None
    """JSON Schema that the result must match, beside its contract."""
    max_iterations: int | None = None
    """Maximum number of iterations; null: the step is not repeated."""
    exit_criterion: str | None = None
    accumulate: str | None = None
    loop: LoopState | None = None
    """The loop of this step, if one was started."""


class AwaitGate(_Next):
    """The answer of a call to a workflow when a gate is due: a step at which a person decides.

    When the person has decided to `approve`, `revise` or `kill`, resolve the gate with `gate_resolve`. Never
    decide for them. With a `timeout` in seconds, the gate kills the flow if nobody decides in time.
    """

    status: Literal["await_gate"]
    function: str
    intent: str
    inputs: dict[str, JsonValue]
    on_approve: str | None
    """The step that follows an approval; null: an approval completes the flow."""
    on_revise: str | None
    """The step from which the flow is done again after `revise`; null: the gate cannot revise (any more)."""
    on_kill: str | None
    """The step that cleans up before the flow ends; null: the flow ends at once."""
    revisions_left: int | None = None
    """How often gates of this flow can still revise; null: without limit."""
    timeout: float | None
    """Seconds that the gate waits for a decision, before it kills the flow by itself."""
    expires_at: datetime | None = None


class ExecuteFlow(_Next):
    """The answer of a call to a workflow when something is due in a flow that one of its steps runs.

    Do as `child_step` says: it is the answer of the inner flow, with that flow's `flow_id`. The step around
    it is done when the inner flow is.
    """

    status: Literal["execute_flow"]
    child_flow: str
    """The name of the inner flow."""
    child_flow_id: str
    child_step: ExecuteStep | AwaitGate | ExecuteFlow


class StepRecord(Answer):
    """What happened at a step, in a `trace`."""

    type: Literal["step", "gate", "skip", "policy"]
    """The kind of record. `policy` is a gate that its policy has approved."""
    step_id: str
    outcome: str
    """`open` or `skipped`; of a step also `succeeded` or `failed`; of a gate `approve`, `revise`, `kill`."""
    attempts: int = 0
    duration_ms: float = 0.0
    step_mode: Literal["function", "inline", "flow"] | None = None
    function: str | None = None
    agent: str | None = None
    violations: tuple[str, ...] = ()
    """Violations of each result that was not accepted, in order."""
    error: str = ""
    """Why the step failed, if not by a check."""
    resolved_by: ResolvedBy | None = None
    rationale: str = ""
    policy: GatePolicy | None = None
    skip_reason: str = ""
    iteration_outcome: IterationOutcome | None = None
    child_flow_id: str | None = None
    cost_usd: Decimal = Decimal(0)
    """Known cost of this step in US dollars, flows inside of it included."""
    tokens: int = 0


class FlowEnded(Answer):
    """The answer of a call to a workflow when the flow is over: complete, failed, or killed at a gate.

    No step is due any more. A failed flow can go back to a checkpoint with `revert`. `trace` has a record for
    each step of the last round, and `output` is the output of the flow.
    """

    status: EndStatus
    flow_id: str
    flow: str
    output: JsonValue
    trace: tuple[StepRecord, ...]
    total_duration_ms: float
    reason: str = ""
    """Why the flow ended, for people."""
    reason_code: str = ""
    """Why the flow ended, for programs: `step_failed`, `budget_exceeded`, `max_rounds`, `killed`, ..."""
    step_id: str | None = None
    """The step that failed."""
    violations: tuple[str, ...] = ()
    reverted_to: str | None = None
    skipped: tuple[Skipped, ...] = ()


class IterationAnswer(Answer):
    """A loop began, goes on or has ended. After `iteration_exit` or `iteration_aborted`, report the step."""

    status: Literal["iteration_started", "iteration_continue", "iteration_exit", "iteration_aborted"]
    flow_id: str
    step_id: str
    iteration: int
    max_iterations: int
    exit_criterion: str | None = None
    exit_criterion_met: bool = False
    exit_criterion_error: str | None = None
    """Why the criterion could not be evaluated; then the loop goes on."""
    outcome: IterationOutcome = "continue"
    accumulated_count: int | None = None
    """Number of different items so far."""
    new_count: int | None = None
    """Number of different items that this report has added."""
    dry_streak: int | None = None
    extraction_error: str | None = None
    """Why no items could be read from the result. The report then changes neither items nor dry streak."""


class Committed(Answer):
    """A checkpoint is set."""

    status: Literal["committed"]
    flow_id: str
    label: str
    checkpoints: tuple[str, ...]
    current_step_id: str | None = None


class NoTimeout(Answer):
    """No gate has run out of time."""

    status: Literal["no_timeout"]
    flow_id: str
    message: str
    step_id: str | None = None
    remaining_seconds: float | None = None


class IterationRecord(Answer):
    """A report to a loop, without its result."""

    iteration: int
    outcome: IterationOutcome
    exit_criterion_met: bool = False
    accumulated_count: int | None = None
    new_count: int | None = None
    dry_streak: int | None = None
    extraction_error: str | None = None
    reason: str = ""


class RoundRecord(Answer):
    """A round that a gate has sent back."""

    round: int
    """Number of the round, from 0, as everywhere: the number of times that a gate had sent the flow back."""
    steps: tuple[StepRecord, ...]


class AuditAnswer(Answer):
    """The answer of `audit`: what has happened in a flow so far, also before it has ended.

    It has a record of each step, gate and loop of all rounds, the audits of inner flows, and the cost. Steps
    that `revert` has undone are left out, but the cost and the tokens of the outermost flow include theirs.
    In a flow that is driven from outside, only reported usage counts: without any, the cost is $0, and
    `cost_complete` is true.
    """

    status: FlowStatus
    flow_id: str
    flow: str
    steps_completed: int
    """Number of steps that are over, skipped ones included. A revision undoes those from its target on."""
    total_steps: int
    steps_skipped: tuple[str, ...] = ()
    """The steps that were skipped; in a complete flow, also those that nothing led to."""
    trace: tuple[StepRecord, ...]
    """Records of the steps in the current or last round."""
    round: int
    rounds: tuple[RoundRecord, ...]
    iterations: dict[str, tuple[IterationRecord, ...]]
    """Reports to loops in this round, by step."""
    archived_iterations: tuple[dict[str, tuple[IterationRecord, ...]], ...]
    """Reports to loops in each earlier round, by step."""
    child_audits: dict[str, tuple[AuditAnswer, ...]]
    """Audits of inner flows, by step: one for each time that the step ran its flow."""
    total_duration_ms: float
    cost_usd: Decimal
    """Known cost in US dollars."""
    cost_complete: bool
    """Whether all reported usage could be priced."""
    tokens: int
    output: JsonValue = None
    reason: str = ""
    reason_code: str = ""
    checkpoints: tuple[str, ...] = ()


class ListedFlow(Answer):
    """A flow in the store."""

    flow_id: str
    workflow: str
    status: ListedStatus
    started_at: datetime | None
    updated_at: datetime | None
    awaits: bool = False
    """Whether the flow waits for a decision at a gate."""
    error: str | None = None


class FlowList(Answer):
    """The flows in the store, the latest first."""

    status: Literal["ok"]
    flows: tuple[ListedFlow, ...]


class Problem(Answer):
    """Something that is wrong with a spec."""

    message: str
    line: int
    """The line in the spec, from 1."""
    column: int
    """The column in that line, in characters, from 1."""
    flow: str | None = None
    step: str | None = None
    allowed: tuple[str, ...] = ()
    """Values that are allowed in this place."""
    nearest: str | None = None
    """The allowed name that is most like the one that was found."""


class ErrorAnswer(Answer):
    """The call changed nothing. `message` says what to do instead.

    If the store fails while it writes (`store_unavailable`), nobody knows whether the call is on record.
    """

    status: Literal["error"]
    error_type: ErrorType
    message: str
    flow_id: str | None = None
    step_id: str | None = None
    available: tuple[str, ...] = ()
    """Values that would have been valid instead, such as ids of steps or labels of checkpoints."""
    problems: tuple[Problem, ...] = ()


class ReportedUsage(BaseModel):
    """What a model has used for a step, as the agent reports it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(description="The model, such as `anthropic:claude-sonnet-4-5`.", max_length=200)
    input_tokens: int = Field(0, ge=0, description="Input tokens, cached ones included.")
    output_tokens: int = Field(0, ge=0)
    cache_read_tokens: int = Field(0, ge=0, description="Input tokens that were read from a cache.")
    cache_write_tokens: int = Field(0, ge=0, description="Input tokens that were written to a cache.")


NextAnswer: TypeAlias = ExecuteStep | AwaitGate | ExecuteFlow | FlowEnded | ErrorAnswer
"""The answer of calls that move a flow on: what is to be done next, or how the flow has ended."""


def error(
    error_type: ErrorType,
    message: str,
    *,
    flow_id: str | None = None,
    step_id: str | None = None,
    available: tuple[str, ...] = (),
    problems: tuple[Problem, ...] = (),
) -> ErrorAnswer:
    """Return the answer of a call that could not be carried out."""
    return ErrorAnswer(
        status="error",
        error_type=error_type,
        message=message,
        flow_id=flow_id,
        step_id=step_id,
        available=available,
        problems=problems,
    )


def awaited_gate(answer: NextAnswer) -> AwaitGate | None:
    """Return the gate at which a flow, or a flow inside of it, waits for a decision."""
    while isinstance(answer, ExecuteFlow):
        answer = answer.child_step
    return answer if isinstance(answer, AwaitGate) else None
