import asyncio
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cookbook import tokens

from fastroai.usage.bounding import tokenizers
from fastroai.usage.bounding.tokenizers import (
    LONGEST_INLINE,
    Tokenizer,
    bytes_of,
    encoding_of,
    is_loaded,
    tokenizer_of,
)

words = st.sampled_from(
    ["a", " the", "12", "345", "\n\n", "  ", "<|endoftext|>", "é", "漢字", "kiểu", "'ll", '"']
)
texts = st.one_of(st.text(max_size=80), st.lists(words, max_size=12).map("".join))


@pytest.fixture
def tokenizer() -> Tokenizer:
    found = tokenizer_of("gpt-4o")
    assert found is not None
    return found


@pytest.fixture
def without_the_extra(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "bpe_openai", None)
    tokenizers._load.cache_clear()
    yield
    tokenizers._load.cache_clear()


class Counting:
    """An encoding that has a token for each letter, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode_ordinary(self, text: str) -> list[int]:
        self.asked.append(text)
        if len(text) >= 1_000_000:
            raise ValueError("Input too long to encode safely")
        return [0] * len(text)


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o-mini", "o200k_base"),
        ("gpt-4.1-mini-2025-04-14", "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("gpt-5.4-mini", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("o4-mini", "o200k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-35-turbo", "cl100k_base"),
        ("ft:gpt-4o-mini-2024-07-18:acme::id", "o200k_base"),
        ("ft:gpt-4.1-2025-04-14:acme::id", "o200k_base"),
        ("gpt-oss-20b", None),
        ("gpt-of-tomorrow", None),
        ("claude-sonnet-4-5", None),
    ],
)
def test_the_encoding_of_a_model_is_what_openai_says(model: str, encoding: str | None) -> None:
    assert encoding_of(model) == encoding
    assert (tokenizer_of(model) is None) == (encoding is None)
    assert is_loaded(model)


def test_without_tiktoken_no_encoding_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    assert encoding_of.__wrapped__("gpt-4o") is None


@pytest.mark.usefixtures("without_the_extra")
def test_without_the_extra_there_is_no_tokenizer() -> None:
    assert tokenizer_of("gpt-4o") is None
    assert encoding_of("gpt-4o") is not None


@given(texts)
def test_text_is_counted_exactly_and_never_as_more_than_its_bytes(text: str) -> None:
    found = tokenizer_of("gpt-4o")
    assert found is not None
    assert found.count(text) == found.count(text) == tokens(text)
    if text.isprintable() or text.isascii():
        assert found.count(text) <= bytes_of(text)


@given(texts, texts, texts)
def test_special_tokens_in_a_text_count_as_no_fewer(before: str, between: str, after: str) -> None:
    parts = tokens(before) + 1 + tokens(between) + 1 + tokens(after)
    assert tokens(f"{before}<|endoftext|>{between}<|im_start|>{after}") >= parts


class TestRemembering:
    def test_a_text_is_tokenized_once(self) -> None:
        encoding = Counting()
        tokenizer = Tokenizer(encoding)
        assert [tokenizer.count("abc"), tokenizer.count("abc"), tokenizer.count("de")] == [3, 3, 2]
        assert encoding.asked == ["abc", "de"]

    def test_what_was_not_used_for_long_is_forgotten(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tokenizers, "_KEPT", 10)
        encoding = Counting()
        tokenizer = Tokenizer(encoding)
        for text in ("aaaaa", "bbbbb", "aaaaa", "ccccc", "aaaaa", "bbbbb"):
            tokenizer.count(text)
        assert encoding.asked == ["aaaaa", "bbbbb", "ccccc", "bbbbb"]

    def test_a_text_that_is_too_long_to_remember_is_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tokenizers, "_KEPT", 3)
        encoding = Counting()
        tokenizer = Tokenizer(encoding)
        assert tokenizer.count("abcd") == tokenizer.count("abcd") == 4
        assert encoding.asked == ["abcd", "abcd"]


class TestLongTexts:
    def test_they_count_as_bytes_until_they_are_prepared(self) -> None:
        encoding = Counting()
        tokenizer, text = Tokenizer(encoding), "é" * (LONGEST_INLINE + 1)
        assert tokenizer.is_long([text])
        assert tokenizer.count(text) > 2 * LONGEST_INLINE
        assert not encoding.asked
        tokenizer.prepare([text, text])
        assert tokenizer.count(text) == LONGEST_INLINE + 1
        assert encoding.asked == [text]
        assert not tokenizer.is_long([text])

    def test_many_short_ones_are_long_together(self) -> None:
        tokenizer = Tokenizer(Counting())
        texts = [f"{number:09}" for number in range(LONGEST_INLINE // 9 + 1)]
        assert tokenizer.is_long(texts)
        assert not tokenizer.is_long(texts[:-1])

    def test_those_that_the_encoding_refuses_count_as_bytes(self) -> None:
        tokenizer, text = Tokenizer(Counting()), "é" * 1_000_000
        tokenizer.prepare([text])
        assert tokenizer.count(text) == 3_000_000  # as NFKD writes it

    def test_more_tokens_than_the_real_encoding_takes_count_as_bytes(self, tokenizer: Tokenizer) -> None:
        text = "a1" * 120_000
        tokenizer.prepare([text])
        assert tokenizer.count(text) == len(text)

    async def test_several_threads_may_count_at_once(self, tokenizer: Tokenizer) -> None:
        texts = [f"text number {number} of many" for number in range(200)]
        counted = await asyncio.gather(
            *(asyncio.to_thread(lambda: [tokenizer.count(text) for text in texts]) for _ in range(4))
        )
        assert counted == [[tokens(text) for text in texts]] * 4


def test_a_text_that_cannot_be_sent_has_no_bytes() -> None:
    with pytest.raises(UnicodeEncodeError):
        bytes_of("\udcff")
