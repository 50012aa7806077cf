"""How provider limits and circuit breakers are shared with other processes: by a store."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from fastroai.errors import ConfigurationError, StoreUnavailable
from fastroai.runtime.options import seconds_above_zero
from fastroai.usage.budget import OnUncertain, known_policy
from fastroai.usage.shared.spend_limit import KEY_EXPECTED, is_key

if TYPE_CHECKING:
    from fastroai.runtime.providers.shared_circuit import OpenCircuit
    from fastroai.runtime.providers.shared_line import OpenLine

T = TypeVar("T")
OpenedT = TypeVar("OpenedT", covariant=True)

logger: Final = logging.getLogger("fastroai.runtime")

DEFAULT_KEY: Final = "default"
DEFAULT_LEASE: Final = 30.0
_LONGEST_LEASE: Final = 3600.0


class ValueStore(Protocol):
    """What limits need of a store of runs, `fastroai.store.RunStore`."""

    async def read(self, key: str, *, after: int = 0) -> object:
        """Return the values of a key, as `fastroai.store.StoredValues`."""
        ...

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        """Replace the value of a key, if it has this revision."""
        ...


StoreLike: TypeAlias = ValueStore | str | os.PathLike[str]
"""A store of runs, or the path or URL of one."""


class SharedState(Protocol[OpenedT]):
    """Values that processes change together, each under a name."""

    async def ask(self, name: str, act: Callable[[OpenedT], T]) -> T:
        """Open a value, act on it, keep what has changed, and return what the act returns."""
        ...

    async def changed(self, name: str, timeout: float) -> None:
        """Return when the value may have changed since this process asked, or after `timeout` seconds."""
        ...


class LimitStore(Protocol):
    """The place in which processes share limits. Two of the same place are equal."""

    def in_background(self, work: Coroutine[Any, Any, T], *, finishes: bool = False) -> object:
        """Run a coroutine on the background loop. It cannot be imported here: scopes know limits."""
        ...

    @property
    def lines(self) -> SharedState[OpenLine]:
        """The lines before providers."""
        ...

    @property
    def circuits(self) -> SharedState[OpenCircuit]:
        """The circuits of providers."""
        ...


@dataclass(frozen=True, slots=True)
class Sharing:
    """With whom something is shared: with all that have the same store and key."""

    store: LimitStore
    key: str
    on_unavailable: OnUncertain
    lease: float

    def allow(self, error: StoreUnavailable, what: str) -> None:
        """Go on without the store, if that is allowed, and say so.

        Raises:
            StoreUnavailable: it is not.
        """
        if self.on_unavailable == "refuse":
            advice = f"{error.advice}, or on_unavailable='allow' lets each process keep {what} by itself"
            raise StoreUnavailable(error.store, error.reason, advice) from error
        logger.warning("%s is kept by this process alone: %s", what, error.reason)


def sharing_by(store: StoreLike | None, key: str, on_unavailable: str, lease: object) -> Sharing | None:
    """Return how something is shared; `None` without a store.

    Raises:
        ConfigurationError: an option is invalid.
        MissingExtraError: the client of the database at the URL is not installed.
    """
    if not is_key(key):
        raise ConfigurationError("key", key, KEY_EXPECTED)
    known_policy("on_unavailable", on_unavailable)
    seconds = seconds_above_zero("lease", lease)  # type: ignore[arg-type]
    if seconds > _LONGEST_LEASE:
        raise ConfigurationError("lease", lease, f"seconds, above 0 and at most {_LONGEST_LEASE:,.0f}")
    if store is None:
        return None
    # Stores are above this package, and only those who name one need it.
    opened: LimitStore = import_module("fastroai.store.shared_limits").open_limit_store(store)
    return Sharing(opened, key, on_unavailable, seconds)  # type: ignore[arg-type]
