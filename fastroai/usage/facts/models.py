"""Documented facts about models, by the provider that serves them.

A model without a line has only its context window: the tests list these models, each with the reason, so that
a new one is noticed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from fastroai.usage.facts.documented import all_facts

if TYPE_CHECKING:
    from fastroai.usage.facts.provider import MadeImages, ModelFacts

MAKERS: Final[dict[str, tuple[str, ...]]] = {
    "anthropic": ("anthropic",),
    "azure": ("openai",),
    "google": ("google",),
    "google-cloud": ("google", "anthropic"),
    "openai": ("openai",),
    "openai-chat": ("openai",),
    "xai": ("xai",),
}
"""The makers whose models a provider serves under the names that the makers give them."""


@lru_cache(maxsize=1_024)
def model_facts(provider: str, model: str) -> ModelFacts | None:
    """Return the documented facts of a model; `None` if there is no line for it.

    `provider` is PydanticAI's name of the provider that serves the model.
    """
    if model.startswith("ft:"):  # ft:gpt-4.1-mini-2025-04-14:acme::id
        model = model.split(":")[1]
    for maker in MAKERS.get(provider, ()):
        models = all_facts()[maker].models
        if models is not None and (found := models.find(model)) is not None:
            return found
    return None


@cache
def first_party_makers() -> Mapping[str, re.Pattern[str]]:
    """Return patterns of the beginnings of the names of models that makers serve themselves, by maker."""
    known = ((maker, facts.models) for maker, facts in all_facts().items() if facts.models is not None)
    return {maker: models.first_party for maker, models in known if models.first_party is not None}


def made_images(model: str) -> MadeImages | None:
    """Return the documented facts about the images that a model of OpenAI makes; `None` if there are none."""
    return next((line for line in all_facts()["openai"].made_images if line.names.fullmatch(model)), None)
