"""What providers document: one table, each line with its source and the day on which it was read.

Nothing here is a guess: a value that no page documents is `None`, and requests that depend on it have no
bound.

- `models`: limits, images and documents of models, and who makes them; `images`: the rules that it names.
- `made_images`: the images that models make.
- `providers`: hosts, service tiers, searches, caches.
- `allowances`: tokens around texts, and hidden prompts; `outputs`: what limits answers.
- `billing`: what is billed besides tokens, and where a bill is stated.
- `regions`: prices of regions.
- `finish_reasons`: why answers end, and whether their usage is complete.
- `settings`: what settings of a request can add to the bill.
"""

from fastroai.usage.facts.allowances import ANTHROPIC, GATEWAY, OPENAI, OTHER, Allowances
from fastroai.usage.facts.finish_reasons import (
    FINISH_REASONS,
    LOCAL_PROVIDERS,
    WITHOUT_FINISH_REASONS,
    FinishReasons,
    has_ended,
)
from fastroai.usage.facts.images import ImageRule, Size
from fastroai.usage.facts.models import MODELS, ModelFacts, model_facts
from fastroai.usage.facts.providers import (
    LISTED_TIERS,
    PROVIDERS,
    SERVICE_TIERS,
    STANDARD_TIERS,
    TIERS_BY_PROVIDER,
    ProviderFacts,
    ServiceTiers,
)
from fastroai.usage.facts.regions import (
    REGIONAL_PRICES,
    asked_geography,
    most_regional_factor,
    regional_factor,
)
from fastroai.usage.facts.settings import (
    HARMLESS_IN_BODY,
    HARMLESS_SETTINGS,
    SERVER_SIDE_INPUT_SETTINGS,
    SETTINGS,
)
from fastroai.usage.facts.source import Source

__all__ = [
    "ANTHROPIC",
    "FINISH_REASONS",
    "GATEWAY",
    "HARMLESS_IN_BODY",
    "HARMLESS_SETTINGS",
    "LISTED_TIERS",
    "LOCAL_PROVIDERS",
    "MODELS",
    "OPENAI",
    "OTHER",
    "PROVIDERS",
    "REGIONAL_PRICES",
    "SERVER_SIDE_INPUT_SETTINGS",
    "SERVICE_TIERS",
    "SETTINGS",
    "STANDARD_TIERS",
    "TIERS_BY_PROVIDER",
    "WITHOUT_FINISH_REASONS",
    "Allowances",
    "FinishReasons",
    "ImageRule",
    "ModelFacts",
    "ProviderFacts",
    "ServiceTiers",
    "Size",
    "Source",
    "asked_geography",
    "has_ended",
    "model_facts",
    "most_regional_factor",
    "regional_factor",
]
