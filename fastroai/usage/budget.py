"""Budgets: limits on the spending of a scope."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from fastroai.errors import ConfigurationError
from fastroai.other_names import by_name, other_names
from fastroai.records import EXACT, MICROCENTS_PER_DOLLAR, microcents_to_usd, usd_to_microcents
from fastroai.usage.money import Amount, exact_dollars, whole_number
from fastroai.usage.prices.references import model_reference

if TYPE_CHECKING:
    from pydantic_ai.models import Model

OnUncertain = Literal["refuse", "allow"]
"""A budget's policy for requests of unknown price or unbounded use: refuse them, or allow them."""

Admission = Literal["bound", "expected"]
"""The amount that a budget reserves for a request: the most that it can use, or its expected use."""

OnWarning = Callable[[Any], object]
"""A function, async or not, that gets a `fastroai.pipelines.BudgetWarning` for each share reached."""

DEFAULT_WARNING: Final = 0.8
"""The share of a budget or a spend limit at which a warning is given by default."""

_MS: Final = timedelta(milliseconds=1)
_POSITIVE: Final = "a positive amount of US dollars, at least $0.000001"


@dataclass(frozen=True, slots=True)
class ModelFallback:
    """A switch to a cheaper model for new requests, when a share of a budget is spent.

        Budget(usd=1, fallback=ModelFallback(at=0.8, use="openai:gpt-5-nano"))

    The share is that of the limit that is nearest to its end: money, tokens or requests; time does not count.
    The response says which model answered, and is priced as such. Requests in a batch keep their model.

    Raises:
        ConfigurationError: `at` is not above 0 and at most 1, or `use` is not a model.
    """

    at: float
    """The share of the budget, above 0 and at most 1, from which on new requests use the other model. A
    request that the rest of the budget cannot pay for uses it earlier."""
    use: Model | str = field(hash=False)  # PydanticAI's models have no hash
    """The model: `provider:model`, or a PydanticAI `Model`."""

    def __post_init__(self) -> None:
        if isinstance(self.at, bool) or not isinstance(self.at, int | float) or not 0 < self.at <= 1:
            raise ConfigurationError("at", self.at, "a share of the budget, above 0 and at most 1")
        if isinstance(self.use, str):
            model_reference(self.use)
        elif not hasattr(self.use, "request_stream"):
            raise ConfigurationError("use", self.use, "a model: 'provider:model', or a PydanticAI Model")


