"""`RequestBound`: the most that one request can use and cost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal

from fastroai.records import EXACT
from fastroai.usage.prices.flat_prices import FlatPrices


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBound:
    """The most tokens and money that one request to a model can use, as `request_bound` returns them.

    An amount is `None` if it has no known upper limit. The fields are independent: the cost can be known
    although the tokens are not, as for a free model.
    """

    input_tokens: int | None
    output_tokens: int | None
    cost_usd: Decimal | None
    """The highest cost of the request, in US dollars."""
    prices: FlatPrices | None = None
    """The highest prices of input and output; `None` if they are not known."""
    least_output_tokens: int | None = None
    """The smallest `max_tokens` that the provider accepts here; `None` if `max_tokens` cannot be lowered."""
    most_output_tokens: int | None = None
    """The longest answer, in tokens, of the model with this name; `None` if that is not known."""
    lacks_only_searches: bool = field(default=False, compare=False)
    """Whether there is no bound only because nothing limits the provider's own web searches."""
    why: str | None = field(default=None, compare=False)
    """Why there is no bound, or why it is far above the likely cost, and how to lower it."""

    @property
    def tokens(self) -> int | None:
        """The most tokens of input and output together; `None` if one of them has no known upper limit."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens

    def lowered(self, *, usd: Decimal | None, tokens: int | None) -> RequestBound | None:
        """Return this bound with the longest answer that fits: at most `usd` US dollars, and `tokens` in all.

        `tokens` limits input and output together. An argument that is `None` sets no limit. If this bound
        fits already, it is returned itself, and no `max_tokens` needs to be sent. Otherwise, the
        `output_tokens` of the result are the `max_tokens` to send. The result is `None` if no answer fits:
        the input alone is too much, the answer would be shorter than the provider accepts, or the length of
        the answer cannot be limited.
        """
        if (usd is None or (self.cost_usd is not None and self.cost_usd <= usd)) and (
            tokens is None or (self.tokens is not None and self.tokens <= tokens)
        ):
            return self
        if self.least_output_tokens is None:
            return None
        limits = [self.output_tokens, self.most_output_tokens]
        if tokens is not None:
            limits.append(0 if self.input_tokens is None else tokens - self.input_tokens)
        if usd is not None:
            limits.append(_affordable(self.prices, self.input_tokens, usd))
        output = min((limit for limit in limits if limit is not None), default=0)
        return None if output < self.least_output_tokens else self._of_answer(output)

    def shortened(self, output_tokens: int) -> RequestBound:
        """Return this bound for an answer of at most `output_tokens`, with the cost of that.

        If the provider does not accept so low a `max_tokens`, it is the lowest that the provider accepts. The
        result is this bound itself if its answer is not longer already, or if the length of its answer cannot
        be limited.
        """
        if self.least_output_tokens is None:
            return self
        limits = [self.output_tokens, self.most_output_tokens, max(output_tokens, self.least_output_tokens)]
        output = min(limit for limit in limits if limit is not None)
        return self if output == self.output_tokens else self._of_answer(output)

    def _of_answer(self, output_tokens: int) -> RequestBound:
        cost = self.prices.cost(self.input_tokens, output_tokens) if self.prices is not None else None
        return replace(self, output_tokens=output_tokens, cost_usd=cost)


def _affordable(prices: FlatPrices | None, input_tokens: int | None, usd: Decimal) -> int | None:
    """Return the most output tokens that `usd` pays for besides the input; `None` if output is free."""
    rest = None if prices is None else prices.cost(input_tokens, 0)
    if prices is None or rest is None or rest > usd:
        return 0
    if not prices.output_per_mtok:
        return None
    left = EXACT.multiply(EXACT.subtract(usd, rest), 1_000_000)
    return int(EXACT.divide_int(left, prices.output_per_mtok))
