"""OpenTelemetry metrics of requests and of refusals by budgets, if a meter provider is set.

Names of the form `gen_ai.*` are those of the OpenTelemetry semantic conventions for generative AI
(https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/), with the boundaries that they advise.
The conventions have no names for cost, waits and refusals.
"""

from __future__ import annotations

from typing import Final

from opentelemetry.metrics import MeterProvider, NoOpMeterProvider, _internal, get_meter_provider

from fastroai.errors import BudgetExceeded, SpendLimitExceeded
from fastroai.records import RequestRecord
from fastroai.tracing import attributes as names
from fastroai.tracing.protocol import AttributeValue
from fastroai.tracing.redaction import redacted_attributes
from fastroai.version import __version__

TOKEN_USAGE: Final = "gen_ai.client.token.usage"
"""Histogram of the tokens of each request, by `gen_ai.token.type`: `input` and `output`."""
OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
"""Histogram of the seconds from sending a request to the end of its answer."""
COST: Final = "fastroai.cost"
"""Counter of the known cost in US dollars, as a float: for dashboards, not for bills."""
REQUESTS: Final = "fastroai.requests"
"""Counter of the requests that ended, by `fastroai.request.outcome`."""
REQUEST_WAIT: Final = "fastroai.request.wait"
"""Histogram of the seconds that a request waited for budgets and provider limits before it was sent."""
BUDGET_REFUSALS: Final = "fastroai.budget.refusals"
"""Counter of the stops by budgets and spend limits, by `fastroai.budget.kind`."""

TOKEN_TYPE: Final = "gen_ai.token.type"
BUDGET_KIND: Final = "fastroai.budget.kind"
"""The kind of budget that refused: `budget` or `spend_limit`."""

_TOKENS: Final = [4**power for power in range(14)]
_SECONDS: Final = [0.01 * 2**power for power in range(14)]


class _Instruments:
    """The instruments of one meter provider."""

    def __init__(self, provider: MeterProvider) -> None:
        self.provider = provider
        self.is_recording = not isinstance(provider, NoOpMeterProvider) and not _is_placeholder(provider)
        meter = provider.get_meter("fastroai", __version__)
        self.tokens = meter.create_histogram(
            TOKEN_USAGE,
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self.duration = meter.create_histogram(
            OPERATION_DURATION,
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self.wait = meter.create_histogram(
            REQUEST_WAIT,
            unit="s",
            description="Time that requests waited for budgets and provider limits.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self.cost = meter.create_counter(COST, unit="{USD}", description="Known cost in US dollars.")
        self.requests = meter.create_counter(
            REQUESTS, unit="{request}", description="Requests to models that ended."
        )
        self.refusals = meter.create_counter(
            BUDGET_REFUSALS, unit="{refusal}", description="Stops by budgets and spend limits."
        )


get_meter_provider()  # sets the provider that the environment names, if any
_CAN_LOOK: Final = hasattr(_internal, "_METER_PROVIDER")
"""Whether a request can see at once that no provider is set: `get_meter_provider` looks at the environment
each time. The name is private, so it may go."""
_latest: _Instruments | None = None
"""The instruments of the meter provider that was global when something was last recorded."""


def record_request(record: RequestRecord) -> None:
    """Record a request, or other spending, that has ended. Cheap where no meter provider is set."""
    if _CAN_LOOK and _internal._METER_PROVIDER is None:
        return
    instruments = _instruments()
    if not instruments.is_recording:
        return
    what = _given(
        {
            names.OPERATION_NAME: "chat" if record.duration_ms and record.kind == "request" else None,
            names.PROVIDER_NAME: record.provider or None,
            names.REQUEST_MODEL: record.model,
        }
    )
    whose = what | _given({names.AGENT_NAME: record.agent, names.TENANT: record.tenant})
    if record.cost_usd:
        instruments.cost.add(float(record.cost_usd), whose)
    if record.kind == "request":
        instruments.requests.add(1, {**whose, names.REQUEST_OUTCOME: record.outcome})
        _record_sizes(instruments, record, what)


def record_refusal(error: BudgetExceeded) -> None:
    """Record a stop by a budget or a spend limit."""
    instruments = _instruments()
    if instruments.is_recording:
        kind = "spend_limit" if isinstance(error, SpendLimitExceeded) else "budget"
        instruments.refusals.add(1, {BUDGET_KIND: kind, names.ERROR_TYPE: type(error).__name__})


def _record_sizes(instruments: _Instruments, record: RequestRecord, what: dict[str, AttributeValue]) -> None:
    if record.response_model is not None:
        what = what | {names.RESPONSE_MODEL: record.response_model}
    for kind, tokens in (("input", record.tokens.input_tokens), ("output", record.tokens.output_tokens)):
        if tokens or record.outcome == "settled":
            instruments.tokens.record(tokens, what | {TOKEN_TYPE: kind})
    if record.duration_ms:  # records of `record_usage` have no duration
        failed = {} if record.error is None else {names.ERROR_TYPE: record.outcome}
        instruments.duration.record(record.duration_ms / 1000, {**what, **failed})
        instruments.wait.record(record.waited_ms / 1000, what)


def _instruments() -> _Instruments:
    global _latest
    provider, known = get_meter_provider(), _latest
    if known is None or known.provider is not provider:
        _latest = known = _Instruments(provider)
    return known


def _is_placeholder(provider: MeterProvider) -> bool:
    """Return whether a provider is the API's placeholder for one not set yet; its class is private."""
    return type(provider).__module__ == "opentelemetry.metrics._internal"


def _given(attributes: dict[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    return redacted_attributes({name: value for name, value in attributes.items() if value is not None})
