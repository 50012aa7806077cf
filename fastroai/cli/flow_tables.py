"""Flows, their next steps, and their audits, as text for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from fastroai.cli.tables import columns, status_cell, text_cell
from fastroai.cli.text import local
from fastroai.durations import duration
from fastroai.records import dollars

if TYPE_CHECKING:
    from fastroai.workflows.answers import AuditAnswer, ListedFlow, NextAnswer, StepRecord


def flows_table(flows: Iterable[ListedFlow]) -> Table:
    """Return a table with a line for each flow."""
    table = columns("flow", "workflow", "status", "started", "changed", "waits", "error")
    for flow in flows:
        table.add_row(
            text_cell(flow.flow_id),
            text_cell(flow.workflow),
            status_cell(flow.status),
            Text(local(flow.started_at)),
            Text(local(flow.updated_at)),
            Text("at a gate" if flow.awaits else ""),
            text_cell(flow.error or "", "red", one_line=True),
        )
    return table


def next_lines(answer: NextAnswer) -> Iterator[str]:
    """Yield lines that say what is to be done next in a flow, or how it has ended."""
    match answer.status:
        case "error":
            yield f"{answer.error_type}: {answer.message}"
        case "complete" | "killed" | "failed":
            yield f"{answer.flow_id} of {answer.flow}: {answer.status}"
            if answer.reason and answer.status != "complete":
                yield f"because {answer.reason}"
            yield from (f"  {violation}" for violation in answer.violations)
            yield f"output: {json.dumps(answer.output, ensure_ascii=False)}"
        case "execute_flow":
            yield from next_lines(answer.child_step)
        case "await_gate":
            yield f"{answer.flow_id}: gate {answer.step_id!r} of {answer.flow!r} waits for a decision"
            yield from _doing(answer.intent, answer.inputs, answer.violations)
            ways = {"approve": answer.on_approve or "complete", "reject": answer.on_kill or "killed"}
            if answer.on_revise is not None:
                left = "" if answer.revisions_left is None else f" ({answer.revisions_left} left)"
                ways["revise"] = f"{answer.on_revise}{left}"
            yield ", ".join(f"{way}: {target}" for way, target in ways.items())
            if answer.expires_at is not None:
                yield f"until {local(answer.expires_at)}"
        case "execute_step" | "ensure_failed" | "schema_failed":
            place = f"step {answer.step_number} of {answer.total_steps}"
            yield f"{answer.flow_id}: {answer.step_id!r} is due, {place} of {answer.flow!r}"
            yield from _doing(answer.intent, answer.inputs, answer.violations)


def audit_lines(audit: AuditAnswer) -> list[str]:
    """Return a short summary of a flow, in lines."""
    known = "" if audit.cost_complete else " +"
    parts = [
        f"{audit.flow_id} of {audit.flow}: {audit.status.replace('_', ' ')}",
        f"{audit.steps_completed} of {audit.total_steps} steps{_skipped(audit)}, round {audit.round}, "
        f"{duration(audit.total_duration_ms / 1000)}, "
        f"{audit.tokens:,} tokens, {dollars(audit.cost_usd)}{known}",
    ]
    if audit.reason and audit.status != "complete":
        parts.append(f"because {audit.reason}")
    if audit.checkpoints:
        parts.append(f"checkpoints: {', '.join(audit.checkpoints)}")
    return parts


def _skipped(audit: AuditAnswer) -> str:
    return f" ({', '.join(audit.steps_skipped)} skipped)" if audit.steps_skipped else ""


def audit_tables(audit: AuditAnswer) -> Iterator[Text | Table]:
    """Yield everything that happened in a flow: its rounds, then the flows inside of it."""
    yield from map(text_cell, audit_lines(audit))
    for one in audit.rounds:
        yield Text(f"\nround {one.round}")
        yield _trace_table(one.steps)
    yield Text(f"\nround {audit.round}" if audit.rounds else "")
    yield _trace_table(audit.trace)
    for children in audit.child_audits.values():
        for child in children:
            yield Text("")
            yield from audit_tables(child)


def _trace_table(steps: Sequence[StepRecord]) -> Table:
    table = columns("step", "outcome", "attempts", "took", "cost", "by", "what it says")
    for step in steps:
        says = step.rationale or step.skip_reason or step.error or "; ".join(step.violations)
        table.add_row(
            text_cell(step.step_id),
            status_cell(step.outcome),
            Text(str(step.attempts or ""), justify="right"),
            Text(duration(step.duration_ms / 1000) if step.duration_ms else ""),
            Text(dollars(step.cost_usd) if step.cost_usd else "", justify="right"),
            text_cell(step.resolved_by or step.agent or ""),
            text_cell(says, one_line=True),
        )
    return table


def _doing(intent: str, inputs: object, violations: Sequence[str]) -> Iterator[str]:
    if intent:
        yield intent
    if inputs:
        yield f"inputs: {json.dumps(inputs, ensure_ascii=False)}"
    yield from (f"not accepted: {violation}" for violation in violations)
