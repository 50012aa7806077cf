"""Plain values that all layers use: tokens, request records, usage, exact sums, and "not given"."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
    Overflow,
)
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast, overload

from fastroai.data_kinds import Label, Text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

EXACT: Final = Context(
    prec=10_000,
    rounding=ROUND_HALF_EVEN,
    Emin=MIN_EMIN,
    Emax=MAX_EMAX,
    traps=[InvalidOperation, DivisionByZero, Overflow],
)
"""The decimal context of all arithmetic on money, in which no sum and no product is rounded.

Operators (`a + b`) use the context of the application, which may round: write `EXACT.add(a, b)`.
"""

MICROCENTS_PER_DOLLAR: Final = 1_000_000
"""A microcent, in this library, is one millionth of a US dollar."""

_ZERO: Final = Decimal(0)
_T = TypeVar("_T")


class NotGiven(enum.Enum):
    """The type of `NOT_GIVEN`: the caller gave no value, which differs from `None` and from a default."""

    NOT_GIVEN = "not given"

    def __repr__(self) -> str:
        return "NOT_GIVEN"

    def __bool__(self) -> Literal[False]:
        return False


RunKind: TypeAlias = Literal["pipeline", "graph", "flow", "workflow", "rows"]
"""The kind of a run."""

NOT_GIVEN: Final = NotGiven.NOT_GIVEN
"""Stands for an option that the caller did not give, so that `None` and `0` can be given as values."""


def first_given(*values: _T | NotGiven, default: _T) -> _T:
    """Return the first value that was given, most specific first; `default` if none was."""
    for value in values:
        if not isinstance(value, NotGiven):
            return value
    return default


Duration: TypeAlias = float | timedelta
"""A length of time: seconds, or a `timedelta`."""


@overload
def in_seconds(duration: Duration) -> float: ...
@overload
def in_seconds(duration: Duration | _T) -> float | _T: ...
def in_seconds(duration: Duration | _T) -> float | _T:
    """Return a duration in seconds, and any other value, such as `None`, as it is."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


class Unbounded(enum.Enum):
    """The type of `UNBOUNDED`. It has no truth value, so that `amount or 0` cannot turn it into zero."""

    UNBOUNDED = "unbounded"

    def __repr__(self) -> str:
        return "UNBOUNDED"

    def __bool__(self) -> bool:
        raise TypeError("an unbounded amount is neither true nor false; test: amount is UNBOUNDED")


UNBOUNDED: Final = Unbounded.UNBOUNDED
"""An amount of money without a known limit."""


_RATIO: Final = Context(prec=28, rounding=ROUND_HALF_EVEN, traps=[InvalidOperation, DivisionByZero, Overflow])


def ratio(part: Decimal | int, whole: Decimal | int) -> Decimal:
    """Divide, to 28 digits: for shares and averages, which need not be exact."""
    return _RATIO.divide(Decimal(part), Decimal(whole))


def exact_sum(amounts: Iterable[Decimal]) -> Decimal:
    """Add amounts without rounding, whatever the caller's decimal context is."""
    total = _ZERO
    for amount in amounts:
        total = EXACT.add(total, amount)
    return total


def microcents_to_usd(microcents: int) -> Decimal:
    """Return whole microcents as exact dollars."""
    return EXACT.divide(Decimal(microcents), MICROCENTS_PER_DOLLAR)


def usd_to_microcents(usd: Decimal, rounding: str = ROUND_HALF_EVEN) -> int:
    """Return exact dollars as whole microcents, rounded once: half to even, or as `rounding` says."""
    return int(EXACT.multiply(usd, MICROCENTS_PER_DOLLAR).to_integral_value(rounding, EXACT))


def dollars(usd: Decimal) -> str:
    """Write an exact amount for people: at least cents, and no digit is lost."""
    whole, _, rest = f"{usd:,f}".partition(".")
    return f"${whole}.{rest.rstrip('0').ljust(2, '0')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Token counts of one request. Parts are included in their totals, as in PydanticAI's `RequestUsage`."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    """Input tokens read from the provider's cache; included in `input_tokens`."""
    cache_write_tokens: int = 0
    """Input tokens written to the provider's cache; included in `input_tokens`."""
    input_audio_tokens: int = 0
    cache_audio_read_tokens: int = 0
    output_audio_tokens: int = 0
    reasoning_tokens: int = 0
    """Thinking tokens; included in `output_tokens`."""

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


RequestOutcome = Literal["settled", "unmeasured", "released"]
"""The outcome of a request for the account.

`settled`: its usage arrived. `unmeasured`: it was sent, and its usage never came or contradicts itself.
`released`: it was not sent, or was refused unbilled.
"""

