"""The id of this process, which scopes compare: a scope counts only in the process that opened it."""

from __future__ import annotations

import os
from typing import Final

from fastroai.forks import in_forked_process


class _Process:
    """This process, which may have been forked from another one."""

    __slots__ = ("__weakref__", "id")

    id: int

    def __init__(self) -> None:
        self.look()

    def look(self) -> None:
        """Ask the operating system for the id."""
        self.id = os.getpid()


THIS_PROCESS: Final = _Process()
"""This process. Its `id` is kept here, without a system call, as each lookup of a scope compares it."""

in_forked_process(THIS_PROCESS.look)
