"""Whose API a model is asked through, and by which rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pydantic_ai.exceptions import UserError

from fastroai.usage.facts import GATEWAY, OTHER, PROVIDERS, Allowances, ModelFacts, model_facts

if TYPE_CHECKING:
    from pydantic_ai.models import Model


def base_url_of(model: Model) -> str | None:
    """The URL that a model sends to, if it has one."""
    try:
        return model.base_url
    except (AttributeError, UserError):  # what PydanticAI's models raise that have none
        return None


def is_first_party(provider: str, url: str | None) -> bool:
    """Whether requests go to the API of OpenAI, Azure, Anthropic or Google itself, with documented rules.

    A gateway or a local server under the same name may add text, and may serve another model.
    """
    host = urlsplit(url).hostname if url else None
    facts = PROVIDERS.get(provider)
    return (
        host is not None
        and facts is not None
        and any(host.endswith(own) if own.startswith((".", "-")) else host == own for own in facts.hosts)
    )


def allowances_of(provider: str, url: str | None) -> Allowances:
    """What a provider may add to the input at a URL."""
    if provider not in PROVIDERS:
        return OTHER
    return PROVIDERS[provider].allowances if is_first_party(provider, url) else GATEWAY


def facts_of(model: Model) -> ModelFacts | None:
    """What is documented of a model, where its maker or Azure or Google's cloud serves it."""
    if model.system not in _WITHOUT_URLS and not is_first_party(model.system, base_url_of(model)):
        return None
    return model_facts(model.system, model.model_name)


def window_of(model: Model) -> int | None:
    """The most input tokens of a request; `None` if that is not known."""
    facts = facts_of(model)
    return model.context_window if facts is None or facts.window is None else facts.window


_WITHOUT_URLS: Final = frozenset({"xai"})
"""Providers that are asked at one place only."""
