"""`flow list`, `show`, `audit`, `resume` and `revert`; `gate list`, `approve`, `reject` and `revise`."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fastroai.cli.exits import FAILED, NOT_FOUND, OK, REFUSED, UNAVAILABLE, UNREADABLE, USAGE, complain
from fastroai.cli.opened import opened_flow_store, without_plugins
from fastroai.cli.options import AsJson, Codec, FlowStore, Limit
from fastroai.cli.reading import print_json
from fastroai.cli.shapes import question_shape
from fastroai.cli.targets import codec_at
from fastroai.plain_text import plain

if TYPE_CHECKING:
    from fastroai.store.open_questions import Question
    from fastroai.workflows.answers import ErrorAnswer, ErrorType, NextAnswer
    from fastroai.workflows.driven_flows import WorkflowRuns
    from fastroai.workflows.machine.state import GateOutcome

FlowId = Annotated[
    str,
    typer.Argument(metavar="FLOW", help="The id of a flow, or RUN/STEP for one inside.", show_default=False),
]
GateStep = Annotated[
    str | None,
    typer.Argument(
        metavar="[STEP]", help="The gate; by default the one at which the flow waits.", show_default=False
    ),
]
Note = Annotated[str, typer.Option(help="The reason for the decision, which is stored.")]
ResolvedBy = Annotated[str, typer.Option("--resolved-by", help="Who has decided: human, agent or system.")]

_CODES: Final[dict[ErrorType, int]] = {
    "flow_not_found": NOT_FOUND,
    "step_not_found": NOT_FOUND,
    "checkpoint_not_found": NOT_FOUND,
    "conflict": REFUSED,
    "flow_running": REFUSED,
    "flow_ended": REFUSED,
    "step_not_due": REFUSED,
    "not_a_gate_step": REFUSED,
    "missing_on_revise": REFUSED,
    "no_revisions_left": REFUSED,
    "not_revertible": REFUSED,
    "store_unavailable": UNAVAILABLE,
    "flow_unreadable": UNREADABLE,
    "not_a_workflow": USAGE,
    "invalid_input": USAGE,
    "invalid_label": USAGE,
}
"""Exit codes by the type of error in an answer; 1 for types that are not here."""


@asynccontextmanager
async def opened_flows(place: str | None, codec: str | None) -> AsyncGenerator[WorkflowRuns]:
    """Open the flows of the store that `--store` names, or of this user's own store."""
    without_plugins()
    from fastroai.workflows.driven_flows import WorkflowRuns

    async with opened_flow_store(place) as (store, _):
        yield WorkflowRuns(store, workspace=Path.cwd(), codec=codec_at(codec))


async def list_flows(
    store: FlowStore = None,
    limit: Limit = 100,
    codec: Codec = None,
    as_json: AsJson = False,
) -> int:
    """List the flows of workflows, newest first."""
    async with opened_flows(store, codec) as runs:
        found = await runs.list_flows(limit=limit)
    if found.status == "error":
        return _refused(found, as_json)
    if as_json:
        print_json([flow.to_json() for flow in found.flows])
        return OK
    from fastroai.cli.flow_tables import flows_table
    from fastroai.cli.tables import console, nothing

    console().print(flows_table(found.flows) if found.flows else nothing("no flows found", store))
    return OK


async def show(flow: FlowId, store: FlowStore = None, codec: Codec = None, as_json: AsJson = False) -> int:
    """Show how far a flow is, and what is due in it."""
    async with opened_flows(store, codec) as runs:
        due, audited = await runs.due(flow), await runs.audit(flow)
    if audited.status == "error":
        return _refused(audited, as_json)
    if as_json:
        print_json({**audited.to_json(), "next": due.to_json()})
        return OK
    from fastroai.cli.flow_tables import audit_lines, next_lines

    print(plain("\n".join([*audit_lines(audited), *next_lines(due)])))
    return OK


