"""Names of FastroAI's spans, and the attributes of each kind of span.

Names of the form `gen_ai.*` are those of the OpenTelemetry semantic conventions for generative AI
(https://opentelemetry.io/docs/specs/semconv/gen-ai/), as strings because the constants of the package are
deprecated and moving. There is no convention for cost: `operation.cost` is the name that PydanticAI uses.

Tokens and cost stand under their standard names on request spans only. Sums over a run stand on the spans
above under names of their own (`gen_ai.aggregated_usage.*`, as in PydanticAI, and `fastroai.cost.*`), so a
backend that adds up a trace counts nothing twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final, Literal, get_args
from urllib.parse import urlsplit

from fastroai.errors import RecordedError
from fastroai.records import CallRecord, RequestRecord, RunKind, Usage, usd_to_microcents
from fastroai.tracing.protocol import Attributes, AttributeValue

OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
USAGE_CACHE_READ_INPUT_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
USAGE_CACHE_CREATION_INPUT_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
USAGE_REASONING_OUTPUT_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
AGENT_NAME: Final = "gen_ai.agent.name"
ERROR_TYPE: Final = "error.type"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"
EXCEPTION_ESCAPED: Final = "exception.escaped"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"

OPERATION_COST: Final = "operation.cost"
"""Cost of one request in US dollars, as a float."""
COST_USD: Final = "fastroai.cost.usd"
"""Exact known cost in US dollars, as a decimal string."""
COST_MICROCENTS: Final = "fastroai.cost.microcents"
"""Known cost in millionths of a US dollar, rounded once."""
COST_COMPLETE: Final = "fastroai.cost.complete"
"""Whether the cost is complete: nothing is unpriced or unmeasured."""
COST_BOUND_USD: Final = "fastroai.cost.bound_usd"
"""The most that an unmeasured request can have cost, in US dollars, as a decimal string."""

BUDGET_RESERVED_USD: Final = "fastroai.budget.reserved_usd"
"""The amount reserved for a request before it was sent, in US dollars, exact, as a string."""
BUDGET_SHARE: Final = "fastroai.budget.share"
"""The share that is spent, after a request, of the budget that is nearest to its end."""
BUDGET_WAITED_MS: Final = "fastroai.budget.waited_ms"
"""Milliseconds that a request under a budget waited to be sent, for budgets and for a `ProviderLimit`."""
LIMIT_WAITED_MS: Final = "fastroai.limit.waited_ms"
"""Milliseconds that a request waited for a `ProviderLimit` or `CircuitBreaker`, and for budgets."""
BUDGET_LOWERED: Final = "fastroai.budget.lowered"
"""Whether a request was given a lower `max_tokens` because the budget could pay for no more."""

RUN_ID: Final = "fastroai.run.id"
TENANT: Final = "fastroai.tenant"
"""The tenant of the run, call or request."""
TAGS: Final = "fastroai.tags"
"""Tags of the run, call or request, outermost first."""
ROUTER_NAME: Final = "fastroai.router.name"
ROUTE: Final = "fastroai.router.route"
"""The variant that a router runs, by the name under which it is registered."""
RUN_NAMES: Final[Mapping[RunKind, str]] = {kind: f"fastroai.{kind}.name" for kind in get_args(RunKind)}
"""The name of a run, by its kind, as in `fastroai.pipeline.name`."""
FLOW_ID: Final = "fastroai.flow.id"
"""The id of the innermost flow around a call of a typed function."""
FUNCTION_NAME: Final = "fastroai.function.name"
"""The name of the typed function that is called."""
FUNCTION_KIND: Final = "fastroai.function.kind"
"""The kind of the typed function: `infer` or `compute`."""
FUNCTION_OUTCOME: Final = "fastroai.function.outcome"
"""The outcome of the call, as in `CallRecord`."""
FUNCTION_ATTEMPTS: Final = "fastroai.function.attempts"
FUNCTION_PROMPT_HASH: Final = "fastroai.function.prompt_hash"
FUNCTION_CACHE_HIT: Final = "fastroai.function.cache_hit"
STEP_ID: Final = "fastroai.step.id"
NODE_VISIT: Final = "fastroai.node.visit"
"""The number of the visit to a node of a graph, from 1."""
ATTEMPT: Final = "fastroai.attempt"
"""The number of the attempt, from 1."""
REQUEST_OUTCOME: Final = "fastroai.request.outcome"
"""The outcome of a request: `settled`, `unmeasured` or `released`, as in `RequestRecord`."""
REQUEST_COUNT: Final = "fastroai.requests"
CANCELLED: Final = "fastroai.cancelled"
"""True on a span that cancellation ended."""

AMOUNTS: Final = frozenset({COST_USD, COST_BOUND_USD, BUDGET_RESERVED_USD})
"""The attributes that are exact amounts of money, as texts."""

_AGGREGATED: Final = ("gen_ai.usage.", "gen_ai.aggregated_usage.")


def run_span(kind: RunKind, name: str) -> str:
    """Return the name of the span of a run."""
    return f"{kind} {name}"


def route_span(router: str) -> str:
    """Return the name of the span around a variant of a router."""
    return f"router {router}"


def step_span(step_id: str) -> str:
    """Return the name of a step's span."""
    return f"step {step_id}"


