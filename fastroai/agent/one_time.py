"""Work that a process does once, before its first requests, and for which no time limit pays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from fastroai.runtime import current_scope
from fastroai.usage.hosts import Host
from fastroai.usage.tokenizers import in_bounding_thread, is_loaded, tokenizer_of


@contextmanager
def outside_of_time_limits() -> Iterator[None]:
    """Stop the clocks of all budgets and time limits around the running code."""
    scope = current_scope()
    if scope is None:
        yield
        return
    with scope.setting_up():
        yield


async def load_tokenizer(host: Host) -> None:
    """Load the tokenizer of a model in a thread, if this process has not loaded it yet."""
    name = host.encoded_model
    if name is None or name in _known:
        return
    with outside_of_time_limits():  # around `is_loaded` too, which imports the table of encodings
        if not is_loaded(name):
            await in_bounding_thread(partial(tokenizer_of, name))
    _known.add(name)


_known: Final[set[str]] = set()
"""Names of models whose tokenizers are loaded, or that have none."""
