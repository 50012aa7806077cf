"""Keys that are probably misspelt: they nearly match a known name.

Providers and hosts can have any name, so a near miss is a warning and never an error.
"""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from typing import Final

from fastroai.errors import FastroAIWarning
from fastroai.usage.facts.finish_reasons import LOCAL_PROVIDERS, PROVIDERS

_NEAR: Final = 0.8


class NearMissWarning(FastroAIWarning):
    """Warning that a key of `pricing_overrides`, `endpoints` or `provider_limits` is probably misspelt.

    The key resembles a known name, or the URL of a request, without being the same, so the prices, endpoint
    or limits under it probably never apply. Nothing else is changed. If the key is right, ignore the warning.
    """


@lru_cache(maxsize=1_024)
def misspelt_provider(name: str) -> str | None:
    """Return the provider that a name probably misspells, such as `openai` for `opnai`.

    `None` for the providers of PydanticAI and genai-prices, for names that are made of theirs (`openai-eu`,
    `azure2`), for beginnings of models' names (`mixtral`, as in Ollama's `mixtral:8x7b`), and for names that
    resemble none of these.
    """
    known, lower = _known_providers(), name.lower()
    if name in known or "/" in name:
        return None
    if lower in known:  # names match with their case
        return lower
    made_of_known = any(re.search(rf"(?<![a-z]){re.escape(each)}(?![a-z])", lower) for each in known)
    near = difflib.get_close_matches(lower, known, n=1, cutoff=_NEAR)
    return None if made_of_known or not near or _family(lower) in _families() else near[0]


def _known_providers() -> frozenset[str]:
    from genai_prices.data_snapshot import get_snapshot

    priced = {provider.id for provider in get_snapshot().providers}
    return LOCAL_PROVIDERS.union(PROVIDERS, priced)


def _families() -> set[str]:
    """Return the beginnings of the names of listed models: `gpt`, `mixtral`, ..."""
    from genai_prices.data_snapshot import get_snapshot

    models = (model.id for provider in get_snapshot().providers for model in provider.models)
    return {_family(model.rpartition("/")[2].lower()) for model in models}


def _family(model: str) -> str:
    return re.split(r"[-.:@\d]", model, maxsplit=1)[0]
