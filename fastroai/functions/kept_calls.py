"""Records of calls: noted while a call runs, and kept in this process when it has ended."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from itertools import count
from typing import Any, Final, Generic, Literal, TypedDict, TypeVar

from pydantic import JsonValue

from fastroai.contracts.annotations import Annotation
from fastroai.errors import (
    BudgetExceeded,
    TimeLimitExceeded,
)
from fastroai.functions.errors import (
    ConsensusFailure,
    ConvergenceFailure,
    ParseFailure,
    PostconditionFailed,
    PreconditionFailed,
)
from fastroai.functions.flow_runs.flow_run import FlowRun
from fastroai.records import CallOutcome, CallRecord, Usage
from fastroai.runtime import Scope
from fastroai.runtime.fact_base import FailureFacts
from fastroai.runtime.labels import NO_LABELS, Labels
from fastroai.runtime.retrying.failures import leaves
from fastroai.steps.config import ResolvedConfig

T = TypeVar("T")

KEPT: Final = 10_000
"""Number of records that this process keeps: the last ones."""
_records: Final[deque[tuple[CallDraft, object, object]]] = deque(maxlen=KEPT)
"""Records with the signatures of the function and the innermost flow, because several can have one name."""
_numbers: Final = count(1)
open_drafts: Final[dict[Scope, CallDraft]] = {}
"""The drafts of the calls that are running."""
NOTHING_SPENT: Final = Usage()


@dataclass(slots=True, kw_only=True)
class FunctionCall(Generic[T]):
    """A call of a function, with its arguments. Nobody changes it; a frozen one takes longer to make."""

    signature: object
    """Signature of the function, by which its records are found."""
    name: str
    """The name of the function."""
    kind: Literal["infer", "compute"]
    inputs: Mapping[str, JsonValue]
    """The arguments as records show them: opaque values are elided."""
    key: str
    """Hash of all arguments; empty for a call outside of any scope, which has no place."""
    returns: Annotation
    """The type by which the output is stored and read."""
    config: ResolvedConfig
    """Budget, time limits, retries of transport failures."""
    is_end_kept: bool = False
    """Whether the caller puts the end on record, as a run of rows does."""
    declares: Callable[[], Mapping[str, str]] = dict
    """Function that returns hashes of what is declared for the call; nothing for a function with a body."""


@dataclass(slots=True)
class CallDraft:
    """Notes about a call while it runs. Its record is made from them when somebody asks for the record."""

    call: FunctionCall[Any]
    run_id: str
    started_at: datetime
    flow: tuple[str, str, str]
    """The name and the id of the innermost flow around the call, and the id of the flow around that."""
    trace_id: str = ""
    """Id of the trace that has the span of the call, for `Tracer.log_error`; empty without a tracer."""
    prompt_hash: str = ""
    contract_hash: str = ""
    model: str = ""
    attempts: int = 1
    retry_reasons: list[str] = field(default_factory=list)
    is_cache_hit: bool = False
    review_id: str = ""
    members: list[Any] = field(default_factory=list)
    iterations: list[Any] = field(default_factory=list)
    outcome: CallOutcome = "failed"
    output: object = None
    failure: FailureFacts | None = None
    duration_ms: float = 0.0
    spent: Usage | None = None
    labels: Labels = NO_LABELS
    row: int | None = None
    index: int = 0
    """The number of the call among those that have ended in this process."""
    _record: CallRecord | None = None

    @property
    def record(self) -> CallRecord:
        """The record of the call, once it has ended."""
        if self._record is None:
            self._record = self._made()
        return self._record

    def _made(self) -> CallRecord:
        call, failure = self.call, self.failure
        flow, flow_id, parent_flow_id = self.flow
        return CallRecord(
            function=call.name,
            kind=call.kind,
            outcome=self.outcome,
            inputs=dict(call.inputs),
            output=self.output,
            error_type="" if failure is None else failure.error_type,
            error=None if failure is None else failure.message,
            model=self.model,
            prompt_hash=self.prompt_hash,
            contract_hash=self.contract_hash,
            attempts=self.attempts,
            retry_reasons=tuple(self.retry_reasons),
            members=tuple(self.members),
            iterations=tuple(self.iterations),
            review_id=self.review_id,
            started_at=self.started_at,
            duration_ms=self.duration_ms,
            run_id=self.run_id,
            flow=flow,
            flow_id=flow_id,
            parent_flow_id=parent_flow_id,
            **sums_of(self.spent or NOTHING_SPENT),
        )


class Sums(TypedDict):
    """The fields of a record that say what was spent."""

    cost_usd: Decimal
    cost_complete: bool
    requests: int
    input_tokens: int
    output_tokens: int


def sums_of(spent: Usage) -> Sums:
    """Return the fields of a record that say what was spent."""
    return Sums(
        cost_usd=spent.cost_usd,
        cost_complete=spent.cost_complete,
        requests=spent.request_count,
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
    )


_OUTCOMES: Final[Mapping[type[BaseException], CallOutcome]] = {
    PreconditionFailed: "precondition_failed",
    PostconditionFailed: "postcondition_failed",
    ParseFailure: "parse_failure",
    ConvergenceFailure: "convergence_failure",
    ConsensusFailure: "consensus_failure",
    TimeLimitExceeded: "timed_out",
}


def outcome_of(error: BaseException) -> CallOutcome:
    """Return the outcome of a call that raised this error."""
    for leaf in leaves(error):
        if isinstance(leaf, BudgetExceeded):
            return "budget_exceeded"
        if isinstance(leaf, asyncio.CancelledError):
            return "cancelled"
    for kind, outcome in _OUTCOMES.items():
        if isinstance(error, kind):
            return outcome
    return "failed"


def note_review(scope: Scope, review_id: str) -> None:
    """Note that the innermost call around a scope has waited for a person."""
    draft = next((open_drafts[around] for around in scope.lineage() if around in open_drafts), None)
    if draft is not None:
        draft.review_id = review_id


def names_of(flow: FlowRun | None) -> tuple[str, str, str]:
    """Return the name and the id of a flow, and the id of the flow around it."""
    if flow is None:
        return "", "", ""
    return flow.name, flow.id, "" if flow.outer is None else flow.outer.id


def keep(draft: CallDraft, flow: FlowRun | None) -> None:
    """Keep the record of a call in this process. `flow` is the innermost flow around the call."""
    draft.index = next(_numbers)
    _records.append((draft, draft.call.signature, None if flow is None else flow.signature))


def kept_records(signature: object = None) -> tuple[CallRecord, ...]:
    """Return the last 10,000 records of this process, oldest first, also of calls outside of flows.

    With a signature, return only the records of one function, or of the calls that one flow has made.
    """
    records = tuple(_records)
    if signature is not None:
        records = tuple([record for record in records if record[1] is signature or record[2] is signature])
    return tuple([draft.record for draft, _, _ in records])


@dataclass(frozen=True, slots=True)
class KeptCall:
    """A call of a typed function that this process has made, and what tells it from the others."""

    index: int
    """Number of the call among those that have ended in this process, from 1."""
    row: int | None
    """Number, from 0, of the item of `ctx.map`, or of the coroutine of `parallel` or `race`, that made the
    call; `None` outside of these."""
    tags: tuple[str, ...]
    """The tags of the runs and budget scopes around the call: your own labels."""
    tenant: str | None
    record: CallRecord
    """What the call was, and how it ended."""


def call_records(*, after: int = 0) -> tuple[KeptCall, ...]:
    """Return the last 10,000 calls of typed functions in this process, in the order of their ends.

    Each is a `KeptCall`: its number, its labels, and its `CallRecord`. Calls that failed or were cancelled
    are included, also those outside of flows. Outputs that a resumed run takes from its record do not count
    as calls.

    Args:
        after: Return only calls with a higher `index`: pass the index of the last call that you have seen.
    """
    drafts = [draft for draft, _, _ in tuple(_records) if draft.index > after]
    return tuple([KeptCall(draft.index, draft.row, *draft.labels, draft.record) for draft in drafts])
