"""Workflows that are driven from outside, call by call. Between two calls, no process holds the flow."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from time import time
from typing import Any, Final, TypeVar, cast, get_args

from pydantic import JsonValue, ValidationError

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
from fastroai.records import RequestRecord, Tokens
from fastroai.runs.openings import RunKeeper
from fastroai.runtime import facts
from fastroai.runtime.facts import RunStarted
from fastroai.runtime.labels import labels_of
from fastroai.steps.copies import own_copy
from fastroai.store.backends.adapter import adapt_run_store
from fastroai.store.reading.history import RunHistory, RunSummary
from fastroai.store.record.headers import check_run_id
from fastroai.store.record.payloads import PayloadCodec
from fastroai.store.record.values import value_to_json
from fastroai.store.run_store import RunStoreLike
from fastroai.usage import CostCalculator
from fastroai.usage.prices.references import provider_and_name
from fastroai.workflows.answering import ended_of, next_of, rejected
from fastroai.workflows.answers import (
    AuditAnswer,
    AwaitGate,
    Committed,
    ErrorAnswer,
    ErrorType,
    FlowList,
    FlowStatus,
    GateOutcome,
    IterationAnswer,
    ListedFlow,
    NextAnswer,
    NoTimeout,
    Problem,
    ReportedUsage,
    ResolvedBy,
    error,
)
from fastroai.workflows.auditing import audit_of
from fastroai.workflows.calls import FlowCall
from fastroai.workflows.checks import oversize
from fastroai.workflows.definition import TAG, define
from fastroai.workflows.driving import NotAWorkflow, Specs
from fastroai.workflows.errors import WorkflowValidationError
from fastroai.workflows.facts import (
    CheckpointRestored,
    CheckpointSet,
    IterationAborted,
    IterationReported,
    IterationStarted,
    SkipRequested,
)
from fastroai.workflows.inputs import input_problems, with_defaults
from fastroai.workflows.machine.iterations import Reported, merged
from fastroai.workflows.machine.step_inputs import GateAnswer
from fastroai.workflows.spec.document import IterationSpec
from fastroai.workflows.spec.files import Workspace
from fastroai.workflows.stored_flows import StoredFlow, StoredFlows

MAX_TEXT: Final = 10_000
"""Maximum number of characters in a reason or a rationale."""
MAX_LABEL: Final = 200
"""Maximum number of characters in the label of a checkpoint."""
MAX_CHECKPOINTS: Final = 100
"""Maximum number of checkpoints of a flow."""

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


class Refused(Exception):
    """A call that cannot be carried out."""

    def __init__(self, answer: ErrorAnswer) -> None:
        self.answer = answer


def refuse(error_type: ErrorType, message: str, step_id: str | None = None, *available: str) -> Refused:
    """Return the exception for a call that cannot be carried out."""
    return Refused(error(error_type, message, step_id=step_id, available=available))


def _answered(call: F) -> F:
    """Wrap a call about a flow, so that it returns its errors as answers."""

    @wraps(call)
    async def answered(runs: WorkflowRuns, flow_id: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return await call(runs, flow_id, *args, **kwargs)
        except Refused as refused:
            return refused.answer.model_copy(update={"flow_id": flow_id})
        except NotAWorkflow:
            message = f"Run {flow_id!r} is one of a pipeline or graph, and has no workflow."
            return error("not_a_workflow", message, flow_id=flow_id)
        except FastroAIError as raised:
            return _error_of(raised, flow_id)

    return cast("F", answered)


def _error_of(raised: FastroAIError, flow_id: str | None) -> ErrorAnswer:
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
            return error("flow_exists", f"There is a flow {flow_id!r} already.", flow_id=flow_id)
        case RunCorrupt() | RunFromNewerVersion() | RunFromOlderVersion():
            return error("flow_unreadable", str(raised), flow_id=flow_id)
        case RunStoreUnavailable():
            message = (
                f"The store fails: {raised}. When it is back, read the flow with resume before you call "
                "again, as this call may be on record."
            )
            return error("store_unavailable", message, flow_id=flow_id)
        case ConfigurationError() | ValueNotStorable():
            return error("invalid_input", str(raised), flow_id=flow_id)
        case _:
            raise raised


class WorkflowRuns:
    """Runs of workflows whose steps are done from outside, by an agent or a person.

        runs = WorkflowRuns(store)
        answer = await runs.plan(spec_text, inputs={"topic": "tides"})
        while answer.status == "execute_step":
            answer = await runs.step_done(answer.flow_id, answer.step_id, result)

    Each call reads what is new in the log, decides, and appends all its facts in one write. The write is
    refused if another process has written since. So calls can come from any process.

    `flow_id` is the id of the run, or of a flow inside of it: `<run>/<step>`. `step_id` is the id of a step
    in that flow, or its path from there: `review.draft`. Errors are answers, too: see `ErrorType`.
    """

    def __init__(
        self,
        store: RunStoreLike,
        *,
        calculator: CostCalculator | None = None,
        workspace: Path | str | None = None,
        codec: PayloadCodec | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        """Args:
        store: The store that keeps the flows.
        calculator: Prices the usage that is reported.
        workspace: The directory that `file_exists` and `file_contains` see; without one, they see no file.
        codec: Encrypts values of users in flows.
        clock: Returns the seconds since 1970.
        """
        self.store, self._codec = adapt_run_store(store), codec
        self._calculator = CostCalculator() if calculator is None else calculator
        self._specs = Specs(None if workspace is None else Workspace(workspace))
        self._keeper = RunKeeper(
            definition={},
            input_types={},
            output_types={},
            store=self.store,
            durability="sync",
            codec=codec,
            kind="workflow",
        )
        self._clock = clock
        self._runs = StoredFlows(self._keeper, self._specs, clock)

    async def plan(
        self,
        spec: str,
        flow: str | None = None,
        inputs: Mapping[str, JsonValue] | None = None,
        *,
        run_id: str | None = None,
        tags: Collection[str] = (),
        tenant: str | None = None,
    ) -> NextAnswer:
        """Begin a flow of a spec, by default its entry flow, and return the first step."""
        run_id = uuid.uuid4().hex if run_id is None else run_id
        try:
            return await self._plan(spec, flow, dict(inputs or {}), run_id, tags, tenant)
        except Refused as refused:
            return refused.answer
        except WorkflowValidationError as invalid:
            message = f"The spec has problems: {len(invalid.problems)}. Correct them, and plan again."
            problems = tuple(map(Problem.model_validate, invalid.problems))
            return error("invalid_spec", message, problems=problems)
        except FastroAIError as raised:
            return _error_of(raised, run_id)

    async def _plan(
        self,
        text: str,
        flow: str | None,
        inputs: dict[str, JsonValue],
        run_id: str,
        tags: Collection[str],
        tenant: str | None,
    ) -> NextAnswer:
        labels = labels_of((TAG, *tags), tenant)
        check_run_id(run_id)
        if "/" in run_id:
            raise refuse("invalid_input", f"A flow id has no '/', as {run_id!r} has.")
        try:
            # A large spec takes long to read: other calls go on meanwhile.
            plan = (await asyncio.to_thread(self._specs.load, text, flow)).plan
        except KeyError:
            flows = self._specs.load(text, None).plan.spec.flows
            hint = nearest_hint(str(flow), flows)
            raise refuse("unknown_flow", f"The spec has no flow {flow!r}.{hint}", None, *flows) from None
        if problems := input_problems(plan.entry.flow, inputs):
            raise refuse("invalid_input", "; ".join(problems), None, *plan.entry.flow.input)
        name = plan.entry.flow.name
        opened = RunStarted(
            part=facts.Part(run_id, name, (name,)),
            definition=define(plan, width=1),
            inputs=self._keeper.stored(with_defaults(plan.entry.flow, inputs)),
            timestamp=self._clock(),
        )
        begun = self._runs.begun(opened)
        call = FlowCall(begun, "")
        await call.follow()
        await self._runs.put_on_record(begun, labels)
        return next_of(call)

    @_answered
    async def step_done(
        self,
        flow_id: str,
        step_id: str,
        result: JsonValue,
        usage: ReportedUsage | Mapping[str, JsonValue] | None = None,
    ) -> NextAnswer:
        """Check the result of a step. Return the next step, or what is wrong with the result."""
        async with self._opened(flow_id) as call:
            full = _due_step(call, step_id)
            given = _json(result, "the result", "invalid_result")
            _, step = call.spec(full)
            loop = call.machine.record(full).loop
            if loop is not None and loop.is_active:
                message = (
                    f"The loop of step {step_id!r} is not over. Report to it, or abort it, before step_done."
                )
                raise refuse("iteration_active", message, step_id)
            if step.iteration is not None and loop is None:
                raise refuse("iteration_not_active", _to_iterate(step_id, step.iteration), step_id)
            spent = None if usage is None else self._record(usage, call.needs_prices(full))
            if step.iteration is not None and loop is not None:
                given = _json(merged(step.iteration, loop, given), "the merged result", "invalid_result")
            failed = await call.done(full, given, spent)
            await self._save(call)
            if failed is not None and full in call.due and call.machine.step(full).attempt > 1:
                return rejected(call, full, failed.status)
            return next_of(call)

    @_answered
    async def gate_resolve(
        self,
        flow_id: str,
        step_id: str,
        outcome: str,
        rationale: str = "",
        resolved_by: str = "human",
        *,
        seen: AwaitGate | None = None,
    ) -> NextAnswer:
        """Resolve a gate: approve, revise or kill.

        `seen` is the gate as it was shown to the person who decides. If it asks in another round or about
        other inputs by now, the answer is a `conflict`, and the gate still waits.
        """
        async with self._opened(flow_id) as call:
            full = _known_step(call, step_id)
            _, step = call.spec(full)
            if step.gate is None:
                message = f"Step {step_id!r} is not a gate. Report its result with step_done."
                raise refuse("not_a_gate_step", message, step_id)
            if any(halted == full for halted, _ in call.machine.state.halted):  # in a run of FastroAI itself
                self._runs.resume(call.flow)
                await call.follow()
            _check_due(call, step_id, full)
            _check_seen(call, full, seen)
            if outcome not in (outcomes := get_args(GateOutcome)):
                raise refuse(
                    "invalid_outcome", f"{outcome!r} is not an outcome of this gate.", step_id, *outcomes
                )
            if resolved_by not in (people := get_args(ResolvedBy)):
                raise refuse(
                    "invalid_resolved_by",
                    f"resolved_by is {resolved_by!r}; it takes one of the kinds, not a name.",
                    step_id,
                    *people,
                )
            if outcome == "revise" and step.gate.on_revise is None:
                message = f"Gate {step_id!r} cannot revise: its on_revise names no step."
                raise refuse("missing_on_revise", message, step_id, "approve", "kill")
            if outcome == "revise" and call.machine.revisions_left(full) == 0:
                most = call.spec(full)[0].flow.max_rounds
                message = f"Gate {step_id!r} cannot revise any more: max_rounds={most} revisions were made."
                raise refuse("no_revisions_left", message, step_id, "approve", "kill")
            answer = GateAnswer(
                cast("GateOutcome", outcome), _short(rationale), cast("ResolvedBy", resolved_by)
            )
            if call.flow.recorded.ended is not None:
                self._runs.resume(call.flow)
            call.answer(call.unit(full), answer)
            await self._save(call)
            return next_of(call)

    @_answered
    async def skip_step(self, flow_id: str, step_id: str, reason: str = "") -> NextAnswer:
        """Skip a step that is due; its output is null."""
        async with self._opened(flow_id) as call:
            full = _due_step(call, step_id)
            call.report(SkipRequested(full, visit=call.unit(full)[1], reason=_short(reason)))
            await self._save(call)
            return next_of(call)

    @_answered
    async def commit(self, flow_id: str, label: str) -> Committed | ErrorAnswer:
        """Set a checkpoint. It replaces an earlier one of the same label."""
        async with self._opened(flow_id) as call:
            name, checkpoints = _label(label), call.machine.checkpoints
            _check_goes_on(call)
            if len(checkpoints) >= MAX_CHECKPOINTS and name not in checkpoints:
                message = f"A flow has at most {MAX_CHECKPOINTS} checkpoints. Set one of these again."
                raise refuse("invalid_label", message, None, *checkpoints)
            call.report(CheckpointSet(label=name))
            await self._save(call)
            return Committed(
                status="committed",
                flow_id=call.run_id,
                label=name,
                checkpoints=tuple(checkpoints),
                current_step_id=next(iter(call.due), None),
            )

    @_answered
    async def revert(self, flow_id: str, label: str) -> NextAnswer:
        """Go back to a checkpoint. Everything since then stays on record, and money that was spent counts."""
        async with self._opened(flow_id) as call:
            name, checkpoints = _label(label), call.machine.checkpoints
            if name not in checkpoints:
                hint = nearest_hint(name, checkpoints)
                message = f"The flow has no checkpoint {name!r}.{hint}"
                raise refuse("checkpoint_not_found", message, None, *checkpoints)
            finish = call.flow.finish
            if finish is not None and finish.status in ("finished", "cancelled"):
                ended = "complete" if finish.status == "finished" else "killed"
                message = f"The flow is {ended}, and stays so. Begin another one with plan."
                raise refuse("not_revertible", message)
            call.report(CheckpointRestored(label=name))
            await self._save(call)
            return next_of(call, reverted_to=name)

    @_answered
    async def iteration_start(self, flow_id: str, step_id: str) -> IterationAnswer | ErrorAnswer:
        """Begin the loop of a step that has `max_iterations`."""
        async with self._opened(flow_id) as call:
            full = _due_step(call, step_id)
            spec, unit = _iteration(call, step_id, full), call.unit(full)
            loop = call.machine.record(full).loop
            if loop is not None and loop.is_active:
                raise refuse(
                    "iteration_active", f"A loop of step {step_id!r} is not over. Report to it.", step_id
                )
            if loop is not None and loop.visit == unit[1]:
                message = (
                    f"The loop of step {step_id!r} has ended: {loop.outcome}. Report the step with step_done."
                )
                raise refuse("iteration_ended", message, step_id)
            call.report(IterationStarted(full, visit=unit[1]))
            await self._save(call)
            return _iteration_answer(call, step_id, spec, "iteration_started", None)

    @_answered
    async def iteration_report(
        self, flow_id: str, step_id: str, result: JsonValue
    ) -> IterationAnswer | ErrorAnswer:
        """Report the result of an iteration; the answer says whether the loop goes on."""
        async with self._opened(flow_id) as call:
            full = _in_loop(call, step_id)
            given = _json(result, "the result", "invalid_result")
            call.report(IterationReported(full, given, visit=call.unit(full)[1]))
            await self._save(call)
            reported = call.machine.flow_of(full).iterations[call.spec(full)[1].id][-1]
            status = "iteration_continue" if reported.outcome == "continue" else "iteration_exit"
            return _iteration_answer(call, step_id, _iteration(call, step_id, full), status, reported)

    @_answered
    async def iteration_abort(
        self, flow_id: str, step_id: str, reason: str = ""
    ) -> IterationAnswer | ErrorAnswer:
        """End a loop early."""
        async with self._opened(flow_id) as call:
            full = _in_loop(call, step_id)
            call.report(IterationAborted(full, visit=call.unit(full)[1], reason=_short(reason)))
            await self._save(call)
            reported = call.machine.flow_of(full).iterations[call.spec(full)[1].id][-1]
            return _iteration_answer(
                call, step_id, _iteration(call, step_id, full), "iteration_aborted", reported
            )

    @_answered
    async def check_timeouts(self, flow_id: str) -> NextAnswer | NoTimeout:
        """Kill the flow at a gate whose time is over; return `NoTimeout` if there is no such gate."""
        async with self._opened(flow_id, times_out=False) as call:
            if await self._time_out(call):
                return next_of(call)
            deadlines = [
                (wait.deadline, step_id)
                for (step_id, _), wait in call.gate_waits.items()
                if wait.deadline is not None
            ]
            if not deadlines:
                return NoTimeout(
                    status="no_timeout", flow_id=flow_id, message="No gate waits that has a timeout."
                )
            deadline, step_id = min(deadlines)
            return NoTimeout(
                status="no_timeout",
                flow_id=flow_id,
                message=f"Gate {step_id!r} still has time.",
                step_id=step_id,
                remaining_seconds=max(0.0, deadline - self._clock()),
            )

    @_answered
    async def audit(self, flow_id: str) -> AuditAnswer | ErrorAnswer:
        """Return everything that happened in a flow."""
        run_id, _, path = flow_id.partition("/")
        async with self._runs.opened(run_id, running_too=True) as opened:
            call = FlowCall(opened, path)
            _check_path(call)
            return audit_of(call, call.machine.state.flows[path])

    @_answered
    async def due(self, flow_id: str) -> NextAnswer:
        """Return what is due now, or how the flow has ended. Unlike `resume`, this puts nothing on record."""
        run_id, _, path = flow_id.partition("/")
        async with self._runs.opened(run_id) as opened:
            call = FlowCall(opened, path)
            _check_path(call)
            if _goes_on(opened):
                self._runs.resume(opened)
                await call.follow()
            return next_of(call)

    @_answered
    async def resume(self, flow_id: str) -> NextAnswer:
        """Return what is due now, or how the flow has ended. A run that can go on is resumed."""
        async with self._opened(flow_id) as call:
            stopped, finish = call.machine.state.stopped, call.flow.finish
            can_go_on = finish is not None and finish.status != "finished" and not call.due
            if can_go_on and (stopped is None or not stopped.is_final):
                self._runs.resume(call.flow)
                await self._save(call)
            return next_of(call)

    async def list_flows(self, *, limit: int = 100) -> FlowList | ErrorAnswer:
        """Return the flows in the store, the latest first."""
        try:
            found = await RunHistory(self.store, codec=self._codec).list(tag=TAG, limit=limit)
        except FastroAIError as raised:
            return _error_of(raised, None)
        return FlowList(status="ok", flows=tuple(map(_listed, found)))

    # --- parts of calls ---

    @asynccontextmanager
    async def _opened(self, flow_id: str, *, times_out: bool = True) -> AsyncIterator[FlowCall]:
        """Open a flow for a call, and bring it up to date with everything that happened since the last call.

        In the meantime, a person may have answered at a gate in the inbox, the process that ran the flow may
        have died, and a gate may have run out of time.
        """
        run_id, _, path = flow_id.partition("/")
        check_run_id(run_id)
        async with self._runs.opened(run_id) as opened:
            call = FlowCall(opened, path)
            _check_path(call)
            await self._runs.see_header(opened)
            if _goes_on(opened):
                self._runs.resume(opened)
                await self._save(call)
            if times_out:
                await self._time_out(call)
            yield call

    async def _time_out(self, call: FlowCall) -> bool:
        """Kill the flow at gates that have run out of time, and put that on record. Return whether it did."""
        is_late = False
        while (late := call.late) is not None:
            if call.flow.recorded.ended is not None:
                self._runs.resume(call.flow)
            call.answer(late, GateAnswer("kill", "its time was over", "system"))
            await self._save(call)
            is_late = True
        return is_late

    async def _save(self, call: FlowCall) -> None:
        """Do all that needs no agent, and put everything on record."""
        await call.follow()
        await self._runs.save(call.flow)

    def _record(self, usage: ReportedUsage | Mapping[str, JsonValue], needs_prices: bool) -> RequestRecord:
        try:
            report = ReportedUsage.model_validate(usage)
        except ValidationError as invalid:
            problems = "; ".join(
                f"{'.'.join(map(str, one['loc'])) or 'usage'}: {one['msg']}"
                for one in invalid.errors(include_url=False)
            )
            raise refuse("invalid_usage", f"The usage has the wrong form: {problems}") from None
        provider, model = provider_and_name(report.model, None)
        tokens = Tokens(
            input_tokens=report.input_tokens,
            output_tokens=report.output_tokens,
            cache_read_tokens=report.cache_read_tokens,
            cache_write_tokens=report.cache_write_tokens,
        )
        cost = self._calculator.cost_of_usage(tokens, model=model, provider=provider)
        if needs_prices and not cost.complete:
            message = (
                "The flow has a budget in US dollars, but no price is known for the usage of "
                f"{report.model!r}. "
                "Report the model by its full name, such as 'anthropic:claude-sonnet-4-5', and counts that "
                "fit together."
            )
            raise refuse("invalid_usage", message)
        now = datetime.fromtimestamp(self._clock(), UTC)
        return cost.on(
            RequestRecord(
                model=model, provider=provider or "", outcome="settled", tokens=tokens, started_at=now
            )
        )


# --- the flow and the step that a call is about ---


def _goes_on(flow: StoredFlow) -> bool:
    """Return whether a call takes the run up: a person has answered, or the process that ran it has died."""
    found, ended = flow.found, flow.recorded.ended
    is_paused = ended is not None and ended.status == "paused"
    is_answered = is_paused and isinstance(flow.recorded.entries[-1], facts.AnswerGiven)
    return is_answered or (found is not None and found.is_interrupted)


def _check_path(call: FlowCall) -> None:
    """Refuse a call about an inner flow that does not exist or has not begun."""
    if call.path and call.path not in call.machine.state.flows:
        known = tuple(call.flow_id(path) for path in call.machine.state.flows)
        raise refuse("flow_not_found", f"No flow runs at step {call.path!r}.", None, *known)


def _known_step(call: FlowCall, step_id: str) -> str:
    """Return the id that a step has in the run. Refuse the call if the spec has no such step."""
    full = call.full_id(step_id)
    if full not in call.driven.plan.steps:
        due = _short_ids(call)
        known = [call.short_id(one) for one in call.driven.plan.steps]
        message = f"The flow has no step {step_id!r}.{nearest_hint(step_id, known)} {_told_due(call)}"
        raise refuse("step_not_found", message, step_id, *due)
    return full


def _due_step(call: FlowCall, step_id: str) -> str:
    """Return the id that a step has in the run. Refuse the call if the step is a gate or is not due."""
    full = _known_step(call, step_id)
    _, step = call.spec(full)
    if step.gate is not None:
        message = f"Step {step_id!r} is a gate, where a person decides. Resolve it with gate_resolve."
        raise refuse("gate_step_requires_gate_resolve", message, step_id)
    if step.flow is not None and any(one.startswith(f"{full}.") for one in call.due):
        message = f"Step {step_id!r} runs flow {step.flow!r}, and is done when that is. {_told_due(call)}"
        raise refuse("child_flow_unfinished", message, step_id, *_short_ids(call))
    _check_due(call, step_id, full)
    return full


def _check_due(call: FlowCall, step_id: str, full: str) -> None:
    if full not in call.due:
        _check_goes_on(call)
        stage = "is over" if _is_over(call, full) else "is not due"
        message = f"Step {step_id!r} {stage}. {_told_due(call)}"
        raise refuse("step_not_due", message, step_id, *_short_ids(call))


def _is_over(call: FlowCall, full: str) -> bool:
    """Return whether a step has been done, skipped or decided in this round."""
    plan, step = call.spec(full)
    flow = call.machine.state.flows.get(plan.path)
    state = None if flow is None else flow.steps.get(step.id)
    return state is not None and state.stage == "over"


def _check_seen(call: FlowCall, full: str, seen: AwaitGate | None) -> None:
    """Refuse a decision on a gate that asks something else by now than the person has seen."""
    now = call.machine.flow_of(full).round, call.machine.inputs(full)
    if seen is not None and (seen.round, seen.inputs) != now:
        message = (
            f"Gate {seen.step_id!r} was answered meanwhile, and asks again. "
            "Read it with resume, and decide again."
        )
        raise refuse("conflict", message, seen.step_id)


def _check_goes_on(call: FlowCall) -> None:
    """Refuse the call if the flow has ended."""
    finish = call.flow.finish
    if finish is not None and finish.status != "paused":
        ended = ended_of(call, finish)
        how = "cancelled" if isinstance(ended, ErrorAnswer) else ended.status
        message = f"The flow has ended as {how!r}: {finish.reason}. Read it with resume or audit."
        raise refuse("flow_ended", message)


def _short_ids(call: FlowCall) -> tuple[str, ...]:
    return tuple(call.short_id(one) for one in call.due)


def _told_due(call: FlowCall) -> str:
    due = [
        f"gate {call.short_id(one)!r}, where a person decides: resolve it with gate_resolve"
        if call.spec(one)[1].gate is not None
        else repr(call.short_id(one))
        for one in call.due
    ]
    return f"Due: {', '.join(due)}." if due else "Nothing is due."


def _iteration(call: FlowCall, step_id: str, full: str) -> IterationSpec:
    spec = call.spec(full)[1].iteration
    if spec is None:
        message = f"Step {step_id!r} has no max_iterations, so it has no loop. Report it with step_done."
        raise refuse("no_iterations", message, step_id)
    return spec


def _to_iterate(step_id: str, spec: IterationSpec) -> str:
    """Return what to call for a step whose loop has not begun."""
    until = "" if spec.exit_criterion is None else f", until {spec.exit_criterion.text}"
    return (
        f"Step {step_id!r} is done in a loop of at most {spec.max_iterations} iterations{until}. Begin the "
        "loop with iteration_start, report each iteration with iteration_report, and call step_done when it "
        "has ended."
    )


def _in_loop(call: FlowCall, step_id: str) -> str:
    """Return the id that a step has in the run. Refuse the call if the step has no active loop."""
    full = _due_step(call, step_id)
    _iteration(call, step_id, full)
    loop = call.machine.record(full).loop
    if loop is None or not loop.is_active:
        what = (
            "has not begun. Begin it with iteration_start"
            if loop is None
            else "has ended. Report the step with step_done"
        )
        raise refuse("iteration_not_active", f"The loop of step {step_id!r} {what}.", step_id)
    return full


def _json(value: object, what: str, error_type: ErrorType) -> JsonValue:
    """Return a copy of a value as JSON data. Refuse the call if the value is no JSON, or too large."""
    try:
        plain = value_to_json(value, None, what)
    except ValueNotStorable as raised:
        raise refuse(error_type, f"{what} is not JSON: {raised}") from None
    if (why := oversize(plain)) is not None:
        raise refuse(error_type, f"{what} is too large: {why}")
    copied: JsonValue = own_copy(plain)
    return copied


def _short(text: str) -> str:
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        raise refuse("invalid_input", f"A reason is text of at most {MAX_TEXT:,} characters.")
    return text


def _label(label: str) -> str:
    name = label.strip() if isinstance(label, str) else ""
    if not name or len(name) > MAX_LABEL or not name.isprintable():
        raise refuse("invalid_label", f"A label is printable text of 1 to {MAX_LABEL} characters.")
    return name


def _iteration_answer(
    call: FlowCall, step_id: str, spec: IterationSpec, status: str, reported: Reported | None
) -> IterationAnswer:
    gathers = spec.accumulate is not None
    answer = IterationAnswer(
        status=status,  # type: ignore[arg-type]
        flow_id=call.flow_id(call.path),
        step_id=step_id,
        iteration=0,
        max_iterations=spec.max_iterations,
        exit_criterion=None if spec.exit_criterion is None else spec.exit_criterion.text,
        accumulated_count=0 if gathers else None,
        dry_streak=0 if gathers else None,
    )
    if reported is None:
        return answer
    return answer.model_copy(
        update={
            "iteration": reported.iteration,
            "exit_criterion_met": reported.is_met,
            "exit_criterion_error": reported.criterion_error,
            "outcome": reported.outcome,
            "accumulated_count": reported.accumulated_count,
            "new_count": reported.new_count,
            "dry_streak": reported.dry_streak,
            "extraction_error": reported.extraction_error,
        }
    )


def _listed(run: RunSummary) -> ListedFlow:
    return ListedFlow(
        flow_id=run.run_id,
        workflow=run.pipeline or "",
        status=_LISTED.get(run.status, "in_progress"),
        awaits=run.status == "paused",
        started_at=run.started_at,
        updated_at=run.updated_at,
        error=run.error,
    )


_LISTED: Final[Mapping[str, FlowStatus]] = {
    "finished": "complete",
    "failed": "failed",
    "cancelled": "killed",
    "unreadable": "unreadable",
}
