"""What admission needs to know of a request, of other spending, and of a run."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal, Protocol, Self, TypeAlias, TypeVar

from fastroai.runtime.ledger import Account, Amounts

if TYPE_CHECKING:
    from fastroai.usage import ModelFallback, RequestBound


AskedFor: TypeAlias = Literal["request", "spend", "run"]
"""What asks for admission: a request to a model, other spending, or a whole run."""

_LEAST_USD: Final = Decimal("1e-18")


class RequestTerms(Protocol):
    """What admission needs to know of a request.

    Members are properties, so that nothing is computed that is not asked for. The defaults suit what is not a
    request: it is taken whole or not at all.
    """

    @property
    def model(self) -> str:
        """Name of the model that the request goes to."""
        ...

    @property
    def provider(self) -> str:
        """Name of the provider of the model."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether it is a model for tests, which sends nothing anywhere."""
        return False

    @property
    def streamed(self) -> bool:
        """Whether the answer is streamed to a consumer, who may stop reading it."""
        return False

    @property
    def asks_for(self) -> AskedFor:
        """What asks for admission. Budgets of requests count `request` alone."""
        return "spend"

    @property
    def waits_for_others(self) -> bool:
        """Whether to wait until others give reserved money back. Otherwise it only waits for its turn."""
        return True

    @property
    def priced(self) -> bool:
        """Whether the price is known."""
        ...

    @property
    def bound(self) -> RequestBound:
        """The most that it can use and cost."""
        ...

    @property
    def is_flexible(self) -> bool:
        """Whether a shorter answer will do, so that other requests can be sent at the same time."""
        return False

    @property
    def expected_usd(self) -> Decimal | None:
        """US dollars that it is expected to cost; `None` if nothing but its bound is known."""
        return None

    @property
    def expected_tokens(self) -> int | None:
        """Tokens that it is expected to use; `None` if nothing but its bound is known."""
        return None

    async def prepare_bound(self) -> None:
        """Compute `bound` beforehand, if that takes time."""
        return None

    async def prepare_expectation(self) -> None:
        """Compute the expectation beforehand, if that takes time."""
        return None

    def lowered(self, *, usd: Decimal | None, tokens: int | None) -> Self | None:
        """Return the request with the longest answer that this pays for; `None` if it pays for none."""
        ...

    def sharing(self, *, usd: Decimal | None, tokens: int | None) -> Self:
        """Return the request with the longest answer that this pays for, but no uselessly short one."""
        return self

    def shortened(self, output_tokens: int) -> Self:
        """Return the request with an answer of at most so many tokens, if its length can be limited."""
        return self

    def counted_again(self) -> Self:
        """Return the request with a lower bound, if answers to other requests allow one; else itself."""
        return self

    def stepped_down(self, fallback: ModelFallback) -> Self:
        """Return the same request to another model."""
        return self


TermsT = TypeVar("TermsT", bound=RequestTerms)


def usd_to_reserve(terms: RequestTerms) -> Decimal:
    """Return the US dollars to reserve: the bound; a tiny amount if it is unknown and that is allowed."""
    cost_usd = terms.bound.cost_usd
    return _LEAST_USD if cost_usd is None else cost_usd


def amounts_of(terms: RequestTerms, accounts: tuple[Account, ...]) -> Amounts:
    """Return the amounts to reserve. If a bound is not known, and that is allowed, it is a tiny amount."""
    requests = 1 if terms.asks_for == "request" else 0
    if all(account.budget.usd is None and account.budget.tokens is None for account in accounts):
        return Amounts(requests=requests)
    tokens = terms.bound.tokens
    bounded = Amounts(usd_to_reserve(terms), 1 if tokens is None else tokens, requests)
    if not any(account.goes_by_expectations for account in accounts):
        return bounded
    return bounded._replace(expected_usd=terms.expected_usd, expected_tokens=terms.expected_tokens)
