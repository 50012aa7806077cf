"""`Pending`: the call of a typed function, until it is awaited."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Pending(Coroutine[Any, Any, T_co]):
    """A call that begins when it is awaited, or made a task. It refuses to be used as its result."""

    __slots__ = ("__name__", "__qualname__", "_at_once", "_begin", "_is_told", "_running")

    def __init__(
        self,
        name: str,
        begin: Callable[[], Coroutine[Any, Any, T_co]],
        at_once: Callable[[], object] | None = None,
    ) -> None:
        """Take the name of the function, and a function that begins the call.

        `at_once` makes the call without a wait, if that is possible; then it can be a condition by itself.
        """
        self.__name__ = self.__qualname__ = name
        self._begin, self._at_once = begin, at_once
        self._is_told = False
        """Whether an error has already said that the call was not awaited, or it was made at once."""
        self._running: Coroutine[Any, Any, T_co] | None = None

    def __del__(self) -> None:
        """Warn of a call that was forgotten, as Python does of coroutines."""
        if self._running is None and not self._is_told:
            message = f"the call of {self.__name__!r} was never awaited: write `await {self.__name__}(...)`"
            warnings.warn(message, RuntimeWarning, stacklevel=2, source=self)

    def __await__(self) -> Generator[Any, Any, T_co]:
        """Make the call."""
        return self._begun().__await__()

    def send(self, value: Any, /) -> Any:
        """See `Coroutine`."""
        return self._begun().send(value)

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Any:
        """See `Coroutine`."""
        error = kind if isinstance(kind, BaseException) else value
        return self._begun().throw(error if isinstance(error, BaseException) else kind(error))  # type: ignore[operator]

    def close(self) -> None:
        """See `Coroutine`."""
        self._begun().close()

    @property
    def has_begun(self) -> bool:
        """Whether it was awaited, or made a task that has run."""
        return self._running is not None

    def _begun(self) -> Coroutine[Any, Any, T_co]:
        if self._running is None:
            self._running = self._begin()
        return self._running

    def __repr__(self) -> str:
        return f"<call of {self.__name__!r}, to be awaited>"

    def __bool__(self) -> bool:
        """Return the truth of a call that can be made at once. Refuse to be a condition for any other."""
        # Python 3.12 does this to find out whether a task has a coroutine, when it shows the task.
        if sys._getframe(1).f_globals.get("__name__") == "asyncio.base_tasks":
            return True
        if self._at_once is None:
            raise self._not_awaited("has no truth value")
        self._is_told = True
        return bool(self._at_once())

    def _refuse_comparison(self, other: object) -> NoReturn:
        raise self._not_awaited("cannot be compared")

    def _refuse_items(self, *_: object) -> NoReturn:
        raise self._not_awaited("has no items")

    __iter__ = __len__ = __getitem__ = __contains__ = _refuse_items
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse_comparison
    __hash__ = object.__hash__

    if not TYPE_CHECKING:  # otherwise, type checkers would accept any attribute

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse to have attributes, because the call was not awaited."""
            error = self._not_awaited(f"has no {name!r}")
            raise AttributeError(str(error), name=name, obj=self)

    def _not_awaited(self, what: str) -> TypeError:
        name, self._is_told = self.__name__, True
        return TypeError(f"the call of {name!r} was not awaited, so it {what}: write `await {name}(...)`")
