"""Which process this is: what a scope counts is in the process that opened it."""

from __future__ import annotations

import os
from typing import Final

_own: Final = [os.getpid()]


def this_process() -> int:
    """Return the id of this process, without asking the operating system each time."""
    return _own[0]


def _after_fork() -> None:
    _own[0] = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