async def audit(flow: FlowId, store: FlowStore = None, codec: Codec = None, as_json: AsJson = False) -> int:
    """Tell everything that happened in a flow: attempts, decisions, rounds, costs."""
    async with opened_flows(store, codec) as runs:
        audited = await runs.audit(flow)
    if audited.status == "error":
        return _refused(audited, as_json)
    if as_json:
        print_json(audited.to_json())
        return OK
    from fastroai.cli.flow_tables import audit_tables
    from fastroai.cli.tables import console

    console().print(*audit_tables(audited), sep="\n")
    return OK


async def resume(flow: FlowId, store: FlowStore = None, codec: Codec = None, as_json: AsJson = False) -> int:
    """Show the step of a flow that is due, as agents see it. A gate whose time is over kills the flow."""
    async with opened_flows(store, codec) as runs:
        return _told(await runs.resume(flow), as_json)


async def revert(
    flow: FlowId,
    label: Annotated[str, typer.Argument(metavar="LABEL", help="The checkpoint.", show_default=False)],
    store: FlowStore = None,
    codec: Codec = None,
    as_json: AsJson = False,
) -> int:
    """Go back to a checkpoint of a flow. What happened since then stays in the log."""
    async with opened_flows(store, codec) as runs:
        return _told(await runs.revert(flow, label), as_json)


async def list_gates(
    store: FlowStore = None,
    limit: Limit = 100,
    codec: Codec = None,
    as_json: AsJson = False,
) -> int:
    """List the gates that wait for a decision, those of the newest flow first."""
    from fastroai.human import Inbox

    async with opened_flow_store(store) as (opened, _):
        inbox = Inbox(opened, codec=codec_at(codec))
        found = [asked for asked in await inbox.list() if _is_gate(asked)][:limit]
    if as_json:
        print_json([question_shape(asked) for asked in found])
        return OK
    from fastroai.cli.tables import console, nothing, questions_table

    console().print(questions_table(found) if found else nothing("no gates wait for a decision", store))
    return OK


def _decides(outcome: GateOutcome, help: str) -> Callable[..., Coroutine[Any, Any, int]]:
    """Return a command that decides at a gate."""

    async def decide(
        flow: FlowId,
        step: GateStep = None,
        note: Note = "",
        resolved_by: ResolvedBy = "human",
        store: FlowStore = None,
        codec: Codec = None,
        as_json: AsJson = False,
    ) -> int:
        from fastroai.workflows.answers import awaited_gate, error

        async with opened_flows(store, codec) as runs:
            if step is None:
                due = await runs.due(flow)
                if due.status == "error":
                    return _refused(due, as_json)
                if (gate := awaited_gate(due)) is None:
                    message = f"flow {flow!r} does not wait at a gate"
                    return _refused(error("step_not_due", message, flow_id=flow), as_json)
                flow, step = gate.flow_id, gate.step_id
            return _told(await runs.gate_resolve(flow, step, outcome, note, resolved_by), as_json)

    decide.__doc__ = help
    return decide


approve = _decides("approve", "Approve: the flow continues.")
reject = _decides("kill", "Kill: the flow cleans up, if the spec says how, and ends.")
revise = _decides(
    "revise",
    "Send the flow back: an earlier step, and all after it, are done again in a new round.",
)


def _is_gate(asked: Question) -> bool:
    """Return whether a question is that of a gate, by its options, which other steps cannot have."""
    return asked.options is not None and {"approve", "kill"} <= {
        one for one in asked.options if isinstance(one, str)
    }


def _told(answer: NextAnswer, as_json: bool) -> int:
    if answer.status == "error":
        return _refused(answer, as_json)
    if as_json:
        print_json(answer.to_json())
        return OK
    from fastroai.cli.flow_tables import next_lines

    print(plain("\n".join(next_lines(answer))))
    return OK


def _refused(answer: ErrorAnswer, as_json: bool) -> int:
    if as_json:
        print_json(answer.to_json())
    hint = f" Possible: {', '.join(answer.available)}." if answer.available else ""
    complain(f"{answer.message}{hint}")
    return _CODES.get(answer.error_type, FAILED)
