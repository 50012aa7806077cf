"""Which process runs something, and whether it still can."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from functools import cache
from pathlib import Path
from typing import Final

_ENDED: Final = frozenset({"Z", "X", "x"})
"""States of processes that are listed, and run nothing any more."""

_alive_here: Final[dict[str, asyncio.AbstractEventLoop | None]] = {}
"""Tokens of what this process runs now, with the event loop that does, if one does."""


def new_owner() -> str:
    """A name for one run of something by this process, as `host pid 42 (…)`."""
    # Here, because the command line asks who is dead, and does not load all of the runtime for it.
    from fastroai.runtime.wakeup import running_loop

    token = uuid.uuid4().hex[:12]
    _alive_here[token] = running_loop()
    return f"{socket.gethostname()} pid {os.getpid()} ({_machine()} {_start_of(os.getpid())} {token})"


def release_owner(owner: str) -> None:
    """It has ended here."""
    _alive_here.pop(_parts(owner)[3], None)


def is_dead(owner: str) -> bool:
    """Whether it is certain that this owner runs nothing any more. Of other machines nothing is certain."""
    machine, start, pid, token = _parts(owner)
    if machine != _machine():
        return False
    if pid == os.getpid():
        return start == _start_of(pid) and not _runs_here(token)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return start != _start_of(pid)  # another process has got its number, or nobody has seen to its end yet


def _runs_here(token: str) -> bool:
    loop = _alive_here.get(token)
    return token in _alive_here and (loop is None or not loop.is_closed())


def _parts(owner: str) -> tuple[str, str, int, str]:
    try:
        front, _, back = owner.removesuffix(")").rpartition(" (")
        machine, start, token = back.split(" ")
        return machine, start, int(front.rpartition(" pid ")[2]), token
    except ValueError:
        return "", "", 0, ""


@cache
def _machine() -> str:
    """This machine since it was started, and the namespace in which its process numbers mean something."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return f"{socket.gethostname()}:{uuid.getnode():x}"


def _start_of(pid: int) -> str:
    """When a process was started, as far as the system tells."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "?"
    # The name in parentheses may itself have spaces and parentheses.
    state, *rest = status.rpartition(")")[2].split()
    return "ended" if state in _ENDED else rest[18]
