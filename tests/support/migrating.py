"""The functions that try the rows of the pages on migrating, by left cell."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

import fastroai

Try: TypeAlias = Callable[[], Awaitable[None] | None]


class Tried(dict[str, Try]):
    """`TRIED = Tried()`, and `@TRIED("left cell")` above each function."""

    def __call__(self, left: str) -> Callable[[Try], Try]:
        def keep(function: Try) -> Try:
            assert left not in self, f"{left} is tried twice"
            self[left] = function
            return function

        return keep


def here_it_is(text: str) -> str:
    """A pattern for the error about a name of another library: `text` is what to write here."""
    return f"here, it is {re.escape(text)}"


def assert_renamed(**names: str) -> None:
    """Assert that the error for the import of each name says what to use."""
    for name, here in names.items():
        with pytest.raises(ImportError, match=re.escape(f"fastroai has no {name}; use {here}")):
            exec(f"from fastroai import {name}", {})
        assert not hasattr(fastroai, name)
