"""Rules by which providers count the tokens of a PDF."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from fastroai.usage.facts.source import STRICT, NamedSource, named


@dataclass(frozen=True, slots=True)
class PdfSize:
    """The size of a PDF."""

    text: tuple[int, ...]
    """Bytes of the text of each page."""

    @property
    def pages(self) -> int:
        """The number of its pages."""
        return len(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """Google, from Gemini 3 on: a fixed number of tokens for each page, whatever is on it."""

    __pydantic_config__ = STRICT
    rule: Literal["pages"] = "pages"
    most_pages: int
    """The most pages of one file; larger files are refused."""
    tokens: dict[str, int]
    """Tokens of a page, by media resolution. A resolution that is not here counts as the largest of these."""
    source: NamedSource

    def most_tokens(self, size: PdfSize | None, resolution: str) -> int:
        """Return an upper bound on the tokens of a PDF, or of the largest PDF if its size is not known."""
        pages = self.most_pages if size is None else min(size.pages, self.most_pages)
        name = resolution.lower().removeprefix("media_resolution_")
        return pages * self.tokens.get(name, max(self.tokens.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class PagesWithText:
    """A rule by which each page counts as an image, plus the text that is on it."""

    __pydantic_config__ = STRICT
    rule: Literal["pages_with_text"] = "pages_with_text"
    image: int
    """The most tokens of the image of a page."""
    source: NamedSource

    def most_tokens(self, size: PdfSize | None, resolution: str) -> int | None:
        """Return an upper bound on the tokens of a PDF; `None` if its size is not known.

        Programs that read PDFs differ in the text that they find. So each byte of the text counts as a token,
        which no tokenizer exceeds, and each page as one that is full of text.
        """
        if size is None:
            return None
        return sum(self.image + max(_FULL_PAGE, text) for text in size.text)


_FULL_PAGE = 3_000
"""The most text that Anthropic's page about PDFs expects on one page (1,500 to 3,000 tokens)."""

PdfRule: TypeAlias = Annotated[Pages | PagesWithText, Field(discriminator="rule"), named("pdfs")]
"""A rule for the tokens of a PDF.

`most_tokens(size, resolution)` returns an upper bound, or `None` if nothing documented bounds it. `size` is
`None` where it is not known. `resolution` is the one that the request asks for, named as by the provider.
"""
