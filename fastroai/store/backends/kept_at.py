"""Equality of stores that keep the same data."""

from __future__ import annotations

from fastroai.store.backends.address import Address


class KeptAt:
    """A base class of stores, which are equal if they keep their data at one place."""

    _address: Address | None = None
    """The address that the store was given, if it has one."""

    @property
    def _place(self) -> object:
        """The place: what the `repr` says, and the address if the `repr` does not show it."""
        is_shown = self._address is None or self._address.is_clear
        return repr(self), None if is_shown else self._address

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeptAt) and type(self) is type(other) and self._place == other._place

    def __hash__(self) -> int:
        return hash(self._place)
