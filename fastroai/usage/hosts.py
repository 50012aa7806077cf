"""What is known of whoever serves a model, and whose rules hold there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pydantic_ai.exceptions import UserError

from fastroai.usage.facts.allowances import GATEWAY, OTHER, Allowances
from fastroai.usage.facts.models import MAKERS, ModelFacts, model_facts
from fastroai.usage.facts.providers import PROVIDERS, ProviderFacts
from fastroai.usage.references import first_party_provider

if TYPE_CHECKING:
    from pydantic_ai.models import Model

_WITHOUT_URLS: Final = frozenset({"xai"})
"""Providers that are asked at one place only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What is known of whoever serves a model at a URL."""

    provider: str
    """The provider as PydanticAI names it: the maker of the API that is spoken, whoever answers."""
    url: str | None
    model: str
    """The model, as its maker names it."""
    maker: str | None = None
    """The provider whose documented rules hold for the model there; `None` if none do."""
    context_window: int | None = None
    """The most input tokens that PydanticAI knows of."""
    service_tier: str | None = None
    """The service tier of requests that name none; `None` if it can be any."""
    allowance: int | None = None
    """The most tokens that it adds to each request, besides the rules of `maker`; `None` if not known."""

    @classmethod
    def of(
        cls,
        model: Model,
        *,
        like: str | None = None,
        service_tier: str | None = None,
        allowance: int | None = None,
    ) -> Host:
        """Return what is known of the host of a model, with what its owner says of it; see `Endpoint`."""
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

    @property
    def rules(self) -> ProviderFacts | None:
        """What is documented of the API, where documented rules hold."""
        return None if self.maker is None else PROVIDERS.get(self.maker)

    @property
    def allowances(self) -> Allowances:
        """The tokens that may be added to the input."""
        rules = self.rules
        if rules is not None:
            known, request = rules.allowances, rules.allowances.request + (self.allowance or 0)
        else:
            known = GATEWAY if self.provider in PROVIDERS else OTHER
            request = known.request if self.allowance is None else self.allowance
        return known if request == known.request else replace(known, request=request)

    @property
    def facts(self) -> ModelFacts | None:
        """What is documented of the model, where documented rules hold."""
        return None if self.maker is None else model_facts(self.maker, self.model)

    @property
    def window(self) -> int | None:
        """The most input tokens of a request; `None` if that is not known."""
        facts = self.facts
        return self.context_window if facts is None or facts.window is None else facts.window

    @property
    def encoded_model(self) -> str | None:
        """The model, if the encodings of OpenAI's models count its tokens."""
        return self.model if MAKERS.get(self.maker or "") == ("openai",) else None

    @property
    def longest_answer_by_name(self) -> int | None:
        """The most output tokens of the model that has this name at its maker, whoever serves it here."""
        name = self.model.rpartition("/")[2]
        maker = first_party_provider(name)
        facts = None if maker is None else model_facts(maker, name)
        return None if facts is None else facts.output_tokens


def base_url_of(model: Model) -> str | None:
    """Return the URL that a model sends to, if it has one."""
    try:
        return model.base_url
    except (AttributeError, UserError):  # what PydanticAI's models raise that have none
        return None


def is_first_party(provider: str, url: str | None) -> bool:
    """Return whether requests go to the API of OpenAI, Azure, Anthropic or Google itself.

    A gateway or a local server under the same name may add text, and may serve another model.
    """
    host = urlsplit(url).hostname if url else None
    facts = PROVIDERS.get(provider)
    return (
        host is not None
        and facts is not None
        and any(host.endswith(own) if own.startswith((".", "-")) else host == own for own in facts.hosts)
    )


def _can_be_made_by(provider: str | None, model: str) -> bool:
    """Whether a provider can serve a model by its own rules, as far as the name of the model tells."""
    if provider is None:
        return False
    named = first_party_provider(model)
    return named in (None, provider, *MAKERS.get(provider, ())) or model_facts(provider, model) is not None