RecordKind = Literal["request", "spend"]
"""The kind of a record: a request to a model, or other spending, which `spend` has reserved."""

CostSource = Literal["stated", "priced", "override", "unknown"]
"""The source of the cost of a request.

`stated`: the bill of the provider or a gateway. `priced`: list prices. `override`: prices of the user.
"""


RequestUse = Literal["kept", "retried", "failed"]
"""The use that was made of the answer to a request.

`kept`: the answer was used. `retried`: it was dropped and asked for again. `failed`: the work that it was
for ended in an error.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One provider request, or one amount that `record_usage` or `spend` added: the unit of the account."""

    model: str
    """The model that was asked, or the name of something else that was paid for."""
    provider: str
    """The provider's name, as PydanticAI gives it: `openai`, `anthropic`, ..."""
    outcome: RequestOutcome
    kind: RecordKind = "request"
    tokens: Tokens = Tokens()
    units: Mapping[str, int | float] = field(default_factory=dict[str, int | float], hash=False)
    """Amounts that `spend` has paid for, by the name of the unit, as in `{"web_searches": 3}`."""
    cost_usd: Decimal | None = None
    """Exact cost in US dollars, as far as it is known, without `unpriced_units`; `None` if none is known."""
    cost_source: CostSource = "unknown"
    """The source of `cost_usd`."""
    stated_usd: Decimal | None = None
    """The bill that the provider or a gateway states, in US dollars; `None` if they state none."""
    priced_usd: Decimal | None = None
    """The cost at the prices known here, in US dollars; `None` if they do not cover the usage."""
    unpriced_units: tuple[str, ...] = ()
    """Names of used or bought units without a known price, such as `web_searches`."""
    bound_usd: Decimal | None = None
    """The most that a request of incomplete cost can have cost, in US dollars; `None` if not known."""
    bound_tokens: int | None = None
    """The most input and output tokens that an unmeasured request can have used; `None` if not known."""
    use: RequestUse = "kept"
    tools: tuple[str, ...] = ()
    """Tools whose returns this request brought to the model for the first time."""
    tool_calls: int = 0
    """Number of calls of function tools that the response asks for."""
    response_model: str | None = None
    """The model that answered, when the provider says so."""
    response_id: str | None = None
    agent: str | None = None
    step_id: str | None = None
    variant: str | None = None
    """The variant that a router chose around the request; for routers in routers, all: `long/formal`."""
    tags: tuple[Label[str], ...] = ()
    """Tags of the request's run, and of the scopes inside of it, outermost first."""
    tenant: Label[str] | None = None
    """The tenant whose spending it is: that of the run, or of the innermost scope that names one."""
    attempt: int = 1
    """The number of the attempt at this request, from 1: transport failures are retried."""
    backoff_ms: float = 0.0
    """Milliseconds waited before this attempt, because the attempt before it had failed."""
    waited_ms: float = 0.0
    """Milliseconds that the request waited to be sent, for a `ProviderLimit` and for budgets."""
    streamed: bool = False
    started_at: datetime | None = None
    duration_ms: float = 0.0
    finish_reason: str | None = None
    cut: bool = False
    """Whether its answer broke off before its end, as far as the provider lets one know."""
    lowered_to: int | None = None
    """The `max_tokens` that budgets or spend limits could pay for, where the request was sent with less than
    it asked for; else `None`."""
    error: Text[str] | None = None
    """The error of a request that gave no usable response, or a response without its usage."""

    @property
    def cost_complete(self) -> bool:
        """Whether `cost_usd` is the whole cost; a released request cost nothing."""
        if self.outcome == "settled":
            return self.cost_usd is not None and not self.unpriced_units
        return self.outcome == "released"

    @property
    def committed_usd(self) -> Decimal | Unbounded:
        """The amount that budgets read, in US dollars: the cost if it is complete, else the most possible."""
        if self.outcome == "released":
            return _ZERO
        known = _ZERO if self.cost_usd is None else self.cost_usd
        if self.cost_complete:
            return known
        return UNBOUNDED if self.bound_usd is None else max(known, self.bound_usd)

    @property
    def unpriced(self) -> bool:
        """Whether the usage is known, but not the price of all of it."""
        return self.outcome == "settled" and not self.cost_complete

    @property
    def was_cut_short(self) -> bool:
        """Whether its answer is only as long as budgets or spend limits could pay for."""
        return self.lowered_to is not None and self.finish_reason == "length"

    @property
    def is_doubtful(self) -> bool:
        """Whether its answer was used although it broke off, or came without its usage."""
        return self.use == "kept" and (self.cut or self.outcome == "unmeasured")


