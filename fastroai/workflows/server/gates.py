"""Gates as questions that the client puts to its user: elicitations."""
# The SDK reads the annotations of nested functions, so they must be values here, and not text.

import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, Literal, TypeAlias

from mcp.server.mcpserver import AcceptedElicitation, Elicit, ElicitationResult, Resolve
from mcp_types.version import is_version_at_least
from pydantic import BaseModel, Field

from fastroai.plain_text import plain_json, plain_line, quoted
from fastroai.workflows.answers import AwaitGate, GateOutcome, NextAnswer, awaited_gate
from fastroai.workflows.server.desk import Call, desk_of

_ROUND_TRIPS_SINCE: Final = "2026-07-28"
"""The first version of the protocol whose questions travel in the answer of a call, and need no way back."""
_LONGEST_INPUTS: Final = 4_000
"""Maximum number of characters in a gate's inputs that a question shows."""


class Decision(BaseModel):
    """What a person decides at a gate."""

    outcome: GateOutcome = Field(description="approve: go on. revise: do it again. kill: end the flow.")
    rationale: str = Field("", description="The reason, for the record.", max_length=2_000)


class FinalDecision(BaseModel):
    """What a person decides at a gate that cannot send the flow back."""

    outcome: Literal["approve", "kill"] = Field(description="approve: go on. kill: end the flow.")
    rationale: str = Field("", description="The reason, for the record.", max_length=2_000)


Decided: TypeAlias = ElicitationResult[Decision | FinalDecision]
"""The outcome of a question. Its data is `None` if there was nothing to ask, or no way to ask."""


def deciding(answering: Callable[..., Awaitable[NextAnswer]]) -> Callable[..., Awaitable[Any]]:
    """Return a resolver that asks the user about the gate at which `answering` has brought the flow."""

    async def decide(
        call: Call, answer: Annotated[NextAnswer, Resolve(answering)]
    ) -> Elicit[Decision | FinalDecision] | None:
        gate = awaited_gate(answer)
        if gate is None or not _can_ask(call):
            return None
        question = _question(gate)
        return Elicit(question, Decision) if gate.on_revise is not None else Elicit(question, FinalDecision)

    return decide


async def settled(call: Call, answer: NextAnswer, decided: Decided) -> NextAnswer:
    """Put what the user has decided on record, and return what is to be done next.

    If another decision came first, return where the flow is now.
    """
    gate = awaited_gate(answer)
    if gate is None or not isinstance(decided, AcceptedElicitation) or decided.data is None:
        return answer
    desk, decision = desk_of(call), decided.data
    who = "human" if desk.trusts_client else "agent"
    after = await desk.runs.gate_resolve(
        gate.flow_id, gate.step_id, decision.outcome, decision.rationale, who
    )
    return await desk.runs.resume(gate.flow_id) if after.status == "error" else after


def is_second_round(call: Call) -> bool:
    """Return whether the client comes back with the user's decision.

    The state that it sends back was sealed for the same tool and the same arguments. So the call was carried
    out before, up to the gate, and only its answer is wanted.
    """
    return call.request_state is not None


def _can_ask(call: Call) -> bool:
    capabilities = call.client_capabilities
    asked = None if capabilities is None else capabilities.elicitation
    if asked is None or (asked.form is None and asked.url is not None):
        return False
    version = call.protocol_version
    has_round_trips = version is not None and is_version_at_least(version, _ROUND_TRIPS_SINCE)
    return has_round_trips or call.session.can_send_request


def _question(gate: AwaitGate) -> str:
    # Intent and inputs come from models and users: they must neither hide text nor look like lines of ours.
    said = {"intent": quoted(gate.intent) if gate.intent else "", "flow_id": plain_line(gate.flow_id)}
    gate = gate.model_copy(update=said)
    inputs = json.dumps(gate.inputs, ensure_ascii=False, indent=2, sort_keys=True) if gate.inputs else ""
    inputs = plain_json(inputs)
    if len(inputs) > _LONGEST_INPUTS:
        inputs = f"{inputs[:_LONGEST_INPUTS]}\n... ({len(inputs):,} characters in all)"
    ways = [f"approve: {_goes_on(gate.on_approve, 'the flow is complete')}"]
    if gate.on_revise is not None:
        left = "" if gate.revisions_left is None else f" ({gate.revisions_left} left)"
        ways.append(f"revise: back to {gate.on_revise!r}{left}")
    ways.append(f"kill: {_goes_on(gate.on_kill, 'the flow ends')}")
    place = f"Gate {gate.step_id!r} of flow {gate.flow!r}, round {gate.round} ({gate.flow_id})"
    return "\n\n".join(part for part in (gate.intent, place, "\n".join(ways), inputs) if part)


def _goes_on(target: str | None, otherwise: str) -> str:
    return otherwise if target is None else f"on to {target!r}"
