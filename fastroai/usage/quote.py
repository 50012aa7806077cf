"""Estimates of a cost before it arises: the least, the expected and the most, with reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from fastroai.errors import ConfigurationError
from fastroai.records import EXACT, exact_sum
from fastroai.usage.money import Amount, exact_decimal, exact_dollars, format_cost, whole_number

if TYPE_CHECKING:
    from fastroai.usage.budget import Budget

Reasons = tuple[str, ...]

_ZERO: Final = Decimal(0)
_USD: Final = "a finite number of US dollars, 0 or more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """The estimated cost of a call, a step or a pipeline, in US dollars, made before it runs.

        quote = await agent.estimate("What is the capital of France?")
        print(quote)  # all three amounts, and the reasons for each

    It has three amounts, each with its reasons as texts: `lower_usd`, the lowest cost if the work succeeds;
    `expected_usd`, the likely cost; and `upper_usd`, the highest cost, which is `None` if it has no limit.

    Quotes add up exactly: `a + b`, `sum(quotes)`, `quote * 3`. A sum has no upper limit if one of its parts
    has none. A quote does not change: its methods return new ones.

    Raises:
        ConfigurationError: for amounts that are negative, not finite, or not in ascending order.
    """

    name: str = ""
    """The name of the call, step or pipeline."""
    lower_usd: Decimal
    """The lowest cost if it succeeds."""
    expected_usd: Decimal
    """The likely cost. Unknown costs count as nothing here; `expected_reasons` say so."""
    upper_usd: Decimal | None
    """The highest cost, whatever happens; `None` where nothing bounds it."""
    lower_reasons: Reasons = ()
    expected_reasons: Reasons = ()
    upper_reasons: Reasons = ()
    parts: Mapping[str, Quote] = field(default_factory=dict, hash=False)
    """The quotes of a pipeline's steps, by id."""

    def __post_init__(self) -> None:
        amounts = []
        for name in ("lower_usd", "expected_usd", "upper_usd"):
            if name == "upper_usd" and self.upper_usd is None:
                break
            amounts.append(exact_decimal("Quote", getattr(self, name), _USD))
            object.__setattr__(self, name, amounts[-1])
        if amounts != sorted(amounts):
            raise ConfigurationError("Quote", amounts, "lower_usd <= expected_usd <= upper_usd")

    @classmethod
    def exactly(cls, usd: Amount, because: str, *, name: str = "") -> Quote:
        """Return a quote for a known cost, such as the price of one call of a paid API.

        All three of its amounts are `usd`, in US dollars, and `because` is the reason for each of them.

        Raises:
            ConfigurationError: for an amount that is negative, not finite, or a rounding error of floats.
        """
        amount = exact_dollars("usd", usd, _USD)
        return cls(
            name=name,
            lower_usd=amount,
            expected_usd=amount,
            upper_usd=amount,
            lower_reasons=(because,),
            expected_reasons=(because,),
            upper_reasons=(because,),
        )

    @classmethod
    def unknown(cls, because: str, *, name: str = "") -> Quote:
        """Return a quote for an unknown cost: the lowest and the expected cost are $0, with no upper limit.

        `because` is the reason why there is no upper limit.
        """
        return cls(
            name=name,
            lower_usd=_ZERO,
            expected_usd=_ZERO,
            upper_usd=None,
            lower_reasons=("nothing is known about its cost",),
            expected_reasons=("counted as $0.00, because nothing is known about its cost",),
            upper_reasons=(because,),
        )

    @classmethod
    def total(cls, name: str, parts: Mapping[str, Quote]) -> Quote:
        """Return the sum of the quotes of steps that all run. `parts` has them by step id.

        Each of its amounts is the sum of that of the parts. If a part has no upper limit, the sum has none,
        and `upper_reasons` has the reasons of these parts. The result keeps the quotes as its `parts`.
        """
        unbounded = [part for part in parts if parts[part].upper_usd is None]
        summed = ("the sum of its steps",)
        return cls(
            name=name,
            lower_usd=exact_sum(part.lower_usd for part in parts.values()),
            expected_usd=exact_sum(part.expected_usd for part in parts.values()),
            upper_usd=None if unbounded else exact_sum(part.upper_usd or _ZERO for part in parts.values()),
            lower_reasons=summed,
            expected_reasons=summed,
            upper_reasons=tuple(
                f"step {part!r}: {reason}" for part in unbounded for reason in parts[part].upper_reasons
            )
            or summed,
            parts=dict(parts),
        )

    # --- arithmetic ---

    def __add__(self, other: Quote) -> Quote:
        """Return the quote for both together."""
        if not isinstance(other, Quote):
            return NotImplemented
        bounded = self.upper_usd is not None and other.upper_usd is not None
        return Quote(
            name=" + ".join(filter(None, (self.name, other.name))),
            lower_usd=EXACT.add(self.lower_usd, other.lower_usd),
            expected_usd=EXACT.add(self.expected_usd, other.expected_usd),
            upper_usd=EXACT.add(self.upper_usd or _ZERO, other.upper_usd or _ZERO) if bounded else None,
            lower_reasons=self._own(self.lower_reasons) + other._own(other.lower_reasons),
            expected_reasons=self._own(self.expected_reasons) + other._own(other.expected_reasons),
            upper_reasons=self._own(self.upper_reasons) + other._own(other.upper_reasons),
        )

    def __radd__(self, other: object) -> Quote:
        """Return this quote when `sum` adds it to the 0 that it begins with."""
        return self if other == 0 else NotImplemented

    def __mul__(self, count: int) -> Quote:
        """Return the quote for `count` repetitions."""
        times = whole_number("count", count)
        return replace(
            self,
            lower_usd=EXACT.multiply(self.lower_usd, times),
            expected_usd=EXACT.multiply(self.expected_usd, times),
            upper_usd=None if self.upper_usd is None else EXACT.multiply(self.upper_usd, times),
            lower_reasons=_times(times, self.lower_reasons),
            expected_reasons=_times(times, self.expected_reasons),
            upper_reasons=_times(times, self.upper_reasons),
        )

    __rmul__ = __mul__

    def retried(self, retries: int) -> Quote:
        """Return the quote with up to `retries` extra attempts, each of which may be billed.

        Only the highest cost grows, to `1 + retries` times as much: the lowest and the expected cost are
        still those of one attempt. A quote without an upper limit stays as it is.

        Raises:
            ConfigurationError: `retries` is negative or not a whole number.
        """
        if not whole_number("retries", retries) or self.upper_usd is None:
            return self
        reasons = (f"{1 + retries} attempts, because retries={retries}, each of", *self.upper_reasons)
        return replace(self, upper_usd=EXACT.multiply(self.upper_usd, 1 + retries), upper_reasons=reasons)

    def within(self, *budgets: Budget | None) -> Quote:
        """Return the quote with its amounts lowered to the limits of budgets, which stop the work there.

        Each amount above the limit of a budget, in US dollars (`Budget.usd`), becomes that limit. A quote
        without an upper limit gets that limit as its upper limit. A budget without `usd` changes nothing, and
        neither does `None`. There are two exceptions:

        - A budget with `admission="expected"` can be exceeded. It lowers only the lowest and the expected
          cost.
        - A budget whose `on_unpriced` or `on_unbounded` is `"allow"` lets requests pass whose cost has no
          known limit. It lowers nothing in a quote without an upper limit.
        """
        quote = self
        for budget in budgets:
            quote = quote._within(budget)
        return quote

    def _within(self, budget: Budget | None) -> Quote:
        limit = None if budget is None else budget.usd
        if budget is None or limit is None or (self.upper_usd is not None and self.upper_usd <= limit):
            return self
        if self.upper_usd is None and "allow" in (budget.on_unpriced, budget.on_unbounded):
            reason = "its budget does not limit it: 'allow' lets requests with unknown costs pass"
            return replace(self, upper_reasons=(*self.upper_reasons, reason))
        stop = f"its budget stops it at {format_cost(limit)}"
        quote = replace(
            self,
            lower_usd=min(self.lower_usd, limit),
            expected_usd=min(self.expected_usd, limit),
            lower_reasons=self.lower_reasons if self.lower_usd <= limit else (stop, *self.lower_reasons),
            expected_reasons=self.expected_reasons
            if self.expected_usd <= limit
            else (stop, *self.expected_reasons),
        )
        if budget.admission == "expected":
            reason = "its budget does not limit it: with 'expected', requests in flight can exceed the budget"
            return replace(quote, upper_reasons=(*self.upper_reasons, reason))
        without = (f"without it: {reason}" for reason in self.upper_reasons)
        return replace(quote, upper_usd=limit, upper_reasons=(stop, *without))

    def optional(self, because: str) -> Quote:
        """Return the quote for work that may not run at all: its lowest cost is zero, because of `because`.

        The expected and the highest cost stay as they are.
        """
        return replace(self, lower_usd=_ZERO, lower_reasons=(because,))

    def unbounded(self, because: str) -> Quote:
        """Return the quote without an upper limit, for work whose additional costs have none.

        `upper_usd` is then `None`, with `because` as the first reason. The lowest and the expected cost stay
        as they are.
        """
        reasons = (because,) if self.upper_usd is not None else (because, *self.upper_reasons)
        return replace(self, upper_usd=None, upper_reasons=reasons)

    def expecting(self, usd: Decimal, *because: str) -> Quote:
        """Return the quote with `usd`, in US dollars, as its expected cost, and the reasons in `because`.

        The reasons for the earlier expected cost are dropped. If `usd` is below the lowest cost, the lowest
        cost is used instead; if it is above the highest cost, the highest. These two stay as they are.

        Raises:
            ConfigurationError: for an amount that is negative or not finite.
        """
        usd = exact_decimal("usd", usd, _USD)
        usd = max(self.lower_usd, usd if self.upper_usd is None else min(usd, self.upper_usd))
        return replace(self, expected_usd=usd, expected_reasons=because)

    def _own(self, reasons: Reasons) -> Reasons:
        return tuple(f"{self.name}: {reason}" for reason in reasons) if self.name else reasons

    # --- for people ---

    def __str__(self) -> str:
        """Return the whole quote as text, parts included, one reason a line."""
        return "\n".join(self._lines(""))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from fastroai.drawing.pages import MOST_ROWS, escaped, page, table  # late: only notebooks show pages

        rows = [(f"<b>{escaped(self.name or 'quote')}</b>", *self._amounts)]
        rows += [(escaped(part.name), *part._amounts) for part in [*self.parts.values()][:MOST_ROWS]]
        because = "<br>".join(escaped(line) for line in str(self).splitlines()[: MOST_ROWS * 4])
        body = table(("", "at least", "expected", "at most"), rows)
        return page(
            f"{body}<details><summary><span>Because</span></summary><small>{because}</small></details>",
            str(self),
        )

    @property
    def _amounts(self) -> tuple[str, str, str]:
        upper = "no known limit" if self.upper_usd is None else format_cost(self.upper_usd)
        return format_cost(self.lower_usd), format_cost(self.expected_usd), upper

    def _lines(self, indent: str) -> Iterator[str]:
        lower, expected, upper = self._amounts
        yield f"{indent}{self.name or 'quote'}: {lower} to {upper}, expected {expected}"
        for title, reasons in (
            ("at least", self.lower_reasons),
            ("expected", self.expected_reasons),
            ("at most", self.upper_reasons),
        ):
            for number, reason in enumerate(reasons):
                yield f"{indent}  {f'{title}:' if not number else '':<9} {reason}"
        for part in self.parts.values():
            yield from part._lines(indent + "  ")


def _times(count: int, reasons: Reasons) -> Reasons:
    return (f"{count} times:", *reasons) if reasons else ()
