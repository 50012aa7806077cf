"""What providers document: one table, each line with its source and the day on which it was read.

Nothing here is a guess: a value that no page documents is `None`, and requests that depend on it have no
bound.

- `models`: limits, images and documents of models; `images`: the rules that it names.
- `documents`: the rules for PDFs that it names.
- `made_images`: the images that models make.
- `providers`: hosts, tokens around messages, service tiers, searches.
- `regions`: prices of regions.
- `finish_reasons`: why answers end, and whether their usage is complete.
- `settings`: what settings of a request can add to the bill.
"""

from fastroai.usage.facts.documents import PdfRule, PdfSize
from fastroai.usage.facts.finish_reasons import (
    FINISH_REASONS,
    LOCAL_PROVIDERS,
    WITHOUT_FINISH_REASONS,
    FinishReasons,
    has_ended,
)
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
    TIERS_BY_PROVIDER,
    Allowances,
    NamedModels,
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
    Settings,
)
from fastroai.usage.facts.source import Source

__all__ = [
    "ANTHROPIC",
    "FINISH_REASONS",
    "GATEWAY",
    "HARMLESS_IN_BODY",
    "HARMLESS_SETTINGS",
    "LOCAL_PROVIDERS",
    "MODELS",
    "OPENAI",
    "OTHER",
    "PROVIDERS",
    "PROVIDERS_OF_MANY",
    "REGIONAL_PRICES",
    "SEARCHES_UNASKED",
    "SERVER_SIDE_INPUT_SETTINGS",
    "SERVICE_TIERS",
    "SETTINGS",
    "STANDARD_TIERS",
    "THINKS_BESIDES",
    "TIERS_BY_PROVIDER",
    "WITHOUT_FINISH_REASONS",
    "Allowances",
    "FinishReasons",
    "ImageRule",
    "ModelFacts",
    "NamedModels",
    "PdfRule",
    "PdfSize",
    "ProviderFacts",
    "ServiceTiers",
    "Settings",
    "Size",
    "Source",
    "asked_geography",
    "has_ended",
    "model_facts",
    "most_regional_factor",
    "regional_factor",
]
