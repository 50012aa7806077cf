"""What admission wants to know of a request, of other spending, and of a run."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal, Protocol, Self, TypeAlias, TypeVar

from fastroai.runtime.ledger import Account, Amounts

if TYPE_CHECKING:
    from fastroai.usage import ModelFallback, RequestBound


AskedFor: TypeAlias = Literal["request", "spend", "run"]
"""What is admitted: a request to a model, other spending, or all that a run may cost."""

_LEAST_USD: Final = Decimal("1e-18")


class RequestTerms(Protocol):
    """What admission wants to know of a request; properties, so that nothing is computed in vain.

    The defaults are those of something that is no request, and is taken as it is or not at all.
    """

    @property
    def model(self) -> str:
        """The model that is asked."""
        ...

    @property
    def provider(self) -> str:
        """Its provider."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether it is a model for tests, which sends nothing anywhere."""
        return False

    @property
    def streamed(self) -> bool:
        """Whether the answer goes to a consumer who may leave it lying."""
        return False

    @property
    def asks_for(self) -> AskedFor:
        """What it is; budgets of requests count requests to models."""
        return "spend"

    @property
    def waits_for_others(self) -> bool:
        """Whether it waits for what others have reserved, and not only for its turn."""
        return True

    @property
    def priced(self) -> bool:
        """Whether a price is known."""
        ...

    @property
    def bound(self) -> RequestBound:
        """What it can use and cost at most."""
        ...

    @property
    def is_flexible(self) -> bool:
        """Whether it may do with a shorter answer than it asks for, so that others find something too."""
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
        """Do beforehand what takes time in `bound`."""
        return None

    async def prepare_expectation(self) -> None:
        """Prepare the expectation, if that takes time."""
        return None

    def lowered(self, *, usd: Decimal | None, tokens: int | None) -> Self | None:
        """The same request with the longest answer that so much pays for; `None` if there is none."""
        ...

    def sharing(self, *, usd: Decimal | None, tokens: int | None) -> Self:
        """The same with as long an answer as so much pays for, or more where that is of no use."""
        return self

    def shortened(self, output_tokens: int) -> Self:
        """The same with an answer of at most so many tokens, as far as its length can be limited."""
        return self

    def counted_again(self) -> Self:
        """The same with a lower bound, if answers that came meanwhile give one; else itself."""
        return self

    def stepped_down(self, fallback: ModelFallback) -> Self:
        """The same request to another model."""
        return self


TermsT = TypeVar("TermsT", bound=RequestTerms)


def usd_to_reserve(terms: RequestTerms) -> Decimal:
    """Return US dollars to reserve. Where no bound is known, and that is allowed, something must be left."""
    cost_usd = terms.bound.cost_usd
    return _LEAST_USD if cost_usd is None else cost_usd


def amounts_of(terms: RequestTerms, accounts: tuple[Account, ...]) -> Amounts:
    """What to reserve. Where that is not known, and allowed, at least something must be left."""
    requests = 1 if terms.asks_for == "request" else 0
    if all(account.budget.usd is None and account.budget.tokens is None for account in accounts):
        return Amounts(requests=requests)
    tokens = terms.bound.tokens
    bounded = Amounts(usd_to_reserve(terms), 1 if tokens is None else tokens, requests)
    if not any(account.goes_by_expectations for account in accounts):
        return bounded
    return bounded._replace(expected_usd=terms.expected_usd, expected_tokens=terms.expected_tokens)