@by_name()
@other_names(
    arguments={
        "max_tokens_total": "tokens=",
        "max_cost_usd": "usd=",
        "cost_usd": "usd=",
        "max_latency_ms": "ms=",
        "latency_ms": "ms=",
        "seconds": "ms=, which takes a timedelta, too",
        "timeout": "ms=, which takes a timedelta, too",
    }
)
@dataclass(frozen=True, slots=True, init=False)
class Budget:
    """Limits on the spending of a run, a step or an agent call, with all that runs inside of it.

        Budget(usd="0.50")
        Budget(microcents=500_000)  # the same: $1 is 1,000,000 microcents
        Budget(usd="0.50", requests=20, ms=60_000)

    Give at least one limit; a limit that is `None` does not apply. Work that still runs after `ms` is
    cancelled, with `TimeBudgetExceeded`. Before each request, the most that it can use is reserved here and
    in every budget around this one, so that requests never exceed the limit, however many run at once. If too
    little is left, the request waits for those in flight, or is sent with a lower `max_tokens`. If that does
    not help, it is not sent, and `BudgetExceeded` is raised. Requests that `on_unpriced` or `on_unbounded`
    allows can exceed the limit, and so can spending that `ctx.record_usage` records. With
    `admission="expected"`, the expected use of the request is reserved instead: more requests run at once,
    and the limit can be exceeded by the amount that the requests in flight together use beyond their
    expectations.

    By default, a budget of money refuses requests of unknown price, a budget of money or tokens refuses
    requests whose use nothing bounds, and a `BudgetWarning` is given when 80 % is spent (`warn_at=None` gives
    none).

    Raises:
        ConfigurationError: no limit is given, both `usd` and `microcents` are given, or a value is invalid.
    """

    usd: Decimal | None
    """The limit in US dollars."""
    tokens: int | None
    """The limit of input and output tokens together."""
    requests: int | None
    """The limit of provider requests. Each attempt counts, except one that is refused without a bill."""
    ms: int | None
    """The limit of wall time, in milliseconds; it can be given as a `timedelta`. Work that still runs then is
    cancelled. Time in which the run waits for people is not counted."""
    on_unpriced: OnUncertain
    """Policy for a model without a known price: `refuse` its requests, or `allow` them uncounted."""
    on_unbounded: OnUncertain
    """Policy for a request whose use nothing bounds: `refuse` it, or `allow` it unreserved."""
    fallback: ModelFallback | None
    """The cheaper model to use when the budget runs low."""
    admission: Admission
    """The amount to reserve for a request: its `bound`, which holds, or its `expected` use."""
    max_tokens_per_request: int | None
    """The longest answer that any request may ask for, in tokens, as if the agent had set it as
    `max_tokens`; it changes nothing where the provider accepts no such limit."""
    warn_at: tuple[float, ...]
    """The shares of the budget, above 0 and at most 1, at which a `BudgetWarning` is given, once each."""
    on_warning: OnWarning | None
    """A function to call with each `BudgetWarning`; it may be async. Its errors are only logged."""

    def __init__(
        self,
        *,
        usd: Amount | None = None,
        microcents: int | None = None,
        tokens: int | None = None,
        requests: int | None = None,
        ms: int | timedelta | None = None,
        on_unpriced: OnUncertain = "refuse",
        on_unbounded: OnUncertain = "refuse",
        fallback: ModelFallback | None = None,
        admission: Admission = "bound",
        max_tokens_per_request: int | None = None,
        warn_at: float | Iterable[float] | None = DEFAULT_WARNING,
        on_warning: OnWarning | None = None,
    ) -> None:
        """Give at least one limit, and at most one of `usd` and `microcents`.

        Raises:
            ConfigurationError: if no limit is given, or both forms of money; for amounts that are not
                positive and finite, and for floats that are rounding errors, such as `0.1 + 0.2`.
        """
        if usd is not None and microcents is not None:
            given = {"usd": usd, "microcents": microcents}
            raise ConfigurationError("Budget", given, "only one of usd= and microcents=")
        limits = (usd, microcents, tokens, requests, ms, max_tokens_per_request)
        if all(limit is None for limit in limits):
            expected = "a limit: usd= or microcents=, tokens=, requests=, ms=, max_tokens_per_request="
            raise ConfigurationError("Budget", ..., expected)
        if fallback is not None and not isinstance(fallback, ModelFallback):
            raise ConfigurationError("fallback", fallback, "a ModelFallback(at=..., use=...)")
        if admission not in get_args(Admission):
            raise ConfigurationError("admission", admission, "'bound' or 'expected'")
        object.__setattr__(self, "usd", exact_limit(usd, microcents))
        for option, count, unit in (
            ("tokens", tokens, "tokens"),
            ("requests", requests, "requests"),
            ("ms", ms // _MS if isinstance(ms, timedelta) else ms, "milliseconds"),
            ("max_tokens_per_request", max_tokens_per_request, "tokens"),
        ):
            object.__setattr__(self, option, None if count is None else _count(option, count, unit))
        object.__setattr__(self, "on_unpriced", known_policy("on_unpriced", on_unpriced))
        object.__setattr__(self, "on_unbounded", known_policy("on_unbounded", on_unbounded))
        object.__setattr__(self, "fallback", fallback)
        object.__setattr__(self, "admission", admission)
        object.__setattr__(self, "warn_at", warning_shares(warn_at))
        object.__setattr__(self, "on_warning", warning_handler(on_warning))

    @property
    def microcents(self) -> int | None:
        """The limit of money in microcents ($1 is 1,000,000), rounded once, half to even.

        `None` if the budget does not limit money.
        """
        return None if self.usd is None else usd_to_microcents(self.usd)


def exact_limit(usd: Amount | None, microcents: int | None) -> Decimal | None:
    """Return a limit in US dollars, whether it was given in dollars or in microcents.

    Raises:
        ConfigurationError: for an amount below one microcent or not finite, and for floats that are rounding
            errors.
    """
    if microcents is not None:
        return microcents_to_usd(_count("microcents", microcents, "microcents", " ($1 is 1,000,000)"))
    if usd is None:
        return None
    exact = exact_dollars("usd", usd, _POSITIVE)
    if EXACT.multiply(exact, MICROCENTS_PER_DOLLAR) < 1:
        raise ConfigurationError("usd", usd, _POSITIVE)
    return exact


def warning_shares(warn_at: object) -> tuple[float, ...]:
    """Return the shares to warn of, lowest first. Raises `ConfigurationError` for an invalid share."""
    given = () if warn_at is None else warn_at if isinstance(warn_at, Iterable) else (warn_at,)
    shares: set[float] = set()
    for share in given:
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            expected = "a share of the limit, above 0 and at most 1, or several of them, or None"
            raise ConfigurationError("warn_at", share, expected)
        shares.add(share)
    return tuple(sorted(shares))


def warning_handler(handler: object) -> object:
    """Return a handler of warnings. Raises `ConfigurationError` if it cannot be called."""
    if handler is not None and not callable(handler):
        raise ConfigurationError("on_warning", handler, "a function of one argument, a BudgetWarning")
    return handler


def known_policy(option: str, policy: object) -> object:
    """Return a policy. Raises `ConfigurationError` if it is neither `refuse` nor `allow`."""
    if policy not in get_args(OnUncertain):
        raise ConfigurationError(option, policy, "'refuse' or 'allow'")
    return policy


def _count(option: str, value: object, unit: str, note: str = "") -> int:
    expected = f"a whole number of {unit}, at least 1{note}"
    if (count := whole_number(option, value, expected)) < 1:
        raise ConfigurationError(option, value, expected)
    return count
