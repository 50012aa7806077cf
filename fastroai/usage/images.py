"""How many input tokens an image can be, whatever its size, inline or by URL."""

from __future__ import annotations

from typing import Final

from fastroai.usage.endpoints import is_first_party

_TILES: Final = 8
"""An image is scaled into 2,048 x 2,048 pixels, then to 768 on the short side: at most 4 x 2 tiles of 512."""
_TILED: Final = (
    ("gpt-4o-mini", 2_833, 5_667),
    ("gpt-4o", 85, 170),
    ("chatgpt-4o", 85, 170),
    ("gpt-4.5", 85, 170),
    ("gpt-4-turbo", 85, 170),
    ("gpt-5-chat", 70, 140),
    ("o1", 75, 150),
    ("o3", 75, 150),
)
"""Models that cut images into tiles: tokens for an image, all of them at `detail="low"`, and for each tile.
https://developers.openai.com/api/docs/guides/images-vision#calculating-costs
"""
_PATCHED: Final = (
    ("gpt-5.4-mini", 2_500, 162),
    ("gpt-5.4-nano", 2_500, 246),
    ("gpt-5-mini", 1_536, 162),
    ("gpt-5-nano", 1_536, 246),
    ("gpt-4.1-mini", 1_536, 162),
    ("gpt-4.1-nano", 1_536, 246),
    ("o4-mini", 1_536, 172),
    ("gpt-5.4", 2_500, 246),
    ("gpt-5.5", 2_500, 246),
    ("gpt-5.6", 2_500, 246),
    ("gpt-6-astra", 2_500, 246),
)
"""Models that cut images into patches of 32 x 32 pixels: the most patches at `detail="high"`, and tokens for
100 of them, which are the highest factor of the same page where it names none for a model. `low` counts as
`high`: https://community.openai.com/t/1377015, which measured 2,500 patches for `gpt-5.4-mini` too.
"""
_ORIGINAL_PATCHES: Final = {"gpt-5.4": 10_000, "gpt-5.5": 10_000, "gpt-6-astra": 30_000}
"""The most patches at `detail="original"`. For others there is no limit, or none that is documented."""
_AUTO_IS_HIGH: Final = ("gpt-5.4", "gpt-5-", "gpt-4.1-", "o4-mini")
"""Of the models with patches, those for which `auto` is at most `high`; else it is `original`."""
_CLAUDE_SMALL: Final = (
    "claude-3",
    "claude-haiku-4-5",
    "claude-opus-4-0",
    "claude-opus-4-1",
    "claude-opus-4-20250514",
    "claude-opus-4-5",
    "claude-opus-4-6",
    "claude-sonnet-4-0",
    "claude-sonnet-4-20250514",
    "claude-sonnet-4-5",
    "claude-sonnet-4-6",
)
"""Models of Anthropic before those with high resolution."""
_CLAUDE_SMALL_TOKENS: Final = 1_600
_CLAUDE_TOKENS: Final = 4_800
"""Images are scaled down to 1,568 tokens, or 4,784 with high resolution; earlier documented as "~1,600".
https://platform.claude.com/docs/en/build-with-claude/vision#evaluate-image-size
"""


def image_tokens(provider: str, url: str | None, model: str, detail: str) -> int | None:
    """The most tokens of an image; `None` where none is documented.

    `detail` is OpenAI's: `low`, `high`, `original` or `auto`.
    """
    if provider not in ("anthropic", "azure", "openai") or not is_first_party(provider, url):
        return None
    if provider == "anthropic":
        return _CLAUDE_SMALL_TOKENS if model.startswith(_CLAUDE_SMALL) else _CLAUDE_TOKENS
    for name, patches, per_hundred in _PATCHED:
        if model.startswith(name):
            most = _patches(model, patches, detail)
            return None if most is None else -(-most * per_hundred // 100)
    for name, base, tile in _TILED:
        if model.startswith(name):
            return base if detail == "low" else base + _TILES * tile
    if model == "gpt-5" or model.startswith("gpt-5-20"):
        return 70 if detail == "low" else 70 + _TILES * 140
    if model == "gpt-4.1" or model.startswith("gpt-4.1-20"):
        return 85 if detail == "low" else 85 + _TILES * 170
    return None


def _patches(model: str, high: int, detail: str) -> int | None:
    if detail in ("low", "high") or (detail == "auto" and model.startswith(_AUTO_IS_HIGH)):
        return high
    return next((most for name, most in _ORIGINAL_PATCHES.items() if model.startswith(name)), None)
