"""Gateways, proxies and servers of the user, as their owner describes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from fastroai.callers import warn_caller
from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.usage.facts.billing import BILLING_HEADERS
from fastroai.usage.facts.documented import providers, service_tiers
from fastroai.usage.facts.models import MAKERS
from fastroai.usage.facts.regions import RegionalFactor, regional_factor
from fastroai.usage.money import Amount, exact_decimal, whole_number
from fastroai.usage.near_misses import NearMissWarning
from fastroai.usage.prices.hosts import Host, base_url_of, is_first_party
from fastroai.usage.prices.model_pricing import PricingOverride
from fastroai.usage.prices.overrides import PricingOverrides
from fastroai.usage.prices.references import first_party_provider

if TYPE_CHECKING:
    from pydantic_ai.models import Model

_PORTS: Final = {"http": 80, "https": 443}
COST_HEADERS: Final = tuple(bill.name for bill in BILLING_HEADERS)
"""Response headers in which gateways state the cost of a request, in US dollars."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A gateway, a proxy or your own server, for `CostCalculator(endpoints={url: Endpoint(…)})`.

        gateway = Endpoint(like="openai", service_tier="default")
        calculator = CostCalculator(endpoints={"http://litellm.internal": gateway})

    It holds for requests whose URL begins with the key. FastroAI knows only the hosts of the makers of
    models. At any other host, the bound of a request (the most that it can cost) allows for tokens that the
    host may add, unless you give `like` or `allowance`. It takes the highest price that the model has in any
    service tier, unless you give `service_tier`. All fields are optional.

    Raises:
        ConfigurationError: a field has an invalid value. The error names the field.
    """

    like: str | None = None
    """The provider whose documented rules hold there: how it counts tokens, images and prompts of its own,
    how long answers can be, and what it does by default. They apply to the models of that provider. A model
    of another maker (`claude-…` at an endpoint like OpenAI's) has the list price of its maker, and bounds as
    at an unknown host. `None`: no provider's rules apply. At a provider's own host, its rules always apply.
    """
    service_tier: str | None = None
    """The service tier of requests that name none, such as `"default"`. `None` or `"auto"`: it can be any.

    It is a name that a provider gives to a tier, or one of the `service_tiers` in `prices`.
    """
    allowance: int | None = None
    """The most tokens that the endpoint adds to each request. `None`: none where the rules of `like` hold,
    else as many as at an unknown host.
    """
    prices: Mapping[str, PricingOverride] = field(default_factory=dict)
    """Prices at the endpoint, in the form of `CostCalculator(pricing_overrides=…)`; they win over those."""
    regional_factor: Amount | None = None
    """The price of tokens at the endpoint, as a multiple of list prices. `None`: as the host documents it."""
    cost_headers: Sequence[str] = COST_HEADERS
    """Response headers in which the endpoint states a request's cost in US dollars; `()` to read none."""

    def __post_init__(self) -> None:
        if self.like is not None and self.like not in providers():
            names = ", ".join(map(repr, providers()))
            expected = f"None or one of {names}.{nearest_hint(str(self.like), providers())}"
            raise ConfigurationError("like", self.like, expected)
        if self.allowance is not None:
            whole_number("allowance", self.allowance, "None or a whole number of tokens, 0 or more")
        if self.regional_factor is not None:
            _factor(self.regional_factor)
        if not _are_names(self.cost_headers):
            expected = "names of response headers, such as ('x-litellm-response-cost',)"
            raise ConfigurationError("cost_headers", self.cost_headers, expected)
        own_tiers = PricingOverrides(self.prices, option="prices").service_tiers
        object.__setattr__(self, "service_tier", _service_tier(self.service_tier, own_tiers))


class _Address(NamedTuple):
    scheme: str
    host: str
    port: int | None
    path: tuple[str, ...]

    @classmethod
    def of(cls, url: str) -> _Address:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
        path = tuple(segment for segment in parts.path.split("/") if segment)
        return cls(parts.scheme, parts.hostname or "", port, path)

    def is_within(self, other: _Address) -> bool:
        return self[:3] == other[:3] and self.path[: len(other.path)] == other.path

    def nearly_within(self, other: _Address) -> str | None:
        """Return the part that differs if this address is probably meant to be within the other; else `None`.

        Two different ports that are both named are two servers, and so are two diverging paths.
        """
        if self.host != other.host:
            return None
        if self.scheme != other.scheme:
            return "scheme"
        if self.port != other.port:
            return "port" if _PORTS.get(self.scheme) in (self.port, other.port) else None
        return "path" if other.is_within(self) and self != other else None


class _Described(NamedTuple):
    url: str
    address: _Address
    endpoint: Endpoint
    prices: PricingOverrides


class Endpoints:
    """The endpoints that a user has described, by URL: scheme, host, port, and the longest path that fits.

    Raises:
        ConfigurationError: naming the URL.
    """

    def __init__(self, given: Mapping[str, Endpoint]) -> None:
        if not isinstance(given, Mapping):
            raise ConfigurationError("endpoints", given, "a mapping from URLs to their Endpoint")
        described = [_described(url, endpoint) for url, endpoint in given.items()]
        self._described = sorted(described, key=lambda each: -len(each.address.path))
        if len({each.address for each in described}) < len(described):
            raise ConfigurationError("endpoints", list(given), "each URL once")
        self._missed: set[_Address] = set()

    def at(self, url: str | None) -> Endpoint | None:
        """Return the endpoint at a URL, if it was described."""
        found = self._at(url)
        return None if found is None else found.endpoint

    def prices(self, url: str | None) -> PricingOverrides | None:
        """Return the prices that were given for the endpoint at a URL."""
        found = self._at(url)
        return None if found is None else found.prices

    def host(self, model: Model) -> Host:
        """Return the `Host` that serves a model. Warns if its URL nearly matches an endpoint."""
        url = base_url_of(model)
        endpoint = self.at(url)
        if endpoint is None:
            self.warn_of_near_miss(url)
            return Host.of(model)
        return Host.of(
            model,
            like=endpoint.like,
            service_tier=endpoint.service_tier,
            allowance=endpoint.allowance,
        )

    def listings(
        self, model: str, provider: str | None, url: str | None
    ) -> Iterator[tuple[str, str | None, str | None]]:
        """Yield where a model's list price may be: at its provider, at the provider it is like, at its maker.

        Charges and bounds look in the same places, so that no charge is above its bound.
        """
        yield model, provider, url
        endpoint = self.at(url)
        if endpoint is None or endpoint.like is None:
            return
        reseller, _, name = model.rpartition("/")
        yield name, endpoint.like, None
        maker = first_party_provider(name)
        # Third parties sell `vertex_ai/claude-…`, and Claude at Azure, at other prices than the maker.
        sells_only_its_own = MAKERS.get(endpoint.like) == (endpoint.like,)
        if maker is not None and reseller in ("", maker) and sells_only_its_own:
            yield name, maker, None

    def region(self, url: str | None, provider: str, model: str, inference_geo: str | None) -> RegionalFactor:
        """Return the prices of a model's tokens at a URL, as a multiple of list prices.

        `inference_geo` is the region that the request asks Anthropic for.
        """
        endpoint = self.at(url)
        if endpoint is not None and endpoint.regional_factor is not None:
            given = _factor(endpoint.regional_factor)
            return RegionalFactor(given, given)
        return regional_factor(provider, url, model, inference_geo)

    def cost_headers(self, url: str | None) -> Sequence[str]:
        """Return the response headers that state the cost of a request at a URL.

        A maker bills by its price list, so no header of its own is taken for a bill.
        """
        if url is None or _is_of_a_maker(url):
            return ()
        endpoint = self.at(url)
        return COST_HEADERS if endpoint is None else endpoint.cost_headers

    def _at(self, url: str | None) -> _Described | None:
        if not self._described or url is None:
            return None
        address = _address(url)
        return next((each for each in self._described if address.is_within(each.address)), None)

    def warn_of_near_miss(self, url: str | None) -> None:
        """Warn, once for each URL of requests, that it nearly matches an endpoint."""
        if not self._described or url is None or self._at(url) is not None:
            return
        address = _address(url)
        for each in () if address in self._missed else self._described:
            differs = address.nearly_within(each.address)
            if differs is not None:
                self._missed.add(address)
                warn_caller(
                    f"endpoints[{each.url!r}] is not for {url!r}, where requests go: the {differs} differs. "
                    "The key is the base URL of the model's client, or a part of it.",
                    NearMissWarning,
                )
                return


NO_ENDPOINTS: Final = Endpoints({})
"""The endpoints of a calculator that was given none."""


_address: Final = lru_cache(maxsize=256)(_Address.of)


@lru_cache(maxsize=256)
def _is_of_a_maker(url: str) -> bool:
    return any(is_first_party(provider, url) for provider in providers())


def _are_names(given: object) -> bool:
    return (
        isinstance(given, Sequence | AbstractSet)
        and not isinstance(given, str)
        and all(isinstance(name, str) and name for name in given)
    )


def _service_tier(given: object, own: AbstractSet[str]) -> str | None:
    """Return the tier that was given; `None` for `auto`, which leaves the choice to the provider."""
    if given is None or given == "auto":
        return None
    known = sorted({*own}.union(*(one.standard | one.dearer for one in service_tiers())))
    if not isinstance(given, str) or given not in known:
        expected = f"None or one of {', '.join(map(repr, known))}.{nearest_hint(str(given), known)}"
        raise ConfigurationError("service_tier", given, expected)
    return given


def _factor(given: Amount) -> Decimal:
    expected = "None or a number above 0, such as '1.1'"
    factor = exact_decimal("regional_factor", given, expected)
    if not factor:
        raise ConfigurationError("regional_factor", given, expected)
    return factor


def _described(url: object, endpoint: object) -> _Described:
    if not isinstance(url, str) or not _is_base_url(url):
        expected = "URLs as keys, such as 'http://litellm.internal' or 'https://gateway.example/v1'"
        raise ConfigurationError("endpoints", url, expected)
    where = f"endpoints[{url!r}]"
    if not isinstance(endpoint, Endpoint):
        raise ConfigurationError(where, endpoint, "an Endpoint, such as Endpoint(like='openai')")
    prices = PricingOverrides(endpoint.prices, option=f"{where}.prices")
    prices.warn_of_misspelt(endpoint.prices)
    return _Described(url, _Address.of(url), endpoint, prices)


def _is_base_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # brackets that do not close, a port that is no number
        return False
    # Keys are compared literally, so a wildcard or a space would silently match nothing.
    is_plain = not (parts.query or parts.fragment or parts.username or re.search(r"[*\s]", url))
    return parts.scheme in _PORTS and bool(parts.hostname) and port != 0 and is_plain
