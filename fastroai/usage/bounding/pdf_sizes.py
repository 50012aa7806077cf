"""Sizes of PDFs, in pages and bytes of text: read by `pypdf` (extra `pdf`), if it is installed."""

from __future__ import annotations

import logging
from collections import OrderedDict
from hashlib import sha256
from io import BytesIO
from threading import Lock
from typing import TYPE_CHECKING, Final

from fastroai.usage.bounding.tokenizers import bytes_of
from fastroai.usage.facts.documents import PdfSize

if TYPE_CHECKING:
    from pypdf import PageObject

_MOST_PAGES: Final = 1_000
"""The most pages: no provider takes more in one file."""
_MOST_TEXT: Final = 4_000_000
"""The most bytes of text: no context window has room for a file with more."""

logger = logging.getLogger("fastroai.usage")


class PdfSizes:
    """The sizes of the PDFs that were read last. Threads can share one instance."""

    def __init__(self, kept: int = 256) -> None:
        self._kept = kept
        self._sizes: OrderedDict[bytes, PdfSize | None] = OrderedDict()
        self._lock = Lock()

    def size(self, data: bytes) -> PdfSize | None:
        """Return the size of a PDF; `None` if it was not read before, or cannot be read."""
        key = sha256(data).digest()
        with self._lock:
            if key in self._sizes:
                self._sizes.move_to_end(key)
            return self._sizes.get(key)

    def is_read(self, data: bytes) -> bool:
        """Return whether `prepare` has seen a PDF."""
        return sha256(data).digest() in self._sizes

    def prepare(self, data: bytes) -> None:
        """Read a PDF, and keep its size. Do not call it on an event loop: a page can take 50 ms."""
        size = read_pdf(data)
        with self._lock:
            self._sizes[sha256(data).digest()] = size
            if len(self._sizes) > self._kept:
                self._sizes.popitem(last=False)


PDF_SIZES: Final = PdfSizes()
"""The sizes of PDFs that this process has read."""


def can_read_pdfs() -> bool:
    """Return whether `pypdf` is installed."""
    try:
        import pypdf  # noqa: F401
    except ImportError:
        return False
    return True


def read_pdf(data: bytes) -> PdfSize | None:
    """Return the size of a PDF.

    `None` if it is encrypted, damaged, larger than any provider takes, or `pypdf` is not installed.
    """
    if not can_read_pdfs():
        return None
    from pypdf import PdfReader

    text = []
    try:
        # The number of pages that a file states is not trusted: pypdf walks through the pages.
        reader = PdfReader(BytesIO(data))
        if reader.is_encrypted or len(reader.pages) > _MOST_PAGES:
            return None
        for page in reader.pages:
            text.append(_text_of(page))
            if sum(text) > _MOST_TEXT:
                return None
    except Exception as error:  # damaged files make it raise all kinds of exceptions
        logger.info("a PDF cannot be read, so the most that a request with it can cost is unknown: %r", error)
        return None
    return PdfSize(tuple(text))


def _text_of(page: PageObject) -> int:
    """Return the bytes of readable text on a page: its text, its notes, and its fields of forms."""
    texts = [page.extract_text()]
    for annotation in page.annotations or ():
        given = annotation.get_object()
        texts += [str(given[key]) for key in ("/Contents", "/V") if key in given]
    return sum(bytes_of(text.encode(errors="replace").decode()) for text in texts)