@dataclass(slots=True)
class Usage:
    """The spending of a scope so far: sums over its requests and those of everything below it."""

    request_count: int = 0
    """Requests to models that were sent and not refused: settled and unmeasured ones. Purchases with `spend`
    do not count here; they do in the counts below."""
    failed_requests: int = 0
    """Requests that ended unbilled: refused by the provider, or never sent."""
    unpriced_requests: int = 0
    """Settled requests with units whose price is not known."""
    unmeasured_requests: int = 0
    """Requests that were sent, and whose usage never came or contradicts itself."""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    input_audio_tokens: int = 0
    cache_audio_read_tokens: int = 0
    output_audio_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: Decimal = _ZERO
    """Exact sum of the known costs, in US dollars."""
    uncertain_usd: Decimal = _ZERO
    """The most that unpriced and unmeasured requests can have cost beyond `cost_usd`, in US dollars."""
    unbounded_requests: int = 0
    """Unpriced and unmeasured requests for which no bound is known; they are not in `uncertain_usd`."""
    unpriced_units: tuple[str, ...] = ()
    """Names of used or bought units without a known price, each once."""
    unmeasured_bound_tokens: int = 0
    """The most tokens that unmeasured requests can have used beyond those reported, where that is known."""
    agent_call_count: int = 0
    """Agent runs that were started, at any depth: retried ones, and agents called by tools, included."""

    def add(self, record: RequestRecord) -> None:
        """Count one record."""
        if record.outcome == "released":
            self.failed_requests += 1
            return
        if record.kind == "request":
            self.request_count += 1
        if record.cost_usd is not None:
            self.cost_usd = EXACT.add(self.cost_usd, record.cost_usd)
        if not record.cost_complete:
            self._add_uncertain(record)
        tokens = record.tokens
        self.input_tokens += tokens.input_tokens
        self.output_tokens += tokens.output_tokens
        self.cache_read_tokens += tokens.cache_read_tokens
        self.cache_write_tokens += tokens.cache_write_tokens
        self.input_audio_tokens += tokens.input_audio_tokens
        self.cache_audio_read_tokens += tokens.cache_audio_read_tokens
        self.output_audio_tokens += tokens.output_audio_tokens
        self.reasoning_tokens += tokens.reasoning_tokens

    def take_back(self, record: RequestRecord) -> None:
        """Stop counting a record, because more was heard of its request. Names of units stay."""
        counted = Usage.of([record])
        for one in fields(self):
            if one.name in ("cost_usd", "uncertain_usd"):
                setattr(self, one.name, EXACT.subtract(getattr(self, one.name), getattr(counted, one.name)))
            elif one.name != "unpriced_units":
                setattr(self, one.name, getattr(self, one.name) - getattr(counted, one.name))

    def _add_uncertain(self, record: RequestRecord) -> None:
        if record.outcome == "unmeasured":
            self.unmeasured_requests += 1
            if record.bound_tokens is not None:
                self.unmeasured_bound_tokens += max(0, record.bound_tokens - record.tokens.total_tokens)
        else:
            self.unpriced_requests += 1
        committed = record.committed_usd
        if committed is UNBOUNDED:
            self.unbounded_requests += 1
        else:
            beyond = committed if record.cost_usd is None else EXACT.subtract(committed, record.cost_usd)
            self.uncertain_usd = EXACT.add(self.uncertain_usd, beyond)
        if record.unpriced_units:
            self.unpriced_units = tuple(dict.fromkeys((*self.unpriced_units, *record.unpriced_units)))

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    @property
    def committed_tokens(self) -> int:
        """The tokens that budgets read: those used, and the bounds of unmeasured requests."""
        return self.total_tokens + self.unmeasured_bound_tokens

    @property
    def committed_usd(self) -> Decimal:
        """The amount that budgets read, in US dollars: `cost_usd` and `uncertain_usd` together."""
        return EXACT.add(self.cost_usd, self.uncertain_usd)

    @property
    def cost_complete(self) -> bool:
        """Whether `cost_usd` is the whole cost: no request is unpriced or unmeasured."""
        return not (self.unpriced_requests or self.unmeasured_requests)

    @property
    def cost_microcents(self) -> int:
        """`cost_usd` in microcents, rounded once, half to even."""
        return usd_to_microcents(self.cost_usd)

    @property
    def cost_dollars(self) -> float:
        """`cost_usd` as a float, for display."""
        return float(self.cost_usd)

    def __add__(self, other: Usage) -> Usage:
        """Return the sum of two usages, such as those of two runs."""
        together = {one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)}
        together["cost_usd"] = EXACT.add(self.cost_usd, other.cost_usd)
        together["uncertain_usd"] = EXACT.add(self.uncertain_usd, other.uncertain_usd)
        together["unpriced_units"] = tuple(dict.fromkeys(together["unpriced_units"]))
        return Usage(**together)

    def __radd__(self, other: int) -> Usage:
        """Return a copy when `sum` adds this to the 0 that it begins with."""
        return self.copy() if other == 0 else NotImplemented

    def include(self, other: Usage) -> None:
        """Add the usage of something else to this one."""
        total = self + other
        for one in fields(self):
            setattr(self, one.name, getattr(total, one.name))

    def copy(self) -> Usage:
        """Return a snapshot that later requests do not change."""
        return Usage(*_counts(self))

    @classmethod
    def of(cls, records: list[RequestRecord]) -> Usage:
        """Return the sum of some records."""
        usage = cls()
        for record in records:
            usage.add(record)
        return usage


