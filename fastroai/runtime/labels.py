"""Tags and tenants, the names by which spending is found and summed."""

from __future__ import annotations

from collections.abc import Collection
from contextvars import ContextVar
from typing import Final, NamedTuple

from fastroai.errors import ConfigurationError

_LONGEST: Final = 200


class Labels(NamedTuple):
    """The tags and the tenant of a scope, which everything below it inherits."""

    tags: tuple[str, ...] = ()
    tenant: str | None = None

    def inside(self, around: Labels) -> Labels:
        """Return the labels of a scope that is given these labels inside of a scope with the labels `around`.

        Tags add up. A tenant replaces the one around it.
        """
        tags = tuple(dict.fromkeys((*around.tags, *self.tags)))
        return Labels(tags, around.tenant if self.tenant is None else self.tenant)


NO_LABELS: Final = Labels()

current_row: Final[ContextVar[int | None]] = ContextVar("fastroai_row", default=None)
"""The number, from 0, of the item of `ctx.map`, or the coroutine of `parallel` or `race`, that runs here."""


def labels_of(tags: Collection[str], tenant: str | None) -> Labels:
    """Check the tags and the tenant that a caller has given, and return them as labels.

    Raises:
        ConfigurationError: a tag or the tenant is not printable text of 1 to 200 characters, or `tags` is a
            single text.
    """
    if tenant is None and tags == ():
        return NO_LABELS
    if isinstance(tags, str):
        raise ConfigurationError("tags", tags, f"several tags, such as [{tags!r}]")
    for option, name in (("tenant", tenant), *(("tags", tag) for tag in tags)):
        if name is not None and not (
            isinstance(name, str) and name.isprintable() and 0 < len(name) <= _LONGEST
        ):
            raise ConfigurationError(option, name, f"printable text of 1 to {_LONGEST} characters")
    return Labels(tuple(dict.fromkeys(tags)), tenant)
