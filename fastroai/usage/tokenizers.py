"""Exact offline tokenizers: OpenAI's encodings, from `bpe-openai` (extra `tokenizers`), if it is installed.

Which encoding a model has is what OpenAI's own `tiktoken` says; a model that it does not know has none.
Text is counted as ordinary text: what spells a special token counts as the several tokens of its letters.
"""

from __future__ import annotations

import importlib
import unicodedata
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from threading import Lock
from typing import Final, Protocol, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar

T = TypeVar("T")

Count = Callable[[str], int]
"""No fewer tokens than a text has, whatever it is part of."""

LONGEST_INLINE: Final = 65_536
"""Letters of a text up to which it is tokenized where it is asked for: at about 50 to 100 ns for each, some
milliseconds. Longer ones are tokenized in a thread beforehand, by `Tokenizer.prepare`, or count as bytes.
"""
_KEPT: Final = 4_000_000
"""Letters of the texts whose counts are kept, so that a growing conversation is tokenized once."""
_AT_ONCE: Final = 4
_ENCODINGS: Final = frozenset({"cl100k_base", "o200k_base"})


_limiter: Final[RunVar[CapacityLimiter]] = RunVar("fastroai_bounding_threads")


async def in_bounding_thread(call: Callable[[], T]) -> T:
    """Call what would hold up the event loop: loading a tokenizer, tokenizing long texts, reading files.

    Not in a thread of the loop's default executor, nor of anyio's: those may all be in use by code that
    waits for the request which is to be bounded.
    """
    limiter = _limiter.get(None)
    if limiter is None:
        _limiter.set(limiter := CapacityLimiter(_AT_ONCE))
    return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=limiter)


class _Encoding(Protocol):
    """What is used of `bpe_openai.Encoding`. Encoding releases the interpreter lock."""

    def encode_ordinary(self, text: str) -> list[int]: ...


class Tokenizer:
    """Counts tokens of texts, and remembers what it counted. For several threads."""

    def __init__(self, encoding: _Encoding) -> None:
        self._encoding = encoding
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._kept = 0
        self._lock = Lock()

    def count(self, text: str) -> int:
        """The tokens of a text, or its bytes if it is long and was not prepared."""
        known = self._known(text)
        if known is not None:
            return known
        return bytes_of(text) if len(text) > LONGEST_INLINE else self._count(text)

    def prepare(self, texts: Iterable[str]) -> None:
        """Count texts of any length. Not on an event loop: a million letters take 100 ms."""
        for text in texts:
            if self._known(text) is None:
                self._count(text)

    def is_long(self, texts: Iterable[str]) -> bool:
        """Whether texts are so long, without those that were counted already, that they want a thread."""
        return sum(len(text) for text in texts if text not in self._counts) > LONGEST_INLINE

    def _known(self, text: str) -> int | None:
        with self._lock:
            if (count := self._counts.get(text)) is not None:
                self._counts.move_to_end(text)
            return count

    def _count(self, text: str) -> int:
        try:
            count = len(self._encoding.encode_ordinary(text))
        except ValueError:  # bpe-openai takes up to 1,000,000 letters and 200,000 tokens
            count = bytes_of(text)
        with self._lock:
            if text not in self._counts:
                self._counts[text] = count
                self._kept += len(text)
            while self._kept > _KEPT:
                self._kept -= len(self._counts.popitem(last=False)[0])
        return count


def bytes_of(text: str) -> int:
    """Bytes of a text, or of what a tokenizer may normalise it to, if that is more.

    No fewer than its tokens, for each token stands for at least one byte.

    Raises:
        UnicodeEncodeError: for a lone surrogate; such a text cannot be sent either.
    """
    if text.isascii():
        return len(text)
    return max(len(text.encode()), len(unicodedata.normalize("NFKD", text).encode()))


def tokenizer_of(model: str) -> Tokenizer | None:
    """The tokenizer of one of OpenAI's models; `None` if it is not known, or `bpe-openai` is not installed.

    The first call for an encoding loads it, which takes up to a second.
    """
    name = encoding_of(model)
    return None if name is None else _load(name)


def is_loaded(model: str) -> bool:
    """Whether `tokenizer_of` answers at once."""
    name = encoding_of(model)
    return name is None or name in _loaded


@lru_cache(maxsize=256)
def encoding_of(model: str) -> str | None:
    """The name of the encoding of one of OpenAI's models; `None` if it is not known."""
    if model.startswith("ft:"):  # ft:gpt-4.1-mini-2025-04-14:acme::id; tiktoken takes it for a gpt-4
        model = model.split(":")[1]
    try:
        from tiktoken import encoding_name_for_model

        name = encoding_name_for_model(model)
    except (ImportError, KeyError):
        return None
    return name if name in _ENCODINGS else None


_loaded: Final[set[str]] = set()


@cache
def _load(name: str) -> Tokenizer | None:
    with warnings.catch_warnings():  # it reads its data in a deprecated way
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            tokenizer = Tokenizer(importlib.import_module("bpe_openai").get_encoding(name))
        except ImportError:
            tokenizer = None
    _loaded.add(name)
    return tokenizer
