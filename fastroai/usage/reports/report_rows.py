"""The rows of a usage report: exact sums of requests, by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Final, Protocol, get_args

from fastroai.records import EXACT, RequestRecord, RequestUse, Tokens, Usage, exact_sum

NO_STEP: Final = "(no step)"
NO_AGENT: Final = "(no agent)"
NO_VARIANT: Final = "(no variant)"
NO_TENANT: Final = "(no tenant)"
RELEASED: Final = "released"
OUTCOMES: Final = (*get_args(RequestUse), RELEASED)

_SHARE_EXPONENT: Final = -12


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """The usage and the cost of some requests of a run: one row of a `UsageReport`.

    The counts and amounts are those of `Usage`. `cost_usd` is the known cost, and `uncertain_usd` the most
    that requests without a known price or usage can have cost beyond it. `share` is the part of the cost of
    the whole report, from 0 to 1; it is `None` if that is zero.
    """

    name: str
    """Name of the step, agent, model (`provider:model`), tool, variant, tenant, tag or outcome; `total` for
    all of them."""
    request_count: int
    """Requests that were sent and not refused: settled and unmeasured ones."""
    failed_requests: int
    """Requests that ended unbilled: refused by the provider, or never sent. They cost nothing."""
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    """Input tokens read from the provider's cache; included in `input_tokens`."""
    cache_write_tokens: int
    """Input tokens written to the provider's cache; included in `input_tokens`."""
    cost_usd: Decimal
    """Exact sum of the known costs, in US dollars."""
    unpriced_requests: int
    """Requests with units whose price is not known."""
    unpriced_units: tuple[str, ...]
    """Names of used or bought units without a known price, each once."""
    unmeasured_requests: int
    """Requests that were sent, and whose usage never came or contradicts itself."""
    uncertain_usd: Decimal
    """US dollars that unpriced and unmeasured requests can have cost at most, beyond `cost_usd`."""
    unbounded_requests: int
    """Unpriced and unmeasured requests for which no bound is known; they are not in `uncertain_usd`."""
    committed_usd: Decimal
    """`cost_usd` and `uncertain_usd` together: the amount that budgets read."""
    share: float | None
    """`cost_usd` as a part of the report's total, from 0 to 1, for display; `None` if that total is zero."""

    @property
    def cost_complete(self) -> bool:
        """Whether `cost_usd` is the whole cost: no request is unpriced or unmeasured."""
        return not (self.unpriced_requests or self.unmeasured_requests)

    @classmethod
    def of(cls, name: str, usage: Usage, total: Usage) -> UsageRow:
        """Return the row with this name for a sum of requests, `usage`.

        Its `share` is the part of `total.cost_usd` that `usage.cost_usd` is, from 0 to 1; `None` if the total
        cost is zero.
        """
        share = float(Fraction(usage.cost_usd) / Fraction(total.cost_usd)) if total.cost_usd else None
        sums = {sum_of: getattr(usage, sum_of) for sum_of in cls.__slots__ if sum_of not in ("name", "share")}
        return cls(name=name, share=share, **sums)


class Rows(Protocol):
    """All rows of a report, in the form that the writers of reports need."""

    @property
    def total(self) -> UsageRow:
        """The row of totals."""
        ...

    @property
    def groups(self) -> Mapping[str, Mapping[str, UsageRow]]:
        """All other rows, by the name of their group."""
        ...

    @property
    def stated_over_priced_usd(self) -> Decimal:
        """US dollars that providers bill beyond the prices known here."""
        ...


def ranked(total: Usage, requests: Iterable[tuple[str, RequestRecord]]) -> dict[str, UsageRow]:
    """Return a row for each name: the most expensive first, equal ones in order of their first requests."""
    usages: dict[str, Usage] = {}
    for name, record in requests:
        usages.setdefault(name, Usage()).add(record)
    by_cost = sorted(usages.items(), key=lambda item: item[1].committed_usd, reverse=True)
    return {name: UsageRow.of(name, usage, total) for name, usage in by_cost}


def outcomes(total: Usage, records: Iterable[RequestRecord]) -> dict[str, UsageRow]:
    """Return a row for each outcome, in their fixed order, also for outcomes that did not occur."""
    usages = {name: Usage() for name in OUTCOMES}
    for record in records:
        usages[RELEASED if record.outcome == "released" else record.use].add(record)
    return {name: UsageRow.of(name, usage, total) for name, usage in usages.items()}


def stated_over_priced(records: Iterable[RequestRecord]) -> Decimal:
    """Return how much stated bills exceed the prices known here for the same requests, in US dollars."""
    return exact_sum(
        EXACT.subtract(record.stated_usd, record.priced_usd)
        for record in records
        if record.stated_usd is not None and record.priced_usd is not None
    )


def model_of(record: RequestRecord) -> str:
    """Return `provider:model`, or `model` alone for a record of `record_usage` without a provider."""
    return f"{record.provider}:{record.model}" if record.provider else record.model


def by_returned_tool(record: RequestRecord) -> Iterator[tuple[str, RequestRecord]]:
    """Yield a request's shares of the tools whose returns it brought, as `UsageReport.by_tool` describes."""
    tools = tuple(dict.fromkeys(record.tools))
    if len(tools) < 2:
        yield from ((tool, record) for tool in tools)
        return
    number = len(tools)
    counts = {name: _divided(count, number) for name, count in asdict(record.tokens).items()}
    amounts = (record.cost_usd, record.bound_usd, record.stated_usd, record.priced_usd)
    digit = min((_last_digit(amount) for amount in amounts if amount is not None), default=_SHARE_EXPONENT)
    costs, bounds, stated, priced = (_divided_usd(amount, number, digit) for amount in amounts)
    for index, tool in enumerate(tools):
        yield (
            tool,
            replace(
                record,
                tokens=Tokens(**{name: parts[index] for name, parts in counts.items()}),
                cost_usd=costs[index],
                bound_usd=bounds[index],
                stated_usd=stated[index],
                priced_usd=priced[index],
            ),
        )


def _divided(units: int, number: int) -> list[int]:
    share, left = divmod(units, number)
    return [share + (index < left) for index in range(number)]


def _last_digit(amount: Decimal) -> int:
    exponent = amount.as_tuple().exponent
    assert isinstance(exponent, int), "costs are finite"
    return min(exponent, _SHARE_EXPONENT)


def _divided_usd(amount: Decimal | None, number: int, digit: int) -> list[Decimal | None]:
    """Divide in units of one digit, which all amounts of a record share: so parts compare as wholes do."""
    if amount is None:
        return [None] * number
    units = int(amount.scaleb(-digit, EXACT))
    return [Decimal(part).scaleb(digit, EXACT) for part in _divided(units, number)]
