"""The newest PydanticAI with which the account was tested, and what holds above it.

A later PydanticAI may send texts and ask for work that this version of FastroAI does not know. What the
account sees of that is unbounded or incomplete. For the rest, bounds have the margin of an unknown host, and
`configure(strict_version=True)` refuses requests under budgets.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from fastroai.errors import FastroAIWarning

NEWEST_TESTED: Final = (2, 68)
"""The newest minor version of PydanticAI with which `make test` and `make test-versions` pass."""
_PACKAGE: Final = "pydantic-ai-slim"
_NEWEST: Final = ".".join(map(str, NEWEST_TESTED))


class UntestedVersionWarning(FastroAIWarning):
    """The installed PydanticAI is newer than any with which this version of FastroAI was tested."""


@cache
def untested_version() -> str | None:
    """Return the version of the installed PydanticAI if it is newer than the newest tested one, else `None`.

    A PydanticAI that does not tell its version counts as newer.
    """
    try:
        installed = version(_PACKAGE)
    except PackageNotFoundError:
        return "of an unknown version"
    release = re.match(r"(\d+)\.(\d+)", installed)
    is_tested = release is not None and (int(release[1]), int(release[2])) <= NEWEST_TESTED
    return None if is_tested else installed


@cache
def warn_if_untested() -> None:
    """Warn of an untested PydanticAI, once in each process."""
    installed = untested_version()
    if installed is not None:
        warnings.warn(
            f"PydanticAI {installed} is newer than {_NEWEST}, the newest that this version of FastroAI was "
            "tested with. What FastroAI does not know is reported as unknown or counts as a whole context "
            "window, and budgets reserve some thousand tokens more for each request. Upgrade FastroAI, or "
            f"install '{_PACKAGE}=={_NEWEST}.*'; configure(strict_version=True) refuses requests under "
            "budgets instead",
            UntestedVersionWarning,
            stacklevel=2,
        )


def _never() -> bool:
    return False


_is_strict: Callable[[], bool] = _never


def be_strict_when(asked: Callable[[], bool]) -> None:
    """Refuse an untested PydanticAI under budgets whenever a function returns true."""
    global _is_strict
    _is_strict = asked


def refusal() -> str | None:
    """Return why the installed PydanticAI is refused under budgets; `None` if it is not."""
    installed = untested_version() if _is_strict() else None
    if installed is None:
        return None
    return (
        f"PydanticAI {installed} is newer than {_NEWEST}, the newest that this version of FastroAI was "
        "tested with, and strict_version=True refuses it"
    )