def agent_span(name: str | None) -> str:
    """Return the name of an agent run's span, by convention."""
    return f"invoke_agent {name}" if name else "invoke_agent"


def request_span(model: str) -> str:
    """Return the name of a model request's span, by convention."""
    return f"chat {model}"


def is_client_span(attributes: Attributes) -> bool:
    """Return whether a span is of a request to a provider, which the conventions give the kind `CLIENT`."""
    return attributes.get(OPERATION_NAME) == "chat"


def run_attributes(kind: RunKind, *, name: str, run_id: str) -> dict[str, AttributeValue]:
    """Return the attributes of a run that starts."""
    return {RUN_NAMES[kind]: name, RUN_ID: run_id}


def call_span(kind: Literal["infer", "compute"], function: str) -> str:
    """Return the name of the span of a call of a typed function."""
    return f"{kind} {function}"


def call_attributes(
    *, kind: Literal["infer", "compute"], function: str, run_id: str, flow_id: str
) -> dict[str, AttributeValue]:
    """Return the attributes of a call of a typed function that starts."""
    return _given({FUNCTION_NAME: function, FUNCTION_KIND: kind, RUN_ID: run_id, FLOW_ID: flow_id or None})


def ended_call_attributes(record: CallRecord) -> dict[str, AttributeValue]:
    """Return the attributes of a call of a typed function that has ended, besides its usage."""
    known: dict[str, AttributeValue | None] = {
        FUNCTION_OUTCOME: record.outcome,
        FUNCTION_ATTEMPTS: record.attempts,
        FUNCTION_PROMPT_HASH: record.prompt_hash or None,
        FUNCTION_CACHE_HIT: record.outcome == "cache_hit",
    }
    return _given(known)


def label_attributes(tags: tuple[str, ...], tenant: str | None) -> dict[str, AttributeValue]:
    """Return the tenant and the tags of a run, call or request."""
    return _given({TENANT: tenant, TAGS: tags or None})


def route_attributes(*, router: str, route: str, run_id: str) -> dict[str, AttributeValue]:
    """Return the attributes of a variant of a router that starts."""
    return {ROUTER_NAME: router, ROUTE: route, RUN_ID: run_id}


def step_attributes(
    *, step_id: str, run_id: str | None = None, visit: int | None = None
) -> dict[str, AttributeValue]:
    """Return the attributes of a step that starts; `visit` is given for a node of a graph."""
    return _given({STEP_ID: step_id, RUN_ID: run_id, NODE_VISIT: visit})


def agent_attributes(
    *,
    name: str | None = None,
    model: str | None = None,
    run_id: str | None = None,
    attempt: int | None = None,
) -> dict[str, AttributeValue]:
    """Return the attributes of an agent run that starts."""
    return _given(
        {
            OPERATION_NAME: "invoke_agent",
            AGENT_NAME: name,
            REQUEST_MODEL: model,
            RUN_ID: run_id,
            ATTEMPT: attempt,
        }
    )


def request_attributes(
    *,
    model: str,
    provider: str | None = None,
    base_url: str | None = None,
    streamed: bool = False,
    attempt: int | None = None,
) -> dict[str, AttributeValue]:
    """Return the attributes of a model request that starts. `base_url` gives address and port."""
    address, port = _server(base_url)
    return _given(
        {
            OPERATION_NAME: "chat",
            REQUEST_MODEL: model,
            PROVIDER_NAME: provider,
            SERVER_ADDRESS: address,
            SERVER_PORT: port,
            REQUEST_STREAM: streamed or None,
            ATTEMPT: attempt,
        }
    )


