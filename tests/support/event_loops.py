"""Event loops that a test leaves open, by the code that opened them."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

_opened: deque[tuple[weakref.ref[asyncio.BaseEventLoop], str, str]] = deque()
"""Each loop of this process, with the module that opened it and the place there."""
_KEPT_BY = "fastroai.runtime.concurrency.sync"
"""Opens loops that the process keeps for its sync calls."""
_LEFT_BY = ("pydantic_ai.", "pydantic_graph.")
"""Sync calls of PydanticAI leave their loop to the next such call; no caller can close it."""


def watch_event_loops() -> None:
    """Note from now on where each event loop is opened."""
    plain = asyncio.BaseEventLoop.__init__

    def noted(self: asyncio.BaseEventLoop) -> None:
        plain(self)
        frame = _opener()
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        _opened.append((weakref.ref(self), _module_of(frame), place))

    asyncio.BaseEventLoop.__init__ = noted  # type: ignore[method-assign]


def close_event_loops() -> list[str]:
    """Close the loops that are open and do not run, and say where they were opened.

    One that no test could close is closed without a word.
    """
    places: list[str] = []
    for _ in range(len(_opened)):
        opened = _opened.popleft()
        reference, module, place = opened
        loop = reference()
        if loop is None or loop.is_closed() or module == _KEPT_BY:
            continue
        if loop.is_running():  # in another thread
            _opened.append(opened)
            continue
        loop.close()
        if not module.startswith(_LEFT_BY):
            places.append(place)
    return places


class ClosedLoops:
    """A plugin: a test closes its event loops. The garbage collector would report them in some later test.

    It is no part of `conftest.py`, whose hooks hear nothing of the fixtures of a whole session.
    """

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """What a fixture of many tests opens, it closes after the last of them."""
        before = len(_opened)
        try:
            return (yield)
        finally:
            while fixturedef.scope != "function" and len(_opened) > before:
                _opened.pop()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        yield
        if places := close_event_loops():
            pytest.fail(f"{item.name} left event loops open, opened at {', '.join(places)}", pytrace=False)


def _opener() -> FrameType:
    """The frame that asked asyncio for a loop."""
    frame = sys._getframe(2)
    while _module_of(frame).startswith("asyncio."):
        assert frame.f_back is not None
        frame = frame.f_back
    return frame


def _module_of(frame: FrameType) -> str:
    """The name of the module; empty for code that is executed without one, such as that of a page."""
    return str(frame.f_globals.get("__name__", ""))
