import pytest

from fastroai.usage.images import image_tokens

OPENAI = "https://api.openai.com/v1/"
ANTHROPIC = "https://api.anthropic.com"


@pytest.mark.parametrize(
    ("model", "low", "high", "auto", "original"),
    [
        ("gpt-4o", 85, 1_445, 1_445, 1_445),
        ("gpt-4o-mini-2024-07-18", 2_833, 48_169, 48_169, 48_169),
        ("gpt-4.1", 85, 1_445, 1_445, 1_445),
        ("gpt-4.1-2025-04-14", 85, 1_445, 1_445, 1_445),
        ("gpt-5", 70, 1_190, 1_190, 1_190),
        ("gpt-5-2025-08-07", 70, 1_190, 1_190, 1_190),
        ("gpt-5-chat-latest", 70, 1_190, 1_190, 1_190),
        ("o1", 75, 1_275, 1_275, 1_275),
        ("o3", 75, 1_275, 1_275, 1_275),
        ("gpt-4.1-mini", 2_489, 2_489, 2_489, None),
        ("gpt-4.1-nano-2025-04-14", 3_779, 3_779, 3_779, None),
        ("gpt-5-mini", 2_489, 2_489, 2_489, None),
        ("gpt-5-nano", 3_779, 3_779, 3_779, None),
        ("o4-mini", 2_642, 2_642, 2_642, None),
        ("gpt-5.4", 6_150, 6_150, 6_150, 24_600),
        ("gpt-5.4-mini", 4_050, 4_050, 4_050, 16_200),
        ("gpt-5.5", 6_150, 6_150, 24_600, 24_600),
        ("gpt-5.6-sol", 6_150, 6_150, None, None),
        ("gpt-6-astra", 6_150, 6_150, 73_800, 73_800),
        ("gpt-5.1", None, None, None, None),
        ("gpt-5-codex", None, None, None, None),
        ("gpt-of-tomorrow", None, None, None, None),
    ],
)
def test_images_of_openai_are_bounded_by_model_and_detail(
    model: str, low: int | None, high: int | None, auto: int | None, original: int | None
) -> None:
    by_detail = {"low": low, "high": high, "auto": auto, "original": original}
    found = {detail: image_tokens("openai", OPENAI, model, detail) for detail in by_detail}
    assert found == by_detail


@pytest.mark.parametrize(
    ("model", "most"),
    [
        ("claude-sonnet-4-5", 1_600),
        ("claude-haiku-4-5", 1_600),
        ("claude-opus-4-6", 1_600),
        ("claude-opus-4-7", 4_800),
        ("claude-sonnet-5", 4_800),
        ("claude-of-tomorrow", 4_800),
    ],
)
def test_images_of_anthropic_are_scaled_down(model: str, most: int) -> None:
    assert image_tokens("anthropic", ANTHROPIC, model, "auto") == most


@pytest.mark.parametrize(
    ("provider", "url"),
    [("openai", "http://localhost:8000/v1"), ("google", "https://generativelanguage.googleapis.com/")],
)
def test_elsewhere_nothing_is_documented(provider: str, url: str) -> None:
    assert image_tokens(provider, url, "gpt-4o", "high") is None


def test_azure_serves_the_models_of_openai() -> None:
    assert image_tokens("azure", "https://acme.openai.azure.com/openai/v1/", "gpt-4o", "low") == 85
