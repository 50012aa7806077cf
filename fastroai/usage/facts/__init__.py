"""What providers document: one table, each line with its source and the day on which it was read.

Nothing here is a guess: what no page says is `None`, and what is asked of such a line has no bound.

- `models`: limits, images and documents of models; `images`: the rules that it names.
- `made_images`: the images that models make.
- `providers`: hosts, tokens around messages, service tiers, searches.
- `regions`: prices of regions.
- `settings`: what settings of a request can add to the bill.
"""

from fastroai.usage.facts.images import ImageRule, Size
from fastroai.usage.facts.models import MODELS, PROVIDERS_OF_MANY, ModelFacts, model_facts
from fastroai.usage.facts.providers import (
    ANTHROPIC,
    GATEWAY,
    OPENAI,
    OTHER,
    PROVIDERS,
    SEARCHES_UNASKED,
    SERVICE_TIERS,
    STANDARD_TIERS,
    THINKS_BESIDES,
    Allowances,
    ProviderFacts,
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
)
from fastroai.usage.facts.source import Source

__all__ = [
    "ANTHROPIC",
    "GATEWAY",
    "HARMLESS_IN_BODY",
    "HARMLESS_SETTINGS",
    "MODELS",
    "OPENAI",
    "OTHER",
    "PROVIDERS",
    "PROVIDERS_OF_MANY",
    "REGIONAL_PRICES",
    "SEARCHES_UNASKED",
    "SERVER_SIDE_INPUT_SETTINGS",
    "SERVICE_TIERS",
    "STANDARD_TIERS",
    "THINKS_BESIDES",
    "Allowances",
    "ImageRule",
    "ModelFacts",
    "ProviderFacts",
    "Size",
    "Source",
    "asked_geography",
    "model_facts",
    "most_regional_factor",
    "regional_factor",
]
