"""Gates as questions that the client puts to its user: elicitations."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeAlias

from mcp.server.elicitation import render_elicitation_schema
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    InputResponse,
)
from mcp_types.version import is_version_at_least
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from fastroai.plain_text import plain_json, plain_line, quoted
from fastroai.workflows.answers import AwaitGate, NextAnswer, awaited_gate
from fastroai.workflows.machine.state import GateOutcome
from fastroai.workflows.server.context import Call, context_of
from fastroai.workflows.server.replies import reply

logger: Final = logging.getLogger("fastroai.workflows")

_ROUND_TRIPS_SINCE: Final = "2026-07-28"
"""The first version of the protocol whose questions travel in the answer of a call, and need no way back."""
_QUESTION: Final = "decision"
"""The name of the question in the answer of a call."""
_LONGEST_INPUTS: Final = 4_000
"""Maximum number of characters in a gate's inputs that a question shows."""
_LARGEST_STATE: Final = 1_000_000
"""Maximum number of bytes that the client is asked to send back with the decision."""

_ANSWER: Final[TypeAdapter[NextAnswer]] = TypeAdapter(NextAnswer)


class Decision(BaseModel):
    """What a person decides at a gate."""

    outcome: GateOutcome = Field(description="approve: go on. revise: do it again. kill: end the flow.")
    rationale: str = Field("", description="The reason, for the record.", max_length=2_000)


class FinalDecision(BaseModel):
    """What a person decides at a gate that cannot send the flow back."""

    outcome: Literal["approve", "kill"] = Field(description="approve: go on. kill: end the flow.")
    rationale: str = Field("", description="The reason, for the record.", max_length=2_000)


Act: TypeAlias = Callable[[], Awaitable[NextAnswer]]
"""Carries out a call, and returns what is to be done next."""


async def with_user(call: Call, flow_id: str, act: Act) -> CallToolResult | InputRequiredResult:
    """Carry out a call about a flow. If it leads to a gate, ask the user of the client to decide there.

    What the call has done is on record before the question is put. So whatever goes wrong with the question,
    the result says where the flow is, and is no error.
    """
    if call.request_state is not None:  # the client comes back with the decision: the call was carried out
        try:
            answer = _ANSWER.validate_json(call.request_state)
        except ValidationError:  # a server of another version has asked
            logger.warning(
                "a question at a gate of flow %r has a form that this version does not know", flow_id
            )
            return reply(await context_of(call).runs.resume(flow_id))
        given = (call.input_responses or {}).get(_QUESTION)
        return reply(await _settled(call, answer, given))
    answer = await act()
    gate = awaited_gate(answer)
    if gate is None or not _can_ask(call):
        return reply(answer)
    question = ElicitRequestFormParams(
        message=_question(gate), requested_schema=render_elicitation_schema(_form(gate))
    )
    if not _has_round_trips(call):
        return reply(await _settled(call, answer, await _asked(call, question)))
    state = answer.model_dump_json()
    if len(state.encode()) > _LARGEST_STATE:
        return reply(answer)
    return InputRequiredResult(
        input_requests={_QUESTION: ElicitRequest(params=question)}, request_state=state
    )


async def _asked(call: Call, question: ElicitRequestFormParams) -> ElicitResult | None:
    """Ask while the call is in progress. Return `None` if the client could not put the question."""
    try:
        given: ElicitResult = await call.session.elicit_form(
            question.message, question.requested_schema, related_request_id=call.request_id
        )
    except (MCPError, ValidationError) as error:
        logger.warning("the client could not ask its user about a gate: %r", str(error))
        return None
    return given


async def _settled(call: Call, answer: NextAnswer, given: InputResponse | None) -> NextAnswer:
    """Put what the user has decided on record, and return what is to be done next.

    If the user has not decided, or somebody else came first, return where the flow is now. If that cannot be
    read, the flow was last seen at the gate.
    """
    gate, context = awaited_gate(answer), context_of(call)
    assert gate is not None
    decision = _decision(gate, given)
    if decision is not None:
        after = await context.runs.gate_resolve(
            gate.flow_id,
            gate.step_id,
            decision.outcome,
            decision.rationale,
            "human" if context.trusts_client else "agent",
            seen=gate,
        )
        if after.status != "error":
            return after
    run_id, _, _ = gate.flow_id.partition("/")
    now = await context.runs.resume(run_id)
    return answer if now.status == "error" else now


def _decision(gate: AwaitGate, given: InputResponse | None) -> Decision | FinalDecision | None:
    """Return what the user has decided; `None` if the client has sent no decision."""
    if not isinstance(given, ElicitResult) or given.action != "accept":
        return None
    try:
        return _form(gate).model_validate(given.content)
    except ValidationError:
        logger.warning("the client has not sent a decision that gate %r accepts", gate.step_id)
        return None


def _form(gate: AwaitGate) -> type[Decision] | type[FinalDecision]:
    return FinalDecision if gate.on_revise is None else Decision


def _can_ask(call: Call) -> bool:
    capabilities = call.client_capabilities
    asked = None if capabilities is None else capabilities.elicitation
    if asked is None or (asked.form is None and asked.url is not None):
        return False
    return _has_round_trips(call) or call.session.can_send_request


def _has_round_trips(call: Call) -> bool:
    version = call.protocol_version
    return version is not None and is_version_at_least(version, _ROUND_TRIPS_SINCE)


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
