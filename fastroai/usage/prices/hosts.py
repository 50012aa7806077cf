"""Hosts that serve models, and the provider whose documented rules hold there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pydantic_ai.exceptions import UserError

from fastroai.usage.facts.allowances import GATEWAY, OTHER, Allowances
from fastroai.usage.facts.documented import all_facts, providers
from fastroai.usage.facts.models import MAKERS, model_facts
from fastroai.usage.prices.references import first_party_provider
from fastroai.usage.prices.tested_version import untested_version

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from fastroai.usage.facts.provider import CountEndpoint, ModelFacts, ProviderFacts

_WITHOUT_URLS: Final = frozenset({"xai"})
"""Providers with a single API, which is recognized without a URL."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """The known facts about the host that serves a model at a URL."""

    provider: str
    """PydanticAI's name of the provider: the maker of the API, even if another host answers."""
    url: str | None
    model: str
    """The model's name at its maker; the name in the request if `maker` is `None`."""
    maker: str | None = None
    """The provider whose documented rules hold for the model there; `None` if none do."""
    context_window: int | None = None
    """The most input tokens of the model, as PydanticAI knows them."""
    service_tier: str | None = None
    """The service tier of requests that name none; `None` if it can be any."""
    allowance: int | None = None
    """The most tokens that the host adds to each request, besides `maker`'s rules; `None` if not known."""

    @classmethod
    def of(
        cls,
        model: Model,
        *,
        like: str | None = None,
        service_tier: str | None = None,
        allowance: int | None = None,
    ) -> Host:
        """Return the host of a model, with the facts that the host's owner states; see `Endpoint`."""
        provider, url = model.system, base_url_of(model)
        name = model.model_name.rpartition("/")[2]  # gateways call it `openai/gpt-4o`
        owner = provider if is_first_party(provider, url) or provider in _WITHOUT_URLS else like
        maker = owner if _can_be_made_by(owner, name) else None
        return cls(
            provider=provider,
            url=url,
            model=name if maker else model.model_name,
            maker=maker,
            context_window=model.context_window,
            service_tier=service_tier,
            allowance=allowance,
        )

    @cached_property
    def rules(self) -> ProviderFacts | None:
        """The documented facts of the API; `None` where no documented rules hold."""
        return None if self.maker is None else providers().get(self.maker)

    @property
    def allowances(self) -> Allowances:
        """The tokens that the provider or the host may add to the input."""
        rules = self.rules
        if rules is not None:
            known, request = rules.allowances, rules.allowances.request + (self.allowance or 0)
        else:
            known = self._known_by_name
            request = known.request if self.allowance is None else self.allowance
        if untested_version() is not None:  # it may add texts, as an unknown host may
            known, request = replace(OTHER, tells_reasoning=known.tells_reasoning), request + OTHER.request
        return known if request == known.request else replace(known, request=request)

    @property
    def _known_by_name(self) -> Allowances:
        """The allowances where no documented rules hold."""
        maker = first_party_provider(self.model.rpartition("/")[2])
        if maker == "openai":
            return _openai_at_gateway()
        return GATEWAY if maker is not None or self.provider in providers() else OTHER

    @cached_property
    def facts(self) -> ModelFacts | None:
        """The documented facts of the model; `None` where no documented rules hold."""
        return None if self.maker is None else model_facts(self.maker, self.model)

    @property
    def window(self) -> int | None:
        """The most input tokens of a request; `None` if that is not known."""
        facts = self.facts
        return self.context_window if facts is None or facts.window is None else facts.window

    @property
    def encoded_model(self) -> str | None:
        """The model's name, if the encodings of OpenAI's models count its tokens; else `None`."""
        return self.model if MAKERS.get(self.maker or "") == ("openai",) else None

    @property
    def count_endpoint(self) -> CountEndpoint | None:
        """The endpoint that counts the input of requests for free; `None` if the host has none."""
        facts = all_facts().get("bedrock" if self.provider == "bedrock" else self.maker or "")
        endpoint = None if facts is None else facts.count_endpoint
        if endpoint is not None and endpoint.hosts is not None:
            hostname = urlsplit(self.url).hostname if self.url else None
            return endpoint if endpoint.hosts.fullmatch(hostname or "") else None
        return endpoint

    @property
    def longest_answer_by_name(self) -> int | None:
        """The most output tokens that the maker documents for a model of this name, on any host."""
        name = self.model.rpartition("/")[2]
        maker = first_party_provider(name)
        facts = None if maker is None else model_facts(maker, name)
        return None if facts is None else facts.output_tokens


@cache
def _openai_at_gateway() -> Allowances:
    # What is added for tools comes from the model, and so is the same at any host.
    openai = all_facts()["openai"].allowances
    return replace(GATEWAY, tools=openai.tools, sources=openai.sources)


def base_url_of(model: Model) -> str | None:
    """Return the URL that a model sends to, if it has one."""
    try:
        return model.base_url
    except (AttributeError, UserError):  # PydanticAI's models without a URL raise these
        return None


def is_first_party(provider: str, url: str | None) -> bool:
    """Return whether requests go to the API of OpenAI, Azure, Anthropic or Google itself.

    A gateway or a local server under the same name may add text, and may serve another model.
    """
    host = urlsplit(url).hostname if url else None
    facts = providers().get(provider)
    return (
        host is not None
        and facts is not None
        and any(host.endswith(own) if own.startswith((".", "-")) else host == own for own in facts.hosts)
    )


def _can_be_made_by(provider: str | None, model: str) -> bool:
    """Return whether a provider can serve a model by its own rules, as far as the model's name tells."""
    if provider is None:
        return False
    named = first_party_provider(model)
    return named in (None, provider, *MAKERS.get(provider, ())) or model_facts(provider, model) is not None
