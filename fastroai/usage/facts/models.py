"""Documented facts about models: limits, images, documents.

A line is for the models whose whole name it matches, with or without the date of a snapshot. A fact that a
line leaves out is not documented, or could not be checked, and has no bound of its own: the context window
is taken instead. A model without a line has only that window: the tests list these models, each with the
reason, so that a new one is noticed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Final, Literal

from fastroai.usage.facts.documents import Pages, PagesWithText, PdfRule
from fastroai.usage.facts.images import (
    Crops,
    ImageRule,
    MediaResolution,
    Patches,
    Size,
    Tiles,
    VisualTokens,
)
from fastroai.usage.facts.source import NamePattern, Source

Maker = Literal["anthropic", "google", "openai", "xai"]

_CHECKED: Final = date(2026, 11, 22)
_PAGES: Final[dict[Maker, Source]] = {
    "anthropic": Source("https://platform.claude.com/docs/en/about-claude/models/overview", _CHECKED),
    "google": Source("https://ai.google.dev/gemini-api/docs/models", _CHECKED),
    "openai": Source("https://developers.openai.com/api/docs/models", _CHECKED),
    "xai": Source("https://docs.x.ai/developers/models", _CHECKED),
}
"""The pages with the limits of models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The documented facts of some models."""

    maker: Maker
    names: re.Pattern[str]
    source: Source
    window: int | None = None
    """The most input tokens, where genai-prices does not have the number, or rounds it."""
    output_tokens: int | None = None
    """The most tokens of an answer, thinking included."""
    images: ImageRule | None = None
    pdf: PdfRule | None = None
    unknown: str | None = None
    """Why this line has no limits for input and output; `None` if it has."""


def _line(
    maker: Maker,
    names: str,
    *,
    window: int | None = None,
    output: int | None = None,
    images: ImageRule | None = None,
    pdf: PdfRule | None = None,
    unknown: str | None = None,
) -> ModelFacts:
    if maker == "openai" and images is not None:
        pdf = PagesWithText(_most_of_any_size(images), _OPENAI_PDFS)
    return ModelFacts(
        maker=maker,
        names=re.compile(f"(?:{names}){_SNAPSHOT[maker]}"),
        source=_PAGES[maker],
        window=window,
        output_tokens=output,
        images=images,
        pdf=pdf,
        unknown=unknown,
    )


_SNAPSHOT: Final[dict[Maker, str]] = {
    "anthropic": r"(?:[-@]\d{8})?(?:-latest)?",
    "google": r"(?:-\d{3})?(?:-preview)?(?:-\d{2}-(?:\d{2}|\d{4}))?",
    "openai": r"(?:-\d{4}-\d{2}-\d{2})?(?:-latest)?",
    "xai": r"(?:-latest)?",
}
"""Patterns of the endings that names of snapshots add to the name of a model."""

# --- OpenAI ---

_OPENAI_PDFS: Final = Source(
    "https://developers.openai.com/api/docs/guides/file-inputs",
    _CHECKED,
    "the text and an image of each page",
)


def _most_of_any_size(images: ImageRule) -> int:
    details = ("auto", "high", "original")
    return max(tokens for detail in details if (tokens := images.most_tokens(None, detail)) is not None)


_OPENAI_IMAGES: Final = Source(
    "https://developers.openai.com/api/docs/guides/images-vision#calculating-costs",
    _CHECKED,
    "where its tables of July and of October 2026 differ, the higher number",
)
_OPENAI_IMAGES_UNNAMED: Final = Source(
    _OPENAI_IMAGES.url, _CHECKED, "it names no factor for the model: the highest of its table"
)


def _tiles(base: int, tile: int) -> Tiles:
    return Tiles(base, tile, _OPENAI_IMAGES)


def _small(per_hundred: int) -> Patches:
    return Patches(per_hundred=per_hundred, high=6_144, source=_OPENAI_IMAGES)


_GPT_5_4: Final = Patches(per_hundred=120, high=2_500, original=10_000, source=_OPENAI_IMAGES)
_GPT_5_4_PRO: Final = Patches(
    per_hundred=246, high=2_500, original=10_000, auto="original", source=_OPENAI_IMAGES_UNNAMED
)
_GPT_5_5: Final = Patches(
    per_hundred=120, high=2_500, original=10_000, auto="original", source=_OPENAI_IMAGES
)
_UNSCALED: Final = Patches(
    per_hundred=120, high=2_500, original=30_000, auto="original", source=_OPENAI_IMAGES
)
"""The rule of models that keep the size of images, and refuse more than 30,000 patches."""

_OPENAI: Final = (
    _line("openai", r"gpt-3\.5-turbo(-16k|-instruct|-0125|-0301|-0613|-1106)?|gpt-3\.5-0301", output=4_096),
    _line("openai", r"gpt-4(-32k)?(-0314|-0613)?", unknown="its limits could not be checked"),
    _line("openai", r"gpt-4-turbo(-preview)?", output=4_096, images=_tiles(85, 170)),
    _line("openai", r"gpt-4-vision-preview", output=4_096),
    _line("openai", r"gpt-4o|chatgpt-4o|gpt-4\.5-preview", output=16_384, images=_tiles(85, 170)),
    _line("openai", r"gpt-4o-mini", output=16_384, images=_tiles(2_833, 5_667)),
    _line("openai", r"gpt-4o(-mini)?-(audio|search)-preview|gpt-audio(-mini)?", output=16_384),
    _line("openai", r"gpt-4\.1", window=1_047_576, output=32_768, images=_tiles(85, 170)),
    _line("openai", r"gpt-4\.1-mini", window=1_047_576, output=32_768, images=_small(162)),
    _line("openai", r"gpt-4\.1-nano", window=1_047_576, output=32_768, images=_small(246)),
    _line("openai", r"gpt-5|gpt-5-chat", output=128_000, images=_tiles(70, 140)),
    _line("openai", r"gpt-5-mini", output=128_000, images=_small(162)),
    _line("openai", r"gpt-5-nano", output=128_000, images=_small(246)),
    _line("openai", r"gpt-5-pro", output=272_000),
    _line("openai", r"gpt-5-(codex(-mini)?|search-api)", output=128_000),
    _line("openai", r"gpt-5\.1(-chat|-codex|-codex-mini|-codex-max)?", output=128_000),
    _line("openai", r"gpt-5\.2", output=128_000, images=_small(120)),
    _line("openai", r"gpt-5\.2-(chat|codex|pro)", output=128_000),
    _line("openai", r"gpt-5\.3(-chat|-codex)?", output=128_000),
    _line("openai", r"gpt-5\.4", output=128_000, images=_GPT_5_4),
    _line("openai", r"gpt-5\.4-pro", output=128_000, images=_GPT_5_4_PRO),
    _line("openai", r"gpt-5\.4-mini", output=128_000, images=_small(162)),
    _line("openai", r"gpt-5\.4-nano", output=128_000, images=_small(246)),
    _line("openai", r"gpt-5\.5", window=1_050_000, output=128_000, images=_GPT_5_5),
    _line("openai", r"gpt-5\.5-pro", window=1_050_000, output=128_000, images=_GPT_5_4_PRO),
    _line("openai", r"gpt-5\.6-(sol|terra|luna)", output=128_000, images=_UNSCALED),
    _line("openai", r"gpt-6-astra", output=128_000, images=_UNSCALED),
    _line("openai", r"gpt-6-(sol|luna)|gpt-6\.1-(sol|terra)", output=128_000),
    _line(
        "openai",
        r"gpt-5\.5-cyber|gpt-5\.6-cyber|gpt-6-(cyber|rosalind)|gpt-chat|gpt-daybreak-(blue|red)"
        r"|gpt-rosalind-(discovery|research)",
        unknown="its limits are not on a public page",
    ),
    _line("openai", r"o1(-pro)?|o3(-pro|-deep-research)?", output=100_000, images=_tiles(75, 150)),
    _line("openai", r"o1-(mini|preview)|o3-mini|codex-mini|o4-mini-deep-research", output=100_000),
    _line("openai", r"o4-mini", output=100_000, images=_small(172)),
    _line("openai", r"computer-use(-preview)?", output=1_024, images=_tiles(65, 129)),
    _line("openai", r"gpt-oss-.*", unknown="an open model: those who serve it say what it can do"),
    _line(
        "openai",
        r"ada|babbage(-002)?|curie|davinci(-002)?|text-davinci-00[23]|text-embedding-.*|moderation|tts-1(-hd)?"
        r"|whisper-1|.*-(realtime|live|transcribe|tts|image)(-.*)?|chatgpt-image|gpt-4o:extended",
        unknown="not asked for text, or not by this name",
    ),
)

# --- Google ---

_WINDOW: Final = 1_048_576
_CROPS: Final = Crops(
    Source("https://ai.google.dev/gemini-api/docs/image-understanding#token-calculation", _CHECKED)
)
_RESOLUTION: Final = MediaResolution(
    Source(
        "https://ai.google.dev/gemini-api/docs/media-resolution#token-counts",
        _CHECKED,
        "it determines the maximum number of tokens allocated for media inputs",
    )
)
_PDF: Final = Pages(
    1_000,
    {"auto": 560, "unspecified": 560, "low": 280, "medium": 560, "high": 1_120},
    Source(
        "https://ai.google.dev/gemini-api/docs/document-processing#technical-details",
        _CHECKED,
        "up to 1000 pages; text that is in the file is not charged with Gemini 3",
    ),
)
_PDF_WITH_TEXT: Final = PagesWithText(
    258 * (1 + Size(3_072, 3_072).tiles(768)),
    Source(
        "https://ai.google.dev/gemini-api/docs/document-processing#technical-details",
        _CHECKED,
        "a page is 258 tokens, or (on Vertex AI) as many as an image, scaled down to 3,072 pixels; only with "
        "Gemini 3 is text that is in the file not charged",
    ),
)
_GOOGLE: Final = (
    _line(
        "google",
        r"gemini-2\.0-flash(-lite)?",
        window=_WINDOW,
        output=8_192,
        images=_CROPS,
        pdf=_PDF_WITH_TEXT,
    ),
    _line(
        "google",
        r"gemini-2\.5-(flash|flash-lite|pro)",
        window=_WINDOW,
        output=65_536,
        images=_CROPS,
        pdf=_PDF_WITH_TEXT,
    ),
    _line(
        "google",
        r"gemini-3-(flash|pro)|gemini-3\.1-(pro|flash-lite)|gemini-3\.5-flash(-lite)?|gemini-3\.[678]-flash",
        window=_WINDOW,
        output=65_536,
        images=_RESOLUTION,
        pdf=_PDF,
    ),
    _line("google", r"gemini-.*-image|gemini-nano-banana.*", output=65_536),
    _line("google", r"gemini-4-(argon|carbon|hydrogen)", unknown="its answers share the window with the input"),
    _line("google", r"gemini-flash(-lite)?-latest", unknown="another model from time to time"),
    _line("google", r"gemini-(1\.0|1\.5|pro|flash-1\.5)(-.*)?", unknown="retired"),
    _line(
        "google",
        r"gemini-embedding.*|gemini-.*(tts|live).*|gemini-omni.*|gemini-robotics.*",
        unknown="not asked for text",
    ),
    _line("google", r"gemma-.*", unknown="an open model: those who serve it say what it can do"),
)

# --- Anthropic ---

_CLAUDE_IMAGES: Final = Source(
    "https://platform.claude.com/docs/en/build-with-claude/vision#evaluate-image-size",
    _CHECKED,
    "28 x 28 pixels a token, scaled down to 1,568 tokens (earlier: ~1,600), or 4,784 from Claude 4.7 on",
)
_CLAUDE_SMALL: Final = VisualTokens(1_600, _CLAUDE_IMAGES)
_CLAUDE_LARGE: Final = VisualTokens(4_800, _CLAUDE_IMAGES)
_CLAUDE_PDFS: Final = Source(
    "https://platform.claude.com/docs/en/build-with-claude/pdf-support#estimate-your-costs",
    _CHECKED,
    "an image of each page, and its text: 1,500 to 3,000 tokens a page, typically",
)
_SMALL_PAGES: Final = PagesWithText(_CLAUDE_SMALL.most, _CLAUDE_PDFS)
_LARGE_PAGES: Final = PagesWithText(_CLAUDE_LARGE.most, _CLAUDE_PDFS)
_ANTHROPIC: Final = (
    _line(
        "anthropic",
        r"claude-3-(haiku|sonnet|opus)|claude-3-5-(haiku|sonnet)|claude-3-7-sonnet",
        images=_CLAUDE_SMALL,
        pdf=_SMALL_PAGES,
    ),
    _line(
        "anthropic",
        r"claude-(opus|sonnet)-4(-0)?|claude-4-(opus|sonnet)|claude-opus-4-[156]",
        images=_CLAUDE_SMALL,
        pdf=_SMALL_PAGES,
    ),
    _line("anthropic", r"claude-sonnet-4-[56]|claude-haiku-4-5", images=_CLAUDE_SMALL, pdf=_SMALL_PAGES),
    _line(
        "anthropic",
        r"claude-opus-4-[78]|claude-(opus|sonnet)-5(-5)?|claude-haiku-5-5",
        images=_CLAUDE_LARGE,
        pdf=_LARGE_PAGES,
    ),
    _line(
        "anthropic",
        r"claude-fable-5(-[12])?|claude-mythos-(5(-[12])?|preview)",
        images=_CLAUDE_LARGE,
        pdf=_LARGE_PAGES,
    ),
    _line("anthropic", r"claude-2(\.\d)?|claude-v1|claude-instant.*", unknown="retired"),
)

# --- xAI ---

_XAI: Final = (
    _line(
        "xai",
        r"grok-[234](-.*)?|grok-4\.\d+(-.*)?|grok-build-0\.1|grok-code-fast-1|grok-latest",
        unknown="there is no limit on the length of an answer, and no rule for images",
    ),
    _line("xai", r"grok-voice-.*", unknown="not asked for text"),
)

MODELS: Final = (*_OPENAI, *_GOOGLE, *_ANTHROPIC, *_XAI)
"""All lines. The first line that fits a maker and a name counts."""

MAKERS: Final[dict[str, tuple[Maker, ...]]] = {
    "anthropic": ("anthropic",),
    "azure": ("openai",),
    "google": ("google",),
    "google-cloud": ("google", "anthropic"),
    "openai": ("openai",),
    "openai-chat": ("openai",),
    "xai": ("xai",),
}
"""The makers whose models a provider serves under the names that the makers give them."""

FIRST_PARTY: Final[dict[Maker, NamePattern]] = {
    # gpt-oss is open: others serve it
    "openai": NamePattern(re.compile(r"(gpt|chatgpt)-(?!oss)|o\d+(-|$)"), (_PAGES["openai"],)),
    "anthropic": NamePattern(re.compile(r"claude-"), (_PAGES["anthropic"],)),
    "google": NamePattern(re.compile(r"gemini-"), (_PAGES["google"],)),
}
"""The beginnings of the names of models that their makers serve themselves."""


@lru_cache(maxsize=1_024)
def model_facts(provider: str, model: str) -> ModelFacts | None:
    """Return the documented facts of a model; `None` if there is no line for it.

    `provider` is PydanticAI's name of the provider that serves the model.
    """
    if model.startswith("ft:"):  # ft:gpt-4.1-mini-2025-04-14:acme::id
        model = model.split(":")[1]
    return next((line for line in _lines(provider) if line.names.fullmatch(model)), None)


def _lines(provider: str) -> Iterator[ModelFacts]:
    makers = MAKERS.get(provider, ())
    return (line for line in MODELS if line.maker in makers)