class SumsOfUsage:
    """The sums in the `usage` of something, such as a response or a run, as attributes of its own."""

    __slots__ = ()
    if TYPE_CHECKING:  # else a dataclass would take the property for the default of its field

        @property
        def usage(self) -> Usage | SumsOfUsage:
            """The sums."""
            ...

    @property
    def cost_usd(self) -> Decimal:
        """Exact known cost, in US dollars."""
        return self.usage.cost_usd

    @property
    def cost_complete(self) -> bool:
        """Whether `cost_usd` is the whole cost: no request is unpriced or unmeasured."""
        return self.usage.cost_complete

    @property
    def cost_microcents(self) -> int:
        """`cost_usd` in microcents ($1 = 1,000,000), rounded once, half to even."""
        return self.usage.cost_microcents

    @property
    def cost_dollars(self) -> float:
        """`cost_usd` as a float, for display."""
        return self.usage.cost_dollars

    @property
    def input_tokens(self) -> int:
        """Tokens sent, cached ones included."""
        return self.usage.input_tokens

    @property
    def output_tokens(self) -> int:
        """Tokens received, reasoning included."""
        return self.usage.output_tokens

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.usage.total_tokens

    @property
    def cache_read_tokens(self) -> int:
        """Input tokens read from the provider's cache."""
        return self.usage.cache_read_tokens

    @property
    def cache_write_tokens(self) -> int:
        """Input tokens written to the provider's cache."""
        return self.usage.cache_write_tokens

    @property
    def input_audio_tokens(self) -> int:
        """Audio tokens sent."""
        return self.usage.input_audio_tokens

    @property
    def output_audio_tokens(self) -> int:
        """Audio tokens received."""
        return self.usage.output_audio_tokens

    @property
    def cache_audio_read_tokens(self) -> int:
        """Audio tokens read from the provider's cache."""
        return self.usage.cache_audio_read_tokens

    @property
    def reasoning_tokens(self) -> int:
        """Reasoning tokens, if the provider reports them."""
        return self.usage.reasoning_tokens

    @property
    def request_count(self) -> int:
        """Number of requests that were sent and not refused."""
        return self.usage.request_count

    @property
    def failed_requests(self) -> int:
        """Number of requests that ended unbilled: refused by the provider, or never sent."""
        return self.usage.failed_requests

    @property
    def unpriced_requests(self) -> int:
        """Number of requests to models without a known price."""
        return self.usage.unpriced_requests

    @property
    def unmeasured_requests(self) -> int:
        """Number of requests that were sent and whose usage never came."""
        return self.usage.unmeasured_requests

    @property
    def unpriced_units(self) -> tuple[str, ...]:
        """Names of used or bought units without a known price, each once."""
        return self.usage.unpriced_units

    @property
    def uncertain_usd(self) -> Decimal:
        """The most that unpriced and unmeasured requests can have cost beyond `cost_usd`, in US dollars."""
        return self.usage.uncertain_usd

    @property
    def unbounded_requests(self) -> int:
        """Number of requests of unknown cost without a known bound; they are not in `uncertain_usd`."""
        return self.usage.unbounded_requests

    @property
    def unmeasured_bound_tokens(self) -> int:
        """The most tokens that unmeasured requests can have used beyond those reported, if that is known."""
        return self.usage.unmeasured_bound_tokens

    @property
    def committed_usd(self) -> Decimal:
        """The amount that budgets read, in US dollars: `cost_usd` and `uncertain_usd` together."""
        return self.usage.committed_usd

    @property
    def committed_tokens(self) -> int:
        """The tokens that budgets read: those used, and the bounds of unmeasured requests."""
        return self.usage.committed_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCallUsage(SumsOfUsage):
    """One run of an agent, by itself: agents that its tools call are calls of their own."""

    agent: str
    """The name of the agent."""
    records: tuple[RequestRecord, ...] = ()
    """Its requests, and what its tools have bought, in the order in which they ended."""

    @property
    def usage(self) -> Usage:
        """The sums over `records`."""
        return Usage.of(list(self.records))

    @property
    def tool_call_count(self) -> int:
        """Number of calls of function tools that the model asked for."""
        return sum(record.tool_calls for record in self.records)


