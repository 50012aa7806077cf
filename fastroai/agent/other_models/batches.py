"""Requests in batches: each is admitted and settled in its own run, and they are sent together.

PydanticAI's `BatchModelRequests` collects the requests of many runs, sends them in a task that belongs to
none of them, and shows each run its own result. The reservation of a request travels with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.models.batch import Batch, BatchRequest, BatchResult, EncodedBatchRequest

from fastroai.agent.agent_run import AgentRun
from fastroai.agent.requests.request_attempt import RequestAttempt
from fastroai.agent.requests.request_terms import Terms
from fastroai.errors import ScopeClosedError
from fastroai.pydantic_ai_private import batch_job_error, id_in_batch
from fastroai.runtime import Scope
from fastroai.runtime.budgets.admission import readmit
from fastroai.tracing import attributes
from fastroai.usage.bounding.request_bounds import RequestBound
from fastroai.usage.facts.billing import UNBILLED_IN_BATCHES

if TYPE_CHECKING:
    from fastroai.agent.requests.recorded_requests import KnownResponse, RequestOnRecord


@dataclass(frozen=True, kw_only=True)
class MeteredBatchRequest(EncodedBatchRequest):
    """An encoded request, with the attempt that holds its reservation."""

    encoded: EncodedBatchRequest = field(repr=False, compare=False)
    """The request as its model has encoded it."""
    attempt: RequestAttempt = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        # The code that puts the request into a batch makes a copy, which has the id in that batch.
        self.attempt.job = self.custom_id


async def encode(attempt: RequestAttempt, request: BatchRequest) -> MeteredBatchRequest:
    """Reserve the most that a request can cost, and encode the request as it was admitted."""
    attempt.sent = False
    await attempt.admit()
    terms = attempt.terms
    try:
        encoded = await terms.wrapped.batch_encode(replace(request, model_settings=terms.settings))
    except BaseException as error:
        attempt.fail_unsent(f"not sent: {attributes.error_summary(error)}")
        await attempt.conclude("", error=error)
        raise
    return MeteredBatchRequest(
        custom_id=encoded.custom_id,
        group=encoded.group,
        body=encoded.body,
        encoded=encoded,
        attempt=attempt,
    )


def rejoined(
    scope: Scope, terms: Terms, run: AgentRun | None, on_record: RequestOnRecord, known: KnownResponse
) -> RequestAttempt:
    """Return the attempt for a request whose answer an earlier process has not collected, as it is on record.

    Raises:
        ScopeClosedError: the run has ended.
    """
    record = known.sent.record
    output = None if record.bound_tokens is None else 0  # only the sum is on record
    bound = RequestBound(input_tokens=record.bound_tokens, output_tokens=output, cost_usd=record.bound_usd)
    terms = replace(terms, known_bound=bound)
    attempt = RequestAttempt(scope, terms, run, on_record.used, on_record)
    claims = {} if known.sent.in_batch is None else known.sent.in_batch.claims
    attempt.reservation = readmit(scope, terms, known.sent, claims)  # pyright: ignore[reportArgumentType]
    attempt.job = id_in_batch(known.response) or known.response.provider_response_id
    attempt.lowered_to = record.lowered_to
    attempt.started_at = record.started_at
    return attempt


async def create(model: Model, requests: Sequence[EncodedBatchRequest]) -> Batch:
    """Send a batch, without those whose runs have ended meanwhile.

    Raises:
        ScopeClosedError: no request is left.
    """
    going: list[EncodedBatchRequest] = []
    attempts: list[RequestAttempt] = []
    closed: tuple[str, ...] = ()
    for request in requests:
        if not isinstance(request, MeteredBatchRequest):
            going.append(request)  # made outside of any run
        elif request.attempt.may_go:
            attempts.append(request.attempt)
            going.append(replace(request.encoded, custom_id=request.custom_id))
        else:
            closed = request.attempt.scope.path
    if requests and not going:
        raise ScopeClosedError(closed)
    for attempt in attempts:
        attempt.sent = True
    try:
        batch = await model.batch_create(going)
    except BaseException as error:
        _fail(attempts, error)
        raise
    _SENT[batch.group, batch.id] = sent = _Sent(attempts)
    for attempt in attempts:
        attempt.batch = sent
    return batch


async def results(model: Model, batch: Batch) -> list[BatchResult]:
    """Read the results of a batch. A batch that ended without running anything is not billed."""
    try:
        return await model.batch_results(batch)
    except batch_job_error() as error:
        sent = _SENT.get((batch.group, batch.id))
        _fail([] if sent is None else sent.attempts, error)
        raise


@dataclass(eq=False)
class _Sent:
    """The requests of a batch. This object lives as long as one of them is kept."""

    attempts: Sequence[RequestAttempt]


_SENT: Final[WeakValueDictionary[tuple[str, str], _Sent]] = WeakValueDictionary()
"""The batches of this process, by group and id. Their results may be read through another meter."""


def _fail(attempts: Sequence[RequestAttempt], error: BaseException) -> None:
    for attempt in attempts:
        if attempt.charge is None:
            attempt.fail(error)
            attempt.conclude_at_once()


def decode(attempt: RequestAttempt, result: BatchResult, request: BatchRequest) -> ModelResponse:
    """Return the response of a request, and charge it. A request that did not run is not billed."""
    try:
        response = attempt.terms.wrapped.batch_decode(result, request)
    except BaseException as error:
        if result.status in UNBILLED_IN_BATCHES.names:
            attempt.fail_unsent(attributes.error_summary(error))
        else:
            attempt.fail(error)
        attempt.conclude_at_once()
        raise
    attempt.settle(response)
    attempt.conclude_at_once(response)
    attempt.check_whole_at_once(response)
    return response
