"""Whose API a model is asked through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pydantic_ai.exceptions import UserError

if TYPE_CHECKING:
    from pydantic_ai.models import Model

_OWN_HOSTS: Final = {
    "anthropic": ("api.anthropic.com",),
    "azure": (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com"),
    "google": ("generativelanguage.googleapis.com",),
    "google-cloud": ("aiplatform.googleapis.com", "-aiplatform.googleapis.com"),
    "openai": ("api.openai.com", ".api.openai.com"),  # with regions: eu.api.openai.com
}


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
    return host is not None and any(
        host.endswith(own) if own.startswith((".", "-")) else host == own
        for own in _OWN_HOSTS.get(provider, ())
    )
