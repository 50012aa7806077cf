"""Model references: the provider and the model that they name."""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import Final, NamedTuple

from fastroai.errors import UnknownModelError

_OTHER_WAYS_TO_SAY_IT: Final = ("gateway/", "openai-chat:")
_PRICED_AS: Final = {"x-ai": "xai"}
"""PydanticAI's names of providers that genai-prices names otherwise."""
_MOST_CANDIDATES: Final = 5
_NEAR: Final = 0.8


class ModelReference(NamedTuple):
    """A provider, named as in PydanticAI's references, and the name of its model."""

    provider: str
    model: str

    def __str__(self) -> str:
        """Return the reference, as PydanticAI accepts it as a model."""
        return "test" if self == ("test", "test") else f"{self.provider}:{self.model}"


def model_reference(reference: str) -> ModelReference:
    """Read `provider:model`, or the bare name of a first-party model: `gpt-…`, `claude-…`, `gemini-…`.

    `test` is PydanticAI's `TestModel`.

    Raises:
        UnknownModelError: if the provider cannot be told; it names the candidates.
    """
    if reference == "test":
        return ModelReference("test", "test")
    provider, colon, model = reference.partition(":")
    if colon and provider.strip() and model.strip():
        return ModelReference(provider, model)
    if (first_party := first_party_provider(reference)) is not None:
        return ModelReference(first_party, reference)
    raise UnknownModelError(reference, _candidates(model if colon else provider))


def provider_and_name(model: str, provider: str | None) -> tuple[str | None, str]:
    """Return the provider of a model, if it is given or the name tells, and the name without it."""
    if provider is None and ":" in model:
        provider, _, model = model.partition(":")
        return provider, model
    return provider or first_party_provider(model), model


@lru_cache(maxsize=4096)
def first_party_provider(model: str) -> str | None:
    """Return the maker that itself serves a model under this bare name, if the name tells."""
    from fastroai.usage.facts.models import first_party_makers

    if ":" in model or model != model.strip():
        return None
    return next((maker for maker, names in first_party_makers().items() if names.match(model)), None)


def near_reference(provider: str, model: str) -> str | None:
    """Return the known model of a provider with nearly this name; `None` if it is known or none is near."""
    prefix = f"{provider}:"
    known = [name.removeprefix(prefix) for name in _known_references() if name.startswith(prefix)]
    near = difflib.get_close_matches(model, known, n=1, cutoff=_NEAR)
    return f"{prefix}{near[0]}" if near and model not in known else None


def _candidates(name: str) -> tuple[str, ...]:
    """Return known references to a model of this name, else of the nearest names."""
    by_name: dict[str, list[str]] = {}
    for known in _known_references():
        if not known.startswith(_OTHER_WAYS_TO_SAY_IT):
            full_name = known.partition(":")[2]
            for alias in {full_name, full_name.rpartition("/")[2]}:
                by_name.setdefault(alias, []).append(known)
    name = name.strip()
    near = (
        [name]
        if name in by_name
        else difflib.get_close_matches(name, by_name, n=_MOST_CANDIDATES, cutoff=_NEAR)
    )
    found = dict.fromkeys(reference for alias in near for reference in by_name[alias])
    return tuple(found)[:_MOST_CANDIDATES]


def _known_references() -> list[str]:
    """Return the references that PydanticAI lists, then those of models with a price, makers first.

    PydanticAI lists only the models that it recommends today.
    """
    # Slow to import, and only needed for wrong names.
    from genai_prices.data_snapshot import get_snapshot
    from pydantic_ai.models import known_model_names

    from fastroai.usage.facts.finish_reasons import PROVIDERS
    from fastroai.usage.facts.models import first_party_makers

    priced = []
    for provider in get_snapshot().providers:
        name = _PRICED_AS.get(provider.id, provider.id)
        if name in PROVIDERS:
            models = (model.id for model in provider.models)
            # genai-prices has the models of Anthropic that Google Cloud serves under `google`, too.
            own = (
                model
                for model in models
                if name not in first_party_makers() or first_party_provider(model) in (None, name)
            )
            priced += [f"{name}:{model}" for model in own]
    priced.sort(key=lambda reference: reference.partition(":")[0] not in first_party_makers())
    return list(dict.fromkeys([*(name for name in known_model_names() if ":" in name), *priced]))
