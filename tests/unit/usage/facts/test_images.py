"""The rules for images beside what providers bill by them, written down here once more from their pages."""

import math
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.examples import examples

from fastroai.usage.facts.images import ImageRule, Size
from fastroai.usage.facts.models import model_facts

sides = st.one_of(st.integers(1, 3_000), st.integers(1, 60_000))


def rule(provider: str, model: str) -> ImageRule:
    facts = model_facts(provider, model)
    assert facts is not None
    assert facts.images is not None
    return facts.images


# --- what providers bill ---


def openai_patches(width: int, height: int, *, budget: int, longest: int, factor: float) -> int:
    """https://developers.openai.com/api/docs/guides/images-vision#patch-based-image-tokenization"""
    shrink = min(1.0, longest / max(width, height))
    width, height = max(1, int(width * shrink)), max(1, int(height * shrink))
    if math.ceil(width / 32) * math.ceil(height / 32) > budget:
        shrink = math.sqrt(32 * 32 * budget / (width * height))
        wide, high = width * shrink / 32, height * shrink / 32
        shrink *= min(math.floor(wide) / wide or 1, math.floor(high) / high or 1)
        width, height = max(1, int(width * shrink)), max(1, int(height * shrink))
    patches = min(budget, math.ceil(width / 32) * math.ceil(height / 32))
    return math.ceil(round(patches * factor, 6))


def openai_tiles(width: int, height: int, *, base: int, tile: int, enlarges: bool) -> int:
    """https://developers.openai.com/api/docs/guides/images-vision#tile-based-image-tokenization"""
    if max(width, height) > 2_048:
        shrink = 2_048 / max(width, height)
        width, height = max(1, round(width * shrink)), max(1, round(height * shrink))
    scale = 768 / min(width, height)
    if scale < 1 or enlarges:
        width, height = min(2_048, round(width * scale)), min(2_048, round(height * scale))
    return base + tile * math.ceil(width / 512) * math.ceil(height / 512)


