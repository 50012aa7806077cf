"""Workflows that are driven from outside, call by call. Between two calls, no process holds the flow."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import cast, get_args

from pydantic import JsonValue, ValidationError

from fastroai.errors import (
    FastroAIError,
    nearest_hint,
)
from fastroai.records import RequestRecord, Tokens
from fastroai.runs.openings import RunKeeper
from fastroai.runtime.fact_base import Part
from fastroai.runtime.facts import RunStarted
from fastroai.runtime.labels import labels_of
from fastroai.store.backends.adapter import adapt_run_store
from fastroai.store.reading.history import RunHistory
from fastroai.store.record.headers import check_run_id
from fastroai.store.record.payloads import PayloadCodec
from fastroai.store.run_store import RunStoreLike
from fastroai.usage import CostCalculator
from fastroai.usage.prices.references import provider_and_name
from fastroai.workflows.answering import iteration_answer, listed, next_of, rejected
from fastroai.workflows.answers import (
    AuditAnswer,
    AwaitGate,
    Committed,
    ErrorAnswer,
    FlowList,
    IterationAnswer,
    NextAnswer,
    NoTimeout,
    Problem,
    ReportedUsage,
    error,
)
from fastroai.workflows.auditing import audit_of
from fastroai.workflows.calls import FlowCall
from fastroai.workflows.definition import TAG, define
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
from fastroai.workflows.loading import Specs
from fastroai.workflows.machine.iterations import merged
from fastroai.workflows.machine.state import GateOutcome, ResolvedBy
from fastroai.workflows.machine.step_inputs import GateAnswer
from fastroai.workflows.refusals import (
    MAX_CHECKPOINTS,
    Refused,
    answered,
    as_json,
    check_due,
    check_goes_on,
    check_path,
    check_seen,
    due_step,
    error_of,
    iteration_of,
    known_step,
    label_of,
    refuse,
    short_text,
    step_in_loop,
    to_iterate,
)
from fastroai.workflows.spec.files import Workspace
from fastroai.workflows.spec.problems import cut
from fastroai.workflows.stored_flows import StoredFlows


class WorkflowRuns:
    """Runs of workflows whose steps are done from outside, by an agent or a person.

        runs = WorkflowRuns(store)
        answer = await runs.plan(spec_text, inputs={"topic": "tides"})
        while isinstance(answer, ExecuteStep):  # also if the last result was not accepted
            result = await do(answer.intent, answer.inputs)  # your code
            answer = await runs.step_done(answer.flow_id, answer.step_id, result)

    No call executes a step or pays for a model: it returns what is due, and takes the results.

    Each call reads what is new in the log, decides, and appends all its facts in one write. The write is
    refused if another process has written since. So calls can come from any process.

    `flow_id` is the id of the run, or of a flow inside of it: `<run>/<step>`. `step_id` is the id of a step
    in that flow, or its path from there: `review.draft`.

    Errors are not raised: a call that cannot be carried out returns an `ErrorAnswer` and changes nothing. Its
    `error_type` says why: see `ErrorType`. Only with `store_unavailable`, the call may be on record.

    A call first kills the flow at a gate whose time is over, and takes over a run whose process has died;
    only `plan`, `due`, `audit` and `list_flows` do not.
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
        """Put a new run of a flow on record, and return the first step that is due.

        Return an `ErrorAnswer` if the spec or the inputs are not valid, the spec has no such flow, or the
        store has a run of this id. Then nothing is on record.

        Args:
            spec: The text of the spec.
            flow: The name of the flow; by default, the entry flow of the spec.
            inputs: The inputs of the flow by name, as JSON data.
            run_id: The id of the run, without a `/`; by default a new one. It is the `flow_id` of the answer.
            tags: Names by which the run is found.
            tenant: The name of the tenant for whom the run works.
        """
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
            return error_of(raised, run_id)

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
            raise refuse("invalid_input", f"A flow id cannot have a '/': {run_id!r}.")
        try:
            # A large spec takes long to read: other calls go on meanwhile.
            plan = (await asyncio.to_thread(self._specs.load, text, flow)).plan
        except KeyError:
            flows = self._specs.load(text, None).plan.spec.flows
            wanted = cut(str(flow))
            hint = nearest_hint(wanted, flows)
            raise refuse("unknown_flow", f"The spec has no flow {wanted!r}.{hint}", None, *flows) from None
        if problems := input_problems(plan.entry.flow, inputs):
            raise refuse("invalid_input", "; ".join(problems), None, *plan.entry.flow.input)
        name = plan.entry.flow.name
        opened = RunStarted(
            part=Part(run_id, name, (name,)),
            definition=define(plan, width=1),
            inputs=self._keeper.stored(with_defaults(plan.entry.flow, inputs)),
            timestamp=self._clock(),
        )
        begun = self._runs.begun(opened)
        call = FlowCall(begun, "")
        await call.follow()
        await self._runs.put_on_record(begun, labels)
        return next_of(call)

    @answered
    async def step_done(
        self,
        flow_id: str,
        step_id: str,
        result: JsonValue,
        usage: ReportedUsage | Mapping[str, JsonValue] | None = None,
    ) -> NextAnswer:
        """Check the result of a step that is due, put it on record, and return what is due next.

        If the result is not accepted and attempts are left, that is the same step, with `violations`; if none
        is left, the flow goes on as the spec says for a failure, or fails. The answer is a `FlowEnded` if the
        flow is over.

        `result` is JSON data. `usage` is the model and the tokens that the step has used, if any: it is
        priced, and counts against budgets. If a budget is exceeded, the step fails.

        Return an `ErrorAnswer`, and change nothing, if the step is not due or is a gate, if its loop has not
        begun or is not over, or if the result is not JSON.
        """
        async with self._opened(flow_id) as call:
            full = due_step(call, step_id)
            given = as_json(result, "the result", "invalid_result")
            _, step = call.spec(full)
            loop = call.machine.record(full).loop
            if loop is not None and loop.is_active:
                message = (
                    f"The loop of step {step_id!r} is not over. Report to it, or abort it, before step_done."
                )
                raise refuse("iteration_active", message, step_id)
            if step.iteration is not None and loop is None:
                raise refuse("iteration_not_active", to_iterate(step_id, step.iteration), step_id)
            spent = None if usage is None else self._record(usage, call.needs_prices(full))
            if step.iteration is not None and loop is not None:
                given = as_json(merged(step.iteration, loop, given), "the merged result", "invalid_result")
            failed = await call.done(full, given, spent)
            await self._save(call)
            if failed is not None and full in call.due and call.machine.step(full).attempt > 1:
                return rejected(call, full, failed.status)
            return next_of(call)

    @answered
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
        """Put the decision at a gate on record, and return what is due next, or how the flow has ended.

        `outcome` is `approve`, `revise` (go back to an earlier step, in a new round) or `kill` (end the flow,
        after its cleanup if the gate has one). `rationale` is the reason, of at most 10,000 characters.
        `resolved_by` says what has decided, `human`, `agent` or `system`; it is not a name.

        `seen` is the gate as it was shown to the person who decides. If the gate asks in another round or
        about other inputs by now, the answer is an error of the type `conflict`, and the gate still waits.

        Return an `ErrorAnswer`, and change nothing, if the step is not a gate or is not due, or if the gate
        cannot revise, or not any more.
        """
        async with self._opened(flow_id) as call:
            full = known_step(call, step_id)
            _, step = call.spec(full)
            if step.gate is None:
                message = f"Step {step_id!r} is not a gate. Report its result with step_done."
                raise refuse("not_a_gate_step", message, step_id)
            if any(halted == full for halted, _ in call.machine.state.halted):  # in a run of FastroAI itself
                self._runs.resume(call.flow)
                await call.follow()
            check_due(call, step_id, full)
            check_seen(call, full, seen)
            if outcome not in (outcomes := get_args(GateOutcome)):
                raise refuse(
                    "invalid_outcome", f"{outcome!r} is not an outcome of a gate.", step_id, *outcomes
                )
            if resolved_by not in (people := get_args(ResolvedBy)):
                raise refuse(
                    "invalid_resolved_by",
                    f"resolved_by is {resolved_by!r}; expected the kind of the one who decided, not a name.",
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
                cast("GateOutcome", outcome), short_text(rationale), cast("ResolvedBy", resolved_by)
            )
            if call.flow.recorded.ended is not None:
                self._runs.resume(call.flow)
            call.answer(call.unit(full), answer)
            await self._save(call)
            return next_of(call)

    @answered
    async def skip_step(self, flow_id: str, step_id: str, reason: str = "") -> NextAnswer:
        """Skip a step that is due, so that its output is null, and return what is due next.

        `reason` goes on record. Return an `ErrorAnswer` if the step is not due, is a gate, or runs an inner
        flow that is not over: these cannot be skipped.
        """
        async with self._opened(flow_id) as call:
            full = due_step(call, step_id)
            call.flow.add(SkipRequested(full, visit=call.unit(full)[1], reason=short_text(reason)))
            await self._save(call)
            return next_of(call)

    @answered
    async def commit(self, flow_id: str, label: str) -> Committed | ErrorAnswer:
        """Set a checkpoint: name the present state of the whole run, so that `revert` can go back to it.

        It replaces an earlier checkpoint of the same label. The label is printable text of 1 to 200
        characters; space around it is dropped. Return an `ErrorAnswer` if the label is not valid, the flow
        has ended, or it has 100 other checkpoints.
        """
        async with self._opened(flow_id) as call:
            name, checkpoints = label_of(label), call.machine.checkpoints
            check_goes_on(call)
            if len(checkpoints) >= MAX_CHECKPOINTS and name not in checkpoints:
                message = f"A flow has at most {MAX_CHECKPOINTS} checkpoints. Set one of these again."
                raise refuse("invalid_label", message, None, *checkpoints)
            call.flow.add(CheckpointSet(label=name))
            await self._save(call)
            return Committed(
                status="committed",
                flow_id=call.run_id,
                label=name,
                checkpoints=tuple(checkpoints),
                current_step_id=next(iter(call.due), None),
            )

    @answered
    async def revert(self, flow_id: str, label: str) -> NextAnswer:
        """Go back to the checkpoint with this label, and return what is due there.

        What the steps did since the checkpoint no longer counts, but stays on record, and the money that they
        spent still counts. A flow that has failed can go back. Return an `ErrorAnswer` if there is no such
        checkpoint, or the flow is complete, killed or cancelled.
        """
        async with self._opened(flow_id) as call:
            name, checkpoints = label_of(label), call.machine.checkpoints
            if name not in checkpoints:
                hint = nearest_hint(name, checkpoints)
                message = f"The flow has no checkpoint {name!r}.{hint}"
                raise refuse("checkpoint_not_found", message, None, *checkpoints)
            finish = call.flow.finish
            if finish is not None and finish.status in ("finished", "cancelled"):
                ended = "complete" if finish.status == "finished" else "killed"
                message = f"The flow is {ended}, and cannot go back. Begin another one with plan."
                raise refuse("not_revertible", message)
            call.flow.add(CheckpointRestored(label=name))
            await self._save(call)
            return next_of(call, reverted_to=name)

    @answered
    async def iteration_start(self, flow_id: str, step_id: str) -> IterationAnswer | ErrorAnswer:
        """Begin the loop of a step that is due and has `max_iterations`.

        Then do the step, and report each iteration with `iteration_report`. Return an `ErrorAnswer` if the
        step has no `max_iterations` or is not due, or if its loop has begun or has ended already.
        """
        async with self._opened(flow_id) as call:
            full = due_step(call, step_id)
            spec, unit = iteration_of(call, step_id, full), call.unit(full)
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
            call.flow.add(IterationStarted(full, visit=unit[1]))
            await self._save(call)
            return iteration_answer(call, step_id, spec)

    @answered
    async def iteration_report(
        self, flow_id: str, step_id: str, result: JsonValue
    ) -> IterationAnswer | ErrorAnswer:
        """Put the result of an iteration on record. The answer says whether the loop continues.

        Its status is `iteration_continue`: do the next iteration; or `iteration_exit`, if the exit criterion
        holds or `max_iterations` is reached: report the step with `step_done`. Return an `ErrorAnswer` if the
        step has no active loop, or the result is not JSON.
        """
        async with self._opened(flow_id) as call:
            full = step_in_loop(call, step_id)
            given = as_json(result, "the result", "invalid_result")
            call.flow.add(IterationReported(full, given, visit=call.unit(full)[1]))
            await self._save(call)
            return self._after_report(call, step_id, full)

    @answered
    async def iteration_abort(
        self, flow_id: str, step_id: str, reason: str = ""
    ) -> IterationAnswer | ErrorAnswer:
        """End the loop of a step early. The step is still due: report it with `step_done`.

        The answer has the status `iteration_aborted`. `reason` goes on record. Return an `ErrorAnswer` if the
        step has no active loop.
        """
        async with self._opened(flow_id) as call:
            full = step_in_loop(call, step_id)
            call.flow.add(IterationAborted(full, visit=call.unit(full)[1], reason=short_text(reason)))
            await self._save(call)
            return self._after_report(call, step_id, full)

    @answered
    async def check_timeouts(self, flow_id: str) -> NextAnswer | NoTimeout:
        """Give the decision `kill` at each gate whose time is over, and return what is due then.

        If the flow has ended, the answer says how.

        If no time is over, return a `NoTimeout`. Its `remaining_seconds` are those until the next gate runs
        out of time; they are `None` if no gate with a timeout waits. Return an `ErrorAnswer` if there is no
        such flow, if another process runs it, or if the store fails.

        All other calls that write to the flow check the time of its gates, too.
        """
        async with self._opened(flow_id, times_out=False) as call:
            if await self._time_out(call):
                return next_of(call)
            deadlines = [
                (wait.deadline, step_id)
                for (step_id, _), wait in call.gate_waits.items()
                if wait.deadline is not None
            ]
            message, step_id, left = "No gate waits that has a timeout.", None, None
            if deadlines:
                deadline, step_id = min(deadlines)
                message, left = f"Gate {step_id!r} still has time.", max(0.0, deadline - self._clock())
            return NoTimeout(
                status="no_timeout",
                flow_id=flow_id,
                message=message,
                step_id=step_id,
                remaining_seconds=left,
            )

    @answered
    async def audit(self, flow_id: str) -> AuditAnswer | ErrorAnswer:
        """Return what happened in a flow so far: its steps, gates, rounds, loops, inner flows and cost.

        It puts nothing on record, and also works while another process runs the flow. Return an `ErrorAnswer`
        if there is no such flow, or its record cannot be read.
        """
        async with self._read(flow_id, running_too=True) as call:
            return audit_of(call, call.machine.state.flows[call.path])

    @answered
    async def due(self, flow_id: str) -> NextAnswer:
        """Return what is due now, or how the flow has ended. Unlike `resume`, this puts nothing on record.

        So a gate whose time is over is still due. Return an `ErrorAnswer` if there is no such flow, another
        process runs it, or it was cancelled or paused.
        """
        async with self._read(flow_id) as call:
            if call.flow.goes_on:
                self._runs.resume(call.flow)
                await call.follow()
            return next_of(call)

    @answered
    async def resume(self, flow_id: str) -> NextAnswer:
        """Return what is due now, or how the flow has ended. A run that can continue is resumed.

        That is a run that was paused or cancelled, whose process died, or that an exception has stopped; it
        is on record as resumed. A flow that is complete, was killed, or has failed by the rules of its spec
        stays as it is. Return an `ErrorAnswer` if there is no such flow, or another process runs it.
        """
        async with self._opened(flow_id) as call:
            stopped, finish = call.machine.state.stopped, call.flow.finish
            can_go_on = finish is not None and finish.status != "finished" and not call.due
            if can_go_on and (stopped is None or not stopped.is_final):
                self._runs.resume(call.flow)
                await self._save(call)
            return next_of(call)

    async def list_flows(self, *, limit: int = 100) -> FlowList | ErrorAnswer:
        """Return the flows in the store, the latest first, at most `limit` of them.

        These are runs of workflows, whether FastroAI itself runs them or they are driven from outside. Each
        has its id, name, status and times. Return an `ErrorAnswer` if the store fails.
        """
        try:
            runs = await RunHistory(self.store, codec=self._codec).list(tag=TAG, limit=limit)
        except FastroAIError as raised:
            return error_of(raised, None)
        return FlowList(status="ok", flows=tuple(map(listed, runs)))

    # --- parts of calls ---

    @asynccontextmanager
    async def _read(self, flow_id: str, *, running_too: bool = False) -> AsyncIterator[FlowCall]:
        """Open a flow for a call, as its log has it."""
        run_id, _, path = flow_id.partition("/")
        async with self._runs.opened(run_id, running_too=running_too) as opened:
            call = FlowCall(opened, path)
            check_path(call)
            yield call

    @asynccontextmanager
    async def _opened(self, flow_id: str, *, times_out: bool = True) -> AsyncIterator[FlowCall]:
        """Open a flow for a call, and bring it up to date with everything that happened since the last call.

        In the meantime, a person may have answered at a gate in the inbox, the process that ran the flow may
        have died, and a gate may have run out of time.
        """
        check_run_id(flow_id.partition("/")[0])
        async with self._read(flow_id) as call:
            await self._runs.see_header(call.flow)
            if call.flow.goes_on:
                self._runs.resume(call.flow)
                await self._save(call)
            if times_out:
                await self._time_out(call)
            yield call

    @staticmethod
    def _after_report(call: FlowCall, step_id: str, full: str) -> IterationAnswer:
        reported = call.machine.flow_of(full).iterations[call.spec(full)[1].id][-1]
        return iteration_answer(call, step_id, iteration_of(call, step_id, full), reported)

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
                f"{'.'.join(map(str, problem['loc'])) or 'usage'}: {problem['msg']}"
                for problem in invalid.errors(include_url=False)
            )
            raise refuse("invalid_usage", f"The usage has the wrong form: {problems}") from None
        provider, model = provider_and_name(report.model, None)
        tokens = Tokens(**report.model_dump(exclude={"model"}))
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
