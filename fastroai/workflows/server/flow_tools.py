"""The tools that drive flows. Their docstrings tell agents what they do."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, get_args

from mcp_types import CallToolResult, InputRequiredResult
from pydantic import Field, JsonValue, TypeAdapter, WithJsonSchema

from fastroai.workflows.answers import (
    NextAnswer,
    ReportedUsage,
    awaited_gate,
    error,
)
from fastroai.workflows.driven_flows import WorkflowRuns
from fastroai.workflows.machine.state import GateOutcome, ResolvedBy
from fastroai.workflows.server.context import Call, context_of
from fastroai.workflows.server.gates import with_user
from fastroai.workflows.server.replies import (
    AuditResult,
    CommitResult,
    IterationResult,
    NextResult,
    TimeoutResult,
    reply,
)

_LONGEST_ID: Final = 5_000
"""Maximum number of characters in an id. Ids of flows inside of flows are paths."""

Decider: TypeAlias = Literal["human", "agent"]
"""Who has decided at a gate, as an agent can say."""

FlowId: TypeAlias = Annotated[
    str,
    Field(
        description="The `flow_id` of the answer before, or of a flow that is to go on.",
        max_length=_LONGEST_ID,
    ),
]
StepId: TypeAlias = Annotated[
    str, Field(description="The `step_id` of the answer before.", max_length=_LONGEST_ID)
]
Label: TypeAlias = Annotated[str, Field(description="The name of the checkpoint, such as `analysed`.")]
Result: TypeAlias = Annotated[
    JsonValue,
    Field(
        description="What you have worked out: the fields that `output_fields` or `output_schema` ask for."
    ),
]
# The next three are plain text and data here, with the schemas of their real types: the flows check them, and
# answer with an error that says what is wrong.
Usage: TypeAlias = Annotated[
    dict[str, JsonValue] | None,
    WithJsonSchema({"anyOf": [ReportedUsage.model_json_schema(), {"type": "null"}]}),
    Field(description="Tokens that a model has used for the step, if you know them; they count on budgets."),
]
Outcome: TypeAlias = Annotated[
    str | None,
    WithJsonSchema(TypeAdapter(GateOutcome | None).json_schema()),
    Field(
        description="approve: go on. revise: do it again from an earlier step on. kill: end the flow. "
        "Leave it out to let your user decide through the client."
    ),
]
Who: TypeAlias = Annotated[
    str,
    WithJsonSchema(TypeAdapter(Decider).json_schema()),
    Field(
        description="Who has decided: `human` only if a person has told you so in this session. It is on "
        "record as `human` if the operator trusts this client, and as `agent` otherwise."
    ),
]
Reason: TypeAlias = Annotated[str, Field(description="Why; it is kept on record.")]
Next: TypeAlias = Annotated[CallToolResult, NextResult]
NextOrQuestion: TypeAlias = Annotated[CallToolResult, NextResult] | InputRequiredResult


async def plan(
    call: Call,
    spec: Annotated[str, Field(description="The text of the spec, in YAML; not the path of a file.")],
    flow: Annotated[
        str | None, Field(description="The flow to begin; the entry flow of the spec unless given.")
    ] = None,
    inputs: Annotated[
        dict[str, JsonValue] | None, Field(description="The inputs of the flow, by name.")
    ] = None,
) -> Next:
    """Begin a flow of a workflow spec, and get its first step.

    Do what the answer says, and report each step with the tool that `next_call` names. Keep `flow_id`: with
    it, a flow goes on in another session (fastroai_resume). The status of an answer says what is next.
    `execute_step`: do the step as `intent` says, with `inputs`, and report it; `contract`, `output_schema`
    and `ensure` say what must hold of the result. `await_gate`: a person decides, with
    fastroai_gate_resolve. `execute_flow`: do as `child_step` says. `complete`, `failed`, `killed`: the flow
    is over. `error`: nothing has changed, and `message` says what to do instead.
    """
    return reply(await context_of(call).runs.plan(spec, flow, inputs))


async def step_done(
    call: Call, flow_id: FlowId, step_id: StepId, result: Result, usage: Usage = None
) -> NextOrQuestion:
    """Report the result of a step. It is checked, and the answer is the next step.

    If `next_call` of the step is `iteration_start`, begin its loop with fastroai_iteration_start first.

    `schema_failed` or `ensure_failed`: the result was not accepted. Mend what `violations` say, do the step
    again and report it again; `retries_remaining` says how often you may. Report what you have really done:
    the checks look at files, too.
    """
    return await with_user(
        call, flow_id, lambda: context_of(call).runs.step_done(flow_id, step_id, result, usage)
    )


async def skip_step(call: Call, flow_id: FlowId, step_id: StepId, reason: Reason = "") -> NextOrQuestion:
    """Leave the step out that is due, and get the next one. Its output is null for later steps.

    Use it only for a step that the situation makes pointless, and say why. A gate can't be skipped.
    """
    return await with_user(call, flow_id, lambda: context_of(call).runs.skip_step(flow_id, step_id, reason))


async def resume(call: Call, flow_id: FlowId) -> NextOrQuestion:
    """Get what is due now in a flow that was begun before, or how it has ended.

    Use it in a new session, after a `conflict`, and whenever you are not sure where the flow is.
    """
    return await with_user(call, flow_id, lambda: context_of(call).runs.resume(flow_id))


async def gate_resolve(
    call: Call,
    flow_id: FlowId,
    step_id: StepId,
    outcome: Outcome = None,
    rationale: Reason = "",
    resolved_by: Who = "agent",
) -> NextOrQuestion:
    """Resolve a gate, at which the flow waits for a person to decide.

    At a gate a person decides, and nobody decides for them. Call fastroai_gate_resolve without `outcome`
    first: a client that can ask its user does so. If the answer is still `await_gate`, show the person what
    there is to decide, wait for the answer, and call fastroai_gate_resolve with it and `resolved_by: human`.
    The audit says `human` if the decision has reached FastroAI from the person, or if the operator trusts
    this client; otherwise it says `agent`, because you have reported it.

    `revise` goes back to the step in `on_revise`, in a new round.
    """
    context = context_of(call)
    if outcome is None:
        return await with_user(call, flow_id, lambda: _at_gate(context.runs, flow_id, step_id))
    who = _on_record(resolved_by, context.trusts_client)
    return await with_user(
        call, flow_id, lambda: context.runs.gate_resolve(flow_id, step_id, outcome, rationale, who)
    )


def _on_record(said: str, trusts_client: bool) -> str:
    """Return who has decided, according to the record, if an agent says `said`."""
    is_believed = said == "human" and trusts_client
    return "agent" if said in get_args(ResolvedBy) and not is_believed else said


async def _at_gate(runs: WorkflowRuns, flow_id: str, step_id: str) -> NextAnswer:
    """Return the answer of a flow that waits at a gate; an error if it does not wait there."""
    answer = await runs.resume(flow_id)
    gate = awaited_gate(answer)
    is_there = gate is not None and _path(gate.flow_id, gate.step_id) == _path(flow_id, step_id)
    if is_there or answer.status == "error":
        return answer
    waiting = () if gate is None else (gate.step_id,)
    message = f"step {step_id!r} is not a gate that waits for a decision; fastroai_resume says what is due"
    return error("step_not_due", message, flow_id=flow_id, step_id=step_id, available=waiting)


def _path(flow_id: str, step_id: str) -> str:
    """Return the path of a step in its run, given the id of its flow or of a flow around it."""
    _, _, around = flow_id.partition("/")
    return f"{around}.{step_id}" if around else step_id


async def check_timeouts(call: Call, flow_id: FlowId) -> Annotated[CallToolResult, TimeoutResult]:
    """Kill the flow at a gate whose time is over. `no_timeout`: no gate was late, so nothing changed."""
    return reply(await context_of(call).runs.check_timeouts(flow_id))


async def commit(call: Call, flow_id: FlowId, label: Label) -> Annotated[CallToolResult, CommitResult]:
    """Set a checkpoint before a risky step. fastroai_revert goes back to it."""
    return reply(await context_of(call).runs.commit(flow_id, label))


async def revert(call: Call, flow_id: FlowId, label: Label) -> Next:
    """Go back to a checkpoint, also from a failed flow, and get the step that is due there.

    Everything since then stays on record, and what was spent stays spent. Files are not restored: do that
    first.
    """
    return reply(await context_of(call).runs.revert(flow_id, label))


async def iteration_start(
    call: Call, flow_id: FlowId, step_id: StepId
) -> Annotated[CallToolResult, IterationResult]:
    """Begin the loop of a step that has `max_iterations`.

    Then do the step, and report each turn with fastroai_iteration_report.
    """
    return reply(await context_of(call).runs.iteration_start(flow_id, step_id))


async def iteration_report(
    call: Call, flow_id: FlowId, step_id: StepId, result: Result
) -> Annotated[CallToolResult, IterationResult]:
    """Report the result of one turn of a loop.

    `iteration_continue`: do another turn. `iteration_exit`: the loop is over, because the criterion is met
    or no turn is left; report the step with fastroai_step_done.
    """
    return reply(await context_of(call).runs.iteration_report(flow_id, step_id, result))


async def iteration_abort(
    call: Call, flow_id: FlowId, step_id: StepId, reason: Reason = ""
) -> Annotated[CallToolResult, IterationResult]:
    """End a loop before its time. Then report the step with fastroai_step_done."""
    return reply(await context_of(call).runs.iteration_abort(flow_id, step_id, reason))


async def audit(call: Call, flow_id: FlowId) -> Annotated[CallToolResult, AuditResult]:
    """Get everything that happened in a flow: each attempt, decision, round and cost. It can be over."""
    return reply(await context_of(call).runs.audit(flow_id))