def claude_tokens(width: int, height: int, *, longest: int, most: int) -> int:
    """https://platform.claude.com/docs/en/build-with-claude/vision-coordinates"""

    def tokens(long_side: int) -> int:
        short = max(1, round(min(width, height) * long_side / max(width, height)))
        if math.ceil(long_side / 28) * 28 > longest or math.ceil(short / 28) * 28 > longest:
            return most + 1
        return math.ceil(long_side / 28) * math.ceil(short / 28)

    long_side = max(width, height)
    while tokens(long_side) > most:
        long_side -= max(1, long_side // 400)
    return tokens(long_side)


def gemini_tokens(width: int, height: int) -> int:
    """https://ai.google.dev/gemini-api/docs/image-understanding#token-calculation"""
    if width <= 384 and height <= 384:
        return 258
    crop = min(768, max(256, math.floor(min(width, height) / 1.5)))
    return 258 * math.ceil(width / crop) * math.ceil(height / crop)


BILLED: dict[str, tuple[str, str, str, Callable[[int, int], int]]] = {
    "gpt-5-mini, July": (
        "openai", "gpt-5-mini", "high",
        lambda w, h: openai_patches(w, h, budget=1_536, longest=2_048, factor=1.62),
    ),
    "gpt-5-mini, October": (
        "openai", "gpt-5-mini", "auto",
        lambda w, h: openai_patches(w, h, budget=6_144, longest=2_048, factor=1.2),
    ),
    "gpt-4.1-nano": (
        "openai", "gpt-4.1-nano-2025-04-14", "low",
        lambda w, h: openai_patches(w, h, budget=6_144, longest=2_048, factor=2.46),
    ),
    "gpt-5.2": (
        "openai", "gpt-5.2", "auto",
        lambda w, h: openai_patches(w, h, budget=6_144, longest=2_048, factor=1.2),
    ),
    "gpt-5.4": (
        "openai", "gpt-5.4", "auto",
        lambda w, h: openai_patches(w, h, budget=2_500, longest=2_048, factor=1.2),
    ),
    "gpt-5.5": (
        "openai", "gpt-5.5", "auto",
        lambda w, h: openai_patches(w, h, budget=10_000, longest=6_000, factor=1.2),
    ),
    "gpt-5.6-sol": (
        "openai", "gpt-5.6-sol", "original",
        lambda w, h: openai_patches(w, h, budget=30_000, longest=65_535, factor=1.2),
    ),
    "gpt-4o": (
        "openai", "gpt-4o", "auto", lambda w, h: openai_tiles(w, h, base=85, tile=170, enlarges=False),
    ),
    "gpt-4o, enlarged": (
        "azure", "gpt-4o", "high", lambda w, h: openai_tiles(w, h, base=85, tile=170, enlarges=True),
    ),
    "claude-haiku-4-5": (
        "anthropic", "claude-haiku-4-5", "auto",
        lambda w, h: claude_tokens(w, h, longest=1_568, most=1_568),
    ),
    "claude-opus-4-8": (
        "anthropic", "claude-opus-4-8", "auto",
        lambda w, h: claude_tokens(w, h, longest=2_576, most=4_784),
    ),
    "gemini-2.5-flash": ("google", "gemini-2.5-flash", "auto", gemini_tokens),
    "gemini-3.5-flash": ("google-cloud", "gemini-3.5-flash", "auto", lambda w, h: 1_120),
}  # fmt: skip


@pytest.mark.parametrize("name", BILLED)
@given(width=sides, height=sides)
@example(width=1_800, height=2_400)
@example(width=1_024, height=768)
@example(width=2_049, height=1_537)
@example(width=1, height=60_000)
@settings(max_examples=examples(25))
def test_no_image_is_billed_beyond_its_bound(name: str, width: int, height: int) -> None:
    provider, model, detail, billed = BILLED[name]
    images = rule(provider, model)
    most = images.most_tokens(Size(width, height), detail)
    of_any_size = images.most_tokens(None, detail)
    assert most is not None
    assert billed(width, height) <= most
    assert of_any_size is None or most <= of_any_size


MEASURED = [
    # https://huggingface.co/datasets/JOHNISKING/image-token-cost, without the 65 to 77 tokens of the prompt
    ("openai", "gpt-6-astra", "auto", 4_032, 3_024, 14_364),
    ("openai", "gpt-6-astra", "high", 4_032, 3_024, 2_942),
    ("openai", "gpt-5.5", "auto", 4_032, 3_024, 11_868),
    ("openai", "gpt-5.5", "auto", 1_280, 720, 1_104),
    ("anthropic", "claude-opus-5-5", "auto", 4_032, 3_024, 3_928),
    ("anthropic", "claude-haiku-4-5", "auto", 4_032, 3_024, 1_596),
    ("anthropic", "claude-haiku-4-5", "auto", 1_024, 1_024, 1_369),
    ("google", "gemini-3.5-flash", "auto", 3_840, 2_160, 1_101),
    # https://developers.googleblog.com: "1024x1024 images consume 1290 tokens"
    ("google", "gemini-2.5-flash", "auto", 1_024, 1_024, 1_290),
]


@pytest.mark.parametrize(("provider", "model", "detail", "width", "height", "tokens"), MEASURED)
def test_no_image_that_was_measured_is_beyond_its_bound(
    provider: str, model: str, detail: str, width: int, height: int, tokens: int
) -> None:
    most = rule(provider, model).most_tokens(Size(width, height), detail)
    assert most is not None
    assert tokens <= most <= 1.3 * tokens


@pytest.mark.parametrize(
    ("model", "low", "high", "auto", "original"),
    [
        ("gpt-4o", 85, 1_445, 1_445, 1_445),
        ("gpt-4o-mini-2024-07-18", 2_833, 48_169, 48_169, 48_169),
        ("gpt-4.1-2025-04-14", 85, 1_445, 1_445, 1_445),
        ("ft:gpt-4.1-2025-04-14:acme::id", 85, 1_445, 1_445, 1_445),
        ("gpt-5-2025-08-07", 70, 1_190, 1_190, 1_190),
        ("gpt-5-chat-latest", 70, 1_190, 1_190, 1_190),
        ("o1", 75, 1_275, 1_275, 1_275),
        ("gpt-4.1-mini", 9_954, 9_954, 9_954, None),
        ("gpt-5.2", 7_373, 7_373, 7_373, None),
        ("gpt-5.4", 3_000, 3_000, 3_000, 12_000),
        ("gpt-5.5", 3_000, 3_000, 12_000, 12_000),
        ("gpt-5.6-sol", 3_000, 3_000, 36_000, 36_000),
        ("gpt-6-astra", 3_000, 3_000, 36_000, 36_000),
    ],
)
def test_images_of_unknown_size_are_bounded_by_model_and_detail(
    model: str, low: int, high: int, auto: int, original: int | None
) -> None:
    by_detail = {"low": low, "high": high, "auto": auto, "original": original}
    images = rule("openai", model)
    assert {detail: images.most_tokens(None, detail) for detail in by_detail} == by_detail


@pytest.mark.parametrize(
    ("resolution", "tokens"),
    [
        ("auto", 1_120),
        ("MEDIA_RESOLUTION_LOW", 280),
        ("MEDIA_RESOLUTION_MEDIUM", 560),
        ("media_resolution_high", 1_120),
        ("MEDIA_RESOLUTION_ULTRA_HIGH", 2_240),
        ("one of tomorrow", 2_240),
    ],
)
def test_gemini_3_takes_the_tokens_of_the_resolution(resolution: str, tokens: int) -> None:
    assert rule("google", "gemini-3-flash-preview").most_tokens(Size(9_000, 9_000), resolution) == tokens


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "gpt-6-sol"),
        ("openai", "gpt-5.1"),
        ("openai", "gpt-of-tomorrow"),
        ("anthropic", "claude-of-tomorrow"),
        ("google", "gemini-4-argon"),
        ("xai", "grok-4.3"),
        ("openrouter", "openai/gpt-4o"),
    ],
)
def test_what_is_not_documented_has_no_rule(provider: str, model: str) -> None:
    facts = model_facts(provider, model)
    assert facts is None or facts.images is None


@pytest.mark.parametrize(
    ("resolution", "tokens"),
    [("auto", 560_000), ("low", 280_000), ("MEDIA_RESOLUTION_HIGH", 1_120_000), ("other", 1_120_000)],
)
def test_a_pdf_has_as_many_pages_as_gemini_takes(resolution: str, tokens: int) -> None:
    facts = model_facts("google", "gemini-3.5-flash")
    assert facts is not None
    assert facts.pdf is not None
    assert facts.pdf.most_tokens(None, resolution) == tokens
