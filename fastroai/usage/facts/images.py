"""Rules by which providers count the tokens of an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from fastroai.usage.facts.source import STRICT, NamedSource, named


@dataclass(frozen=True, slots=True)
class Size:
    """Width and height in pixels, in either order."""

    width: int
    height: int

    def tiles(self, side: int) -> int:
        """Return how many squares of `side` pixels cover the image."""
        return -(-self.width // side) * -(-self.height // side)


_TILE = 512
_FIT = 2_048
_SHORT_SIDE = 768
_MOST_TILES = 8
_ROUNDING = 4
"""The pixels that rounding can add to a side between two steps of scaling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """OpenAI: an image is fitted into 2,048 pixels, its short side into 768, and cut into tiles of 512."""

    __pydantic_config__ = STRICT
    rule: Literal["tiles"]
    base: int
    """Tokens of each image. At `detail="low"` there are no others."""
    tile: int
    source: NamedSource

    def most_tokens(self, size: Size | None, detail: str) -> int:
        """Return an upper bound on the tokens of an image."""
        if detail == "low":
            return self.base
        return self.base + self.tile * (_MOST_TILES if size is None else self._tiles(size))

    @staticmethod
    def _tiles(size: Size) -> int:
        # The page does not say that small images are not scaled up, so they count as if scaled up to 768.
        short, long = sorted((size.width, size.height))
        scaled = min(_FIT, -(-_SHORT_SIDE * long // short) + _ROUNDING)
        return min(_MOST_TILES, 2 * -(-scaled // _TILE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Patches:
    """OpenAI: an image is covered with patches of 32 x 32 pixels, and scaled down to a budget of them."""

    __pydantic_config__ = STRICT
    rule: Literal["patches"]
    per_hundred: int
    """Tokens for 100 patches."""
    high: int
    """The most patches at `detail="high"`, and at `low`."""
    original: int | None = None
    """The most patches at `detail="original"`, beyond which images are scaled down or refused; `None` if the
    model does not document it."""
    auto: Literal["high", "original"] = "high"
    """The detail that `auto` means."""
    source: NamedSource

    def most_tokens(self, size: Size | None, detail: str) -> int | None:
        """Return an upper bound on the tokens of an image; `None` where the budget is not documented."""
        if detail in ("low", "high") or (detail == "auto" and self.auto == "high"):
            budget: int | None = self.high
        else:
            budget = self.original
        if budget is None:
            return None
        patches = budget if size is None else min(budget, size.tiles(32))
        return -(-patches * self.per_hundred // 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class VisualTokens:
    """Anthropic: a token for each patch of 28 x 28 pixels, up to a maximum."""

    __pydantic_config__ = STRICT
    rule: Literal["visual_tokens"]
    most: int
    source: NamedSource

    def most_tokens(self, size: Size | None, detail: str) -> int:
        """Return an upper bound on the tokens of an image."""
        if size is None:
            return self.most
        # Until 2026 the page said width x height / 750.
        return min(self.most, max(size.tiles(28), -(-size.width * size.height // 750)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Crops:
    """Google, before Gemini 3: 258 tokens for an image up to 384 x 384 pixels, else for each crop of it."""

    __pydantic_config__ = STRICT
    rule: Literal["crops"]
    source: NamedSource

    def most_tokens(self, size: Size | None, detail: str) -> int | None:
        """Return an upper bound on the tokens of an image; `None` if its size is not known."""
        if size is None:
            return None
        if max(size.width, size.height) <= 384:
            return 258
        crop = min(768, max(256, min(size.width, size.height) * 2 // 3))
        return 258 * (
            1 + size.tiles(crop)
        )  # the image as a whole is counted once more: 1,290 for 1,024 x 1,024


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaResolution:
    """Google, from Gemini 3 on: the requested media resolution sets the most tokens of an image."""

    __pydantic_config__ = STRICT
    rule: Literal["media_resolution"]
    source: NamedSource

    def most_tokens(self, size: Size | None, detail: str) -> int:
        """Return an upper bound on the tokens of an image."""
        return _RESOLUTIONS.get(detail.lower().removeprefix("media_resolution_"), _ULTRA_HIGH)


_ULTRA_HIGH = 2_240
_RESOLUTIONS = {"auto": 1_120, "unspecified": 1_120, "low": 280, "medium": 560, "high": 1_120}

ImageRule: TypeAlias = Annotated[
    Tiles | Patches | VisualTokens | Crops | MediaResolution, Field(discriminator="rule"), named("images")
]
"""A rule for the tokens of an image.

`most_tokens(size, detail)` returns an upper bound, or `None` if nothing documented bounds it. `size` is
`None` where it is not known. `detail` is the level that the request asks for, named as by the provider:
`low`, `high`, `original` or `auto` for OpenAI, a media resolution for Google.
"""
