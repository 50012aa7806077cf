"""What the table of models says. `tests/versions` compares it with the models that have a price or a name."""

import re

import pytest
from genai_prices.data_snapshot import get_snapshot
from pydantic_ai.models import known_model_names

from fastroai.usage.facts.documented import all_facts
from fastroai.usage.facts.models import model_facts

MODELS = {maker: facts.models for maker, facts in all_facts().items() if facts.models is not None}


def test_no_model_has_two_lines() -> None:
    names = {model.id for provider in get_snapshot().providers for model in provider.models}
    names |= {reference.partition(":")[2] for reference in known_model_names()}
    for name in names:
        for models in MODELS.values():
            patterns = [f"(?:{line.names.pattern}){models.snapshot.pattern}" for line in models.lines]
            lines = [pattern for pattern in patterns if re.fullmatch(pattern, name)]
            assert len(lines) <= 1, (name, lines)


def test_a_line_says_something_or_why_it_does_not() -> None:
    for line in (line for models in MODELS.values() for line in models.lines):
        says = any(fact is not None for fact in (line.window, line.output_tokens, line.images, line.pdf))
        assert says != bool(line.unknown), line.names.pattern


@pytest.mark.parametrize(
    ("provider", "model", "window", "output"),
    [
        ("openai", "gpt-4o-mini-2024-07-18", None, 16_384),
        ("openai", "gpt-4.1-nano", 1_047_576, 32_768),
        ("openai", "gpt-5-pro-2025-10-06", None, 272_000),
        ("azure", "gpt-5.4", None, 128_000),
        ("google", "gemini-2.5-pro", 1_048_576, 65_536),
        ("google", "gemini-2.5-flash-preview-09-2025", 1_048_576, 65_536),
        ("google", "gemini-2.0-flash-001", 1_048_576, 8_192),
        ("google", "gemini-3-pro-preview", 1_048_576, 65_536),
        ("google-cloud", "gemini-3.5-flash", 1_048_576, 65_536),
    ],
)
def test_a_snapshot_has_the_limits_of_its_model(
    provider: str, model: str, window: int | None, output: int
) -> None:
    facts = model_facts(provider, model)
    assert facts is not None
    assert (facts.window, facts.output_tokens) == (window, output)
