"""Calls about a flow that are refused: the answer says what is wrong, and what to do instead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final, TypeVar, cast

from pydantic import JsonValue

from fastroai.errors import (
    ConfigurationError,
    FastroAIError,
    RunConflict,
    RunCorrupt,
    RunExists,
    RunFromNewerVersion,
    RunFromOlderVersion,
    RunInProgress,
    RunNotFound,
    RunStoreUnavailable,
    ValueNotStorable,
    nearest_hint,
)
from fastroai.steps.copies import own_copy
from fastroai.store.record.values import value_to_json
from fastroai.workflows.answering import ended_of
from fastroai.workflows.answers import (
    AwaitGate,
    ErrorAnswer,
    ErrorType,
    error,
)
from fastroai.workflows.calls import FlowCall
from fastroai.workflows.checks import oversize
from fastroai.workflows.loading import NotAWorkflow
from fastroai.workflows.spec.document import IterationSpec

MAX_TEXT: Final = 10_000
"""Maximum number of characters in a reason or a rationale."""
MAX_CHECKPOINTS: Final = 100
"""Maximum number of checkpoints of a flow."""
MAX_LABEL: Final = 200
"""Maximum number of characters in the label of a checkpoint."""
F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


class Refused(Exception):
    """A call that cannot be carried out."""

    def __init__(self, answer: ErrorAnswer) -> None:
        self.answer = answer


def refuse(error_type: ErrorType, message: str, step_id: str | None = None, *available: str) -> Refused:
    """Return the exception for a call that cannot be carried out."""
    return Refused(error(error_type, message, step_id=step_id, available=available))


def answered(call: F) -> F:
    """Wrap a call about a flow, so that it returns its errors as answers."""

    @wraps(call)
    async def answered(runs: object, flow_id: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return await call(runs, flow_id, *args, **kwargs)
        except Refused as refused:
            return refused.answer.model_copy(update={"flow_id": flow_id})
        except NotAWorkflow:
            message = f"Run {flow_id!r} is a run of a pipeline or graph, not of a workflow."
            return error("not_a_workflow", message, flow_id=flow_id)
        except FastroAIError as raised:
            return error_of(raised, flow_id)

    return cast("F", answered)


def error_of(raised: FastroAIError, flow_id: str | None) -> ErrorAnswer:
    """Return the answer for an error. Raise the error again if it has no answer."""
    match raised:
        case RunNotFound():
            message = f"There is no flow {flow_id!r}. Begin one with plan."
            return error("flow_not_found", message, flow_id=flow_id)
        case RunConflict():
            message = (
                "Another call changed the flow at the same time, and this call has stored nothing. "
                "Read the flow with resume, and decide again."
            )
            return error("conflict", message, flow_id=flow_id)
        case RunInProgress():
            return error("flow_running", f"Another process runs the flow: {raised}", flow_id=flow_id)
        case RunExists():
            return error("flow_exists", f"Flow {flow_id!r} exists. Read it with resume.", flow_id=flow_id)
        case RunCorrupt() | RunFromNewerVersion() | RunFromOlderVersion():
            return error("flow_unreadable", str(raised), flow_id=flow_id)
        case RunStoreUnavailable():
            message = (
                f"The store failed: {raised}. When it is back, read the flow with resume before you call "
                "again: this call may be on record."
            )
            return error("store_unavailable", message, flow_id=flow_id)
        case ConfigurationError() | ValueNotStorable():
            return error("invalid_input", str(raised), flow_id=flow_id)
        case _:
            raise raised


def check_path(call: FlowCall) -> None:
    """Refuse a call about an inner flow that does not exist or has not begun."""
    if call.path and call.path not in call.machine.state.flows:
        flow_ids = tuple(call.flow_id(path) for path in call.machine.state.flows)
        raise refuse("flow_not_found", f"No flow runs at step {call.path!r}.", None, *flow_ids)


def known_step(call: FlowCall, step_id: str) -> str:
    """Return the id that a step has in the run. Refuse the call if the spec has no such step."""
    full = call.full_id(step_id)
    if full not in call.plan.steps:
        due = _short_ids(call)
        step_ids = [call.short_id(step) for step in call.plan.steps]
        message = f"The flow has no step {step_id!r}.{nearest_hint(step_id, step_ids)} {_told_due(call)}"
        raise refuse("step_not_found", message, step_id, *due)
    return full


def due_step(call: FlowCall, step_id: str) -> str:
    """Return the id that a step has in the run. Refuse the call if the step is a gate or is not due."""
    full = known_step(call, step_id)
    _, step = call.spec(full)
    if step.gate is not None:
        message = f"Step {step_id!r} is a gate, where a person decides. Resolve it with gate_resolve."
        raise refuse("gate_step_requires_gate_resolve", message, step_id)
    if step.flow is not None and any(due.startswith(f"{full}.") for due in call.due):
        message = f"Step {step_id!r} runs flow {step.flow!r}, and is done when that is. {_told_due(call)}"
        raise refuse("child_flow_unfinished", message, step_id, *_short_ids(call))
    check_due(call, step_id, full)
    return full


def check_due(call: FlowCall, step_id: str, full: str) -> None:
    """Refuse a call about a step that is not due."""
    if full not in call.due:
        check_goes_on(call)
        stage = "is over" if _is_over(call, full) else "is not due"
        message = f"Step {step_id!r} {stage}. {_told_due(call)}"
        raise refuse("step_not_due", message, step_id, *_short_ids(call))


def _is_over(call: FlowCall, full: str) -> bool:
    """Return whether a step has been done, skipped or decided in this round."""
    plan, step = call.spec(full)
    flow = call.machine.state.flows.get(plan.path)
    state = None if flow is None else flow.steps.get(step.id)
    return state is not None and state.stage == "over"


def check_seen(call: FlowCall, full: str, seen: AwaitGate | None) -> None:
    """Refuse a decision on a gate that asks something else by now than the person has seen."""
    now = call.machine.flow_of(full).round, call.machine.inputs(full)
    if seen is not None and (seen.round, seen.inputs) != now:
        message = (
            f"Gate {seen.step_id!r} was answered meanwhile, and asks again. "
            "Read it with resume, and decide again."
        )
        raise refuse("conflict", message, seen.step_id)


def check_goes_on(call: FlowCall) -> None:
    """Refuse the call if the flow has ended."""
    finish = call.flow.finish
    if finish is not None and finish.status != "paused":
        ended = ended_of(call, finish)
        how = "cancelled" if isinstance(ended, ErrorAnswer) else ended.status
        message = f"The flow has ended as {how!r}: {finish.reason}. Read it with resume or audit."
        raise refuse("flow_ended", message)


def _short_ids(call: FlowCall) -> tuple[str, ...]:
    return tuple(call.short_id(step) for step in call.due)


def _told_due(call: FlowCall) -> str:
    due = [
        f"gate {call.short_id(step)!r}, where a person decides: resolve it with gate_resolve"
        if call.spec(step)[1].gate is not None
        else repr(call.short_id(step))
        for step in call.due
    ]
    return f"Due: {', '.join(due)}." if due else "Nothing is due."


def iteration_of(call: FlowCall, step_id: str, full: str) -> IterationSpec:
    """Return how a step is repeated. Refuse the call if it is not."""
    spec = call.spec(full)[1].iteration
    if spec is None:
        message = f"Step {step_id!r} has no max_iterations, so it has no loop. Report it with step_done."
        raise refuse("no_iterations", message, step_id)
    return spec


def to_iterate(step_id: str, spec: IterationSpec) -> str:
    """Return what to call for a step whose loop has not begun."""
    until = "" if spec.exit_criterion is None else f", until {spec.exit_criterion.text}"
    return (
        f"Step {step_id!r} is done in a loop of at most {spec.max_iterations} iterations{until}. Begin the "
        "loop with iteration_start, report each iteration with iteration_report, and call step_done when it "
        "has ended."
    )


def step_in_loop(call: FlowCall, step_id: str) -> str:
    """Return the id that a step has in the run. Refuse the call if the step has no active loop."""
    full = due_step(call, step_id)
    iteration_of(call, step_id, full)
    loop = call.machine.record(full).loop
    if loop is None or not loop.is_active:
        what = (
            "has not begun. Begin it with iteration_start"
            if loop is None
            else "has ended. Report the step with step_done"
        )
        raise refuse("iteration_not_active", f"The loop of step {step_id!r} {what}.", step_id)
    return full


def as_json(value: object, what: str, error_type: ErrorType) -> JsonValue:
    """Return a copy of a value as JSON data. Refuse the call if the value is no JSON, or too large."""
    try:
        plain = value_to_json(value, None, what)
    except ValueNotStorable as raised:
        raise refuse(error_type, f"{what} is not JSON: {raised}") from None
    if (why := oversize(plain)) is not None:
        raise refuse(error_type, f"{what} is too large: {why}")
    copied: JsonValue = own_copy(plain)
    return copied


def short_text(text: str) -> str:
    """Return a reason or a rationale. Refuse the call if it is too long."""
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        raise refuse("invalid_input", f"A reason is text of at most {MAX_TEXT:,} characters.")
    return text


def label_of(label: str) -> str:
    """Return the label of a checkpoint without space around it. Refuse the call if it is not one."""
    name = label.strip() if isinstance(label, str) else ""
    if not name or len(name) > MAX_LABEL or not name.isprintable():
        raise refuse("invalid_label", f"A label is printable text of 1 to {MAX_LABEL} characters.")
    return name
