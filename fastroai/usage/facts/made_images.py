"""Documented facts about the images that models make: the most tokens that each image is billed as."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import Final

from fastroai.usage.facts.source import Source

_MOST_TILES: Final = 8
"""The most tiles of an image within 2,048 pixels whose short side is 512: 4, and 4 more for rounding."""


@dataclass(frozen=True, slots=True)
class MadeImages:
    """OpenAI's GPT Image models before `gpt-image-2`: tokens by quality and size."""

    names: re.Pattern[str]
    tokens: dict[str, dict[str, int]]
    """Output tokens of one image, by quality, then by size."""
    reference_tokens: int | None
    """The most input tokens of an image to edit, at high fidelity; `None` if that is not documented."""
    sources: tuple[Source, ...]

    def most_tokens(self, quality: object, size: object) -> int | None:
        """Return the most output tokens of one image; `None` if images of this quality and size have no line.

        A quality or size of `None` or `auto` leaves the choice to the provider, so the largest counts.
        """
        return max(
            (
                tokens
                for each, sizes in self.tokens.items()
                for shape, tokens in sizes.items()
                if quality in (None, "auto", each) and size in (None, "auto", shape)
            ),
            default=None,
        )


_CHECKED: Final = date(2026, 11, 22)
_TOKENS: Final = {
    "low": {"1024x1024": 272, "1024x1536": 408, "1536x1024": 400},
    "medium": {"1024x1024": 1_056, "1024x1536": 1_584, "1536x1024": 1_568},
    "high": {"1024x1024": 4_160, "1024x1536": 6_240, "1536x1024": 6_208},
}
_MADE: Final = Source(
    "https://developers.openai.com/api/docs/guides/image-generation#models-prior-to-gpt-image-2", _CHECKED
)
_REFERENCES: Final = Source(
    "https://developers.openai.com/api/docs/guides/images-vision#gpt-image-1",
    _CHECKED,
    "129 tokens for each tile and 65 besides; at high fidelity 6,240 more, or 4,160 for a square",
)
MADE_IMAGES: Final = (
    # gpt-image-1-mini has no line: its tokens and prices on the same page contradict each other.
    MadeImages(
        re.compile(r"gpt-image-1(-\d{4}-\d{2}-\d{2})?"),
        _TOKENS,
        65 + 129 * _MOST_TILES + 6_240,
        (_MADE, _REFERENCES),
    ),
    MadeImages(re.compile(r"gpt-image-1\.5(-\d{4}-\d{2}-\d{2})?"), _TOKENS, None, (_MADE,)),
)


def made_images(model: str) -> MadeImages | None:
    """Return the documented facts about the images of a model; `None` if there is no line for it."""
    return next((line for line in MADE_IMAGES if line.names.fullmatch(model)), None)
