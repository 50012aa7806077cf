"""The facts that admission needs about a request, other spending, or a run."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal, Protocol, Self, TypeAlias, TypeVar

from fastroai.runtime.budgets.ledger import Account, Amounts

if TYPE_CHECKING:
    from fastroai.usage import ModelFallback, RequestBound
    from fastroai.usage.bounding.input_parts import InputPart


AskedFor: TypeAlias = Literal["request", "spend", "run"]
"""The kind of thing that asks for admission: a request to a model, other spending, or a whole run."""

_LEAST_USD: Final = Decimal("1e-18")


class RequestTerms(Protocol):
    """The facts that admission needs about a request.

    Members are properties, so that each is computed only if somebody reads it. The defaults suit other
    spending and runs, which are admitted whole or not at all.
    """

    @property
    def model(self) -> str:
        """Name of the model to which the request goes."""
        ...

    @property
    def provider(self) -> str:
        """Name of the provider of the model."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether the model is one for tests, which sends nothing over a network."""
        return False

    @property
    def streamed(self) -> bool:
        """Whether the answer is streamed to a consumer, who may stop reading it."""
        return False

    @property
    def asks_for(self) -> AskedFor:
        """The kind of thing that asks for admission. A budget of requests counts only `request`."""
        return "spend"

    @property
    def waits_for_others(self) -> bool:
        """Whether the request waits until others give reserved money back, not only until its turn comes."""
        return True

    @property
    def priced(self) -> bool:
        """Whether the price of the model is known."""
        ...

    @property
    def bound(self) -> RequestBound:
        """The most that the request can use and cost."""
        ...

    @property
    def is_flexible(self) -> bool:
        """Whether a shorter answer will do, so that other requests can be sent at the same time."""
        return False

    @property
    def is_asked_again(self) -> bool:
        """Whether a longer answer is asked for, if one that was given a lower `max_tokens` is cut there."""
        return False

    @property
    def enough(self) -> int | None:
        """Tokens of an answer that are likely to be enough; `None` if that is not known."""
        return None

    @property
    def expected_usd(self) -> Decimal | None:
        """US dollars that the request is expected to cost; `None` if only its bound is known."""
        return None

    @property
    def expected_tokens(self) -> int | None:
        """Tokens that the request is expected to use; `None` if only its bound is known."""
        return None

    async def prepare_bound(self) -> None:
        """Compute `bound` beforehand, if that takes time."""
        return None

    async def counted_by_provider(self) -> Self:
        """Return the request with a lower bound, if its provider counts its input; else unchanged."""
        return self

    @property
    def input_parts(self) -> Sequence[InputPart]:
        """What the input consists of, largest first; nothing if that is not known."""
        return ()

    def lowered(self, *, usd: Decimal | None, tokens: int | None) -> Self | None:
        """Return the request with the longest answer that these amounts pay for; `None` if for none."""
        ...

    def sharing(self, *, usd: Decimal | None, tokens: int | None) -> Self:
        """Return the request with the longest answer that these amounts pay for, but no useless one."""
        return self

    def shortened(self, output_tokens: int) -> Self:
        """Return the request with an answer of at most so many tokens, if its length can be limited."""
        return self

    def counted_again(self) -> Self:
        """Return the request with a lower bound, if answers to other requests allow one; else unchanged."""
        return self

    def stepped_down(self, fallback: ModelFallback) -> Self:
        """Return the same request to another model."""
        return self


TermsT = TypeVar("TermsT", bound=RequestTerms)


def usd_to_reserve(terms: RequestTerms) -> Decimal:
    """Return the US dollars to reserve: the bound, or a tiny amount if the bound is unknown."""
    cost_usd = terms.bound.cost_usd
    return _LEAST_USD if cost_usd is None else cost_usd


def amounts_of(terms: RequestTerms, accounts: tuple[Account, ...]) -> Amounts:
    """Return the amounts to reserve: the bounds, with a tiny amount in place of each unknown bound."""
    requests = 1 if terms.asks_for == "request" else 0
    if all(account.budget.usd is None and account.budget.tokens is None for account in accounts):
        return Amounts(requests=requests)
    tokens = terms.bound.tokens
    bounded = Amounts(usd_to_reserve(terms), 1 if tokens is None else tokens, requests)
    if not any(account.goes_by_expectations for account in accounts):
        return bounded
    return bounded._replace(expected_usd=terms.expected_usd, expected_tokens=terms.expected_tokens)
