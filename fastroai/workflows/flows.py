"""Workflows that are driven from outside, call by call. Between two calls, no process holds the flow."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from pydantic import JsonValue

from fastroai.store.payloads import PayloadCodec
from fastroai.store.run_store import RunStore
from fastroai.usage import CostCalculator
from fastroai.workflows.answers import (
    AuditAnswer,
    Committed,
    ErrorAnswer,
    FlowList,
    IterationAnswer,
    NextAnswer,
    NoTimeout,
    UsageReport,
)


class WorkflowRuns:
    """Runs of workflows whose steps somebody else does: an agent, or a person.

        runs = WorkflowRuns(store)
        answer = await runs.plan(spec_text, inputs={"topic": "tides"})
        while answer.status == "execute_step":
            answer = await runs.step_done(answer.flow_id, answer.step_id, result)

    Each call reads what is new in the log, checks and decides, and appends the new facts at the revision that it
    has read, or nothing. So calls can come from any process.

    `flow_id` is the id of the run, or of a flow inside of it: `<run>/<step>`. `step_id` is the id of a step in
    that flow, or its path from there: `review.draft`.
    """

    def __init__(
        self,
        store: RunStore,
        *,
        calculator: CostCalculator | None = None,
        workspace: Path | str | None = None,
        codec: PayloadCodec | None = None,
    ) -> None:
        """`workspace` is the directory that `file_exists` and `file_contains` see; without one, they see none."""
        raise NotImplementedError

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
        raise NotImplementedError

    async def step_done(
        self,
        flow_id: str,
        step_id: str,
        result: JsonValue,
        usage: UsageReport | Mapping[str, JsonValue] | None = None,
    ) -> NextAnswer:
        """Check the result of a step, and return the next one, or what is wrong with the result."""
        raise NotImplementedError

    async def gate_resolve(
        self, flow_id: str, step_id: str, outcome: str, rationale: str = "", resolved_by: str = "human"
    ) -> NextAnswer:
        """Approve, revise or kill at a gate."""
        raise NotImplementedError

    async def skip_step(self, flow_id: str, step_id: str, reason: str = "") -> NextAnswer:
        """Leave a step out that is due; its output is null."""
        raise NotImplementedError

    async def commit(self, flow_id: str, label: str) -> Committed | ErrorAnswer:
        """Set a checkpoint. One of the same label is replaced."""
        raise NotImplementedError

    async def revert(self, flow_id: str, label: str) -> NextAnswer:
        """Go back to a checkpoint. What happened since then stays on record, and what was spent stays spent."""
        raise NotImplementedError

    async def iteration_start(self, flow_id: str, step_id: str) -> IterationAnswer | ErrorAnswer:
        """Begin the loop of a step that has `max_iterations`."""
        raise NotImplementedError

    async def iteration_report(
        self, flow_id: str, step_id: str, result: JsonValue
    ) -> IterationAnswer | ErrorAnswer:
        """Report the result of an iteration; the answer says whether the loop goes on."""
        raise NotImplementedError

    async def iteration_abort(
        self, flow_id: str, step_id: str, reason: str = ""
    ) -> IterationAnswer | ErrorAnswer:
        """End a loop before its time."""
        raise NotImplementedError

    async def check_timeouts(self, flow_id: str) -> NextAnswer | NoTimeout:
        """Kill at a gate whose time is over; say so if there is none."""
        raise NotImplementedError

    async def audit(self, flow_id: str) -> AuditAnswer | ErrorAnswer:
        """Return everything that happened in a flow."""
        raise NotImplementedError

    async def resume(self, flow_id: str) -> NextAnswer:
        """Return what is due now, or how the flow has ended."""
        raise NotImplementedError

    async def list_flows(self, *, limit: int = 100) -> FlowList | ErrorAnswer:
        """Return the flows in the store, the latest first."""
        raise NotImplementedError