def response_attributes(record: RequestRecord) -> dict[str, AttributeValue]:
    """Return the attributes of a model request that has ended: outcome, response, tokens and cost.

    Unmeasured and unpriced values are left out, never reported as zero.
    """
    outcome: dict[str, AttributeValue] = {REQUEST_OUTCOME: record.outcome}
    if record.outcome == "released":
        return outcome
    tokens = record.tokens
    measured = record.outcome == "settled"
    return outcome | _given(
        {
            RESPONSE_MODEL: record.response_model,
            RESPONSE_ID: record.response_id,
            RESPONSE_FINISH_REASONS: (record.finish_reason,) if record.finish_reason else None,
            USAGE_INPUT_TOKENS: tokens.input_tokens if measured else tokens.input_tokens or None,
            USAGE_OUTPUT_TOKENS: tokens.output_tokens if measured else tokens.output_tokens or None,
            USAGE_CACHE_READ_INPUT_TOKENS: tokens.cache_read_tokens or None,
            USAGE_CACHE_CREATION_INPUT_TOKENS: tokens.cache_write_tokens or None,
            USAGE_REASONING_OUTPUT_TOKENS: tokens.reasoning_tokens or None,
            OPERATION_COST: None if record.cost_usd is None else float(record.cost_usd),
            COST_USD: None if record.cost_usd is None else _exact(record.cost_usd),
            COST_MICROCENTS: None if record.cost_usd is None else usd_to_microcents(record.cost_usd),
            COST_BOUND_USD: None if record.bound_usd is None or measured else _exact(record.bound_usd),
            COST_COMPLETE: measured and record.cost_usd is not None,
        }
    )


def budget_attributes(
    *, reserved_usd: Decimal | None, share: Decimal, waited_ms: float, lowered: bool
) -> dict[str, AttributeValue]:
    """Return the attributes of a request about its budgets."""
    return _given(
        {
            BUDGET_RESERVED_USD: None if reserved_usd is None else _exact(reserved_usd),
            BUDGET_SHARE: float(share),
            BUDGET_WAITED_MS: waited_ms,
            BUDGET_LOWERED: lowered or None,
        }
    )


def usage_attributes(usage: Usage) -> dict[str, AttributeValue]:
    """Return the sums of a pipeline, step or agent run that has ended."""
    tokens = {
        USAGE_INPUT_TOKENS: usage.input_tokens,
        USAGE_OUTPUT_TOKENS: usage.output_tokens,
        USAGE_CACHE_READ_INPUT_TOKENS: usage.cache_read_tokens or None,
        USAGE_CACHE_CREATION_INPUT_TOKENS: usage.cache_write_tokens or None,
        USAGE_REASONING_OUTPUT_TOKENS: usage.reasoning_tokens or None,
    }
    return _given({name.replace(*_AGGREGATED): value for name, value in tokens.items()}) | {
        REQUEST_COUNT: usage.request_count,
        COST_USD: _exact(usage.cost_usd),
        COST_MICROCENTS: usage.cost_microcents,
        COST_COMPLETE: usage.cost_complete,
    }


def error_type(error: BaseException) -> str:
    """Return the value of `error.type`: the exception's class, with its module unless it is built in."""
    if isinstance(error, RecordedError):
        return error.error_type
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def error_summary(error: BaseException) -> str:
    """Return an exception as one text: class and message."""
    message = str(error)
    name = error_type(error).rpartition(".")[2]
    return f"{name}: {message}" if message else name


def _given(attributes: dict[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    return {name: value for name, value in attributes.items() if value is not None}


def _exact(usd: Decimal) -> str:
    """Return an amount without an exponent, which not every reader of decimals accepts."""
    return format(usd, "f")


def _server(base_url: str | None) -> tuple[str | None, int | None]:
    """Return the host and port of a URL, or nothing if it is unreadable: a trace must not fail a request."""
    try:
        parts = urlsplit(base_url or "")
        return parts.hostname, parts.port
    except ValueError:
        return None, None
