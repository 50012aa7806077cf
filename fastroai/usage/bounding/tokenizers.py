"""Exact offline tokenizers: OpenAI's encodings, from `bpe-openai` (extra `tokenizers`), if it is installed.

The encoding of a model is the one that OpenAI's own `tiktoken` names; a model that it does not know has
none. Text is counted as ordinary text: the spelling of a special token counts as several tokens.
"""

from __future__ import annotations

import importlib
import unicodedata
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import cache, lru_cache, partial
from threading import Lock
from typing import Final, Protocol, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar

T = TypeVar("T")

Count = Callable[[str], int]
"""A function that returns no fewer tokens than a text has, even if the text is a part of another one."""

LONGEST_INLINE: Final = 65_536
"""The most letters of a text that is tokenized at once: at about 50 to 100 ns for each letter, it takes some
milliseconds. Longer texts are tokenized in a thread beforehand, by `Tokenizer.prepare`, or count as bytes.
"""
_KEPT: Final = 4_000_000
"""The most letters of texts whose counts are kept, so that a growing conversation is tokenized once."""
_AT_ONCE: Final = 4
_ENCODINGS: Final = frozenset({"cl100k_base", "o200k_base"})


_limiter: Final[RunVar[CapacityLimiter]] = RunVar("fastroai_bounding_threads")


async def in_bounding_thread(call: Callable[[], T]) -> T:
    """Run in a thread a call that would block the event loop: loading a tokenizer, reading a file, ...

    The thread is not one of the loop's default executor, nor of anyio's: code that waits for the request
    whose bound is computed may use all of those.
    """
    limiter = _limiter.get(None)
    if limiter is None:
        _limiter.set(limiter := CapacityLimiter(_AT_ONCE))
    return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=limiter)


class _Encoding(Protocol):
    """The part of `bpe_openai.Encoding` that is used here. Encoding releases the interpreter lock."""

    def encode_ordinary(self, text: str) -> list[int]: ...


class Tokenizer:
    """Counts tokens of texts, and remembers the counts. Threads can share one instance."""

    def __init__(self, encoding: _Encoding) -> None:
        self._encoding = encoding
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._kept = 0
        self._lock = Lock()

    def count(self, text: str) -> int:
        """Return the tokens of a text, or its bytes if it is long and was not prepared."""
        known = self._known(text)
        if known is not None:
            return known
        return bytes_of(text) if len(text) > LONGEST_INLINE else self._count(text)

    def prepare(self, texts: Iterable[str]) -> None:
        """Count texts of any length. Do not call it on an event loop: a million letters take 100 ms."""
        for text in texts:
            if self._known(text) is None:
                self._count(text)

    def is_long(self, texts: Iterable[str]) -> bool:
        """Return whether the texts not counted yet are together too long to count on an event loop."""
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
    """Return the bytes of a text, or of its normalised form, if that has more.

    A text has no more tokens than bytes, for each token stands for at least one byte.

    Raises:
        UnicodeEncodeError: for a lone surrogate; such a text cannot be sent either.
    """
    if text.isascii():
        return len(text)
    return max(len(text.encode()), len(unicodedata.normalize("NFKD", text).encode()))


def tokenizer_of(model: str) -> Tokenizer | None:
    """Return the tokenizer of a model of OpenAI; `None` if it is not known, or `bpe-openai` not installed.

    The first call for an encoding loads it, which takes up to a second.
    """
    name = encoding_of(model)
    return None if name is None else _load(name)


def loaded_tokenizer(model: str | None) -> Tokenizer | None:
    """Return the tokenizer of a model of OpenAI if it is loaded; `None` for any other model."""
    return tokenizer_of(model) if model is not None and is_loaded(model) else None


async def load_tokenizer(model: str) -> None:
    """Load the tokenizer of a model of OpenAI in a thread, if it is not loaded yet."""
    if not is_loaded(model):
        await in_bounding_thread(partial(tokenizer_of, model))


def is_loaded(model: str) -> bool:
    """Return whether `tokenizer_of` returns at once, without loading an encoding."""
    name = encoding_of(model)
    return name is None or name in _loaded


@lru_cache(maxsize=256)
def encoding_of(model: str) -> str | None:
    """Return the name of the encoding of a model of OpenAI; `None` if it is not known."""
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
    with warnings.catch_warnings():  # bpe_openai reads its data in a deprecated way
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            tokenizer = Tokenizer(importlib.import_module("bpe_openai").get_encoding(name))
        except ImportError:
            tokenizer = None
    _loaded.add(name)
    return tokenizer