_counts: Final = attrgetter(*Usage.__slots__)
"""Returns the counts of a `Usage`, in the order of its fields."""


CallOutcome = Literal[
    "success",
    "cache_hit",
    "precondition_failed",
    "postcondition_failed",
    "parse_failure",
    "convergence_failure",
    "consensus_failure",
    "budget_exceeded",
    "timed_out",
    "cancelled",
    "failed",
]
"""The outcome of a call of a typed function: an output, which may be from a cache, or an error.

`failed` is any other error, such as one that the body of a `@compute` function raises.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One call of a typed function, successful or not, with its retries, members and iterations.

    `outcome` says how it ended. `cost_usd` is in US dollars, `duration_ms` in milliseconds, and the tokens
    and requests are those of the whole call. A call that failed has `error_type` and `error` instead of an
    `output`.
    """

    function: str
    kind: Literal["infer", "compute"]
    outcome: CallOutcome
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    """The arguments by name, as JSON; opaque values are elided."""
    output: Any = None
    """The output, if the call has one; in a record that was read from a store, its JSON."""
    error_type: str = ""
    """The class of the exception that the call raised, if it raised one."""
    error: str | None = None
    """The message of that exception."""
    model: str = ""
    """The model that was asked; empty if none was."""
    prompt_hash: str = ""
    """Hash of the first compiled prompt."""
    contract_hash: str = ""
    """Hash of the contract of the output."""
    attempts: int = 1
    """How often the model was asked, retries included; for a function without a model, 1."""
    retry_reasons: tuple[str, ...] = ()
    """For each retry, the problems of the attempt before it."""
    members: tuple[Any, ...] = field(default=(), hash=False)
    """The members of a quorum, or the samples."""
    iterations: tuple[Any, ...] = field(default=(), hash=False)
    """The iterations of a refinement."""
    review_id: str = ""
    """The question to a person on which the call waited, if it did: its id in the inbox."""
    started_at: datetime
    """The time at which the call began in the process that ended it, in UTC."""
    duration_ms: float = 0.0
    """Milliseconds from `started_at` to the end of the call."""
    cost_usd: Decimal = _ZERO
    """Exact known cost of the call in US dollars. A call that failed is made again when its run is resumed,
    and has a record for each time, with what was spent since the record before. In the trace of a run, this
    is spending in all processes; among the `records` of a flow or function, in this process."""
    cost_complete: bool = True
    """Whether `cost_usd` is the whole cost."""
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    run_id: str = ""
    """The id of the run in which the call was made; outside of runs, an id of the call's own."""
    flow: str = ""
    """Name of the innermost flow around it; empty outside of flows."""
    flow_id: str = ""
    """The id of the innermost flow: the id of its run; inside of another run, with the place there."""
    parent_flow_id: str = ""
    """The id of the flow around the innermost flow, if there is one."""

    @property
    def succeeded(self) -> bool:
        """True if the call returned an output, which may be from a cache."""
        return self.outcome in ("success", "cache_hit")

    @property
    def total_tokens(self) -> int:
        """Input and output tokens of the call together, with all its attempts."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool that a model asked for."""

    tool_name: str
    args: dict[str, object] = field(default_factory=dict)
    """The arguments, parsed."""
    tool_call_id: str = ""

    def __getitem__(self, name: str) -> Any:
        """Return a field by its name, as in a mapping: `call["args"]`, `dict(call)`."""
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)

    def keys(self) -> tuple[str, ...]:
        """Return the names of the fields."""
        return ("tool_name", "args", "tool_call_id")


def dump(record: DataclassInstance) -> dict[str, Any]:
    """Return the fields of a result as JSON values: amounts as text, errors as their type and message.

    Fields that its `repr` leaves out are left out.
    """
    from pydantic_core import to_jsonable_python  # late: few programs dump results, and all import this

    shown = {one.name: getattr(record, one.name) for one in fields(record) if one.repr}
    plain: dict[str, Any] = to_jsonable_python(shown, fallback=_plain)
    return plain


def _plain(value: object) -> object:
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    model_dump = getattr(value, "model_dump", None)
    return str(value) if model_dump is None else model_dump()
