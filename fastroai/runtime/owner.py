"""Names of owners, the processes that have runs or leases, and whether an owner is still alive."""

from __future__ import annotations

import asyncio
import os
import socket
import time
import uuid
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from fastroai.runtime.concurrency.wakeup import running_loop

_ENDED: Final = frozenset({"Z", "X", "x"})
"""States of processes that the system still lists although they have ended."""

_SINCE_START: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)

_alive_here: Final[dict[str, asyncio.AbstractEventLoop | None]] = {}
"""Tokens of the owners in this process, each with the event loop on which it runs, if any."""


def new_owner() -> str:
    """Return a new owner name for one run in this process, such as `host pid 42 (…)`."""
    token = uuid.uuid4().hex[:12]
    _alive_here[token] = running_loop()
    return f"{process_owner().removesuffix(')')} {token})"


def release_owner(owner: str) -> None:
    """Note that an owner of this process has ended."""
    _alive_here.pop(_parts(owner)[3], None)


def process_owner() -> str:
    """Return the owner name of this process, for things that it has until it ends."""
    return _name_of(os.getpid())


def steady_seconds() -> float:
    """Return seconds of a clock that nobody can set. On Linux it goes on while the machine is suspended."""
    return time.monotonic() if _SINCE_START is None else time.clock_gettime(_SINCE_START)


def shares_steady_clock(owner: str) -> bool:
    """Return whether the owner has the same `steady_seconds`: it is on this machine, since its last start."""
    return _SINCE_START is not None and _parts(owner)[0] == _machine()


def is_dead(owner: str) -> bool:
    """Return whether the owner has certainly ended. For owners on other machines that is never certain."""
    if owner == process_owner():
        return False
    machine, start, pid, token = _parts(owner)
    if machine != _machine():
        return False
    if pid == os.getpid() and start == _start_of(pid):
        return bool(token) and not _runs_here(token)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return start != _start_of(pid)  # another process has its number now, or it is a zombie


def _runs_here(token: str) -> bool:
    loop = _alive_here.get(token)
    return token in _alive_here and (loop is None or not loop.is_closed())


def _parts(owner: str) -> tuple[str, str, int, str]:
    try:
        front, _, back = owner.removesuffix(")").rpartition(" (")
        machine, start, *token = back.split(" ")
        return machine, start, int(front.rpartition(" pid ")[2]), " ".join(token)
    except ValueError:
        return "", "", 0, ""


@lru_cache(maxsize=1)  # a forked process has another pid
def _name_of(pid: int) -> str:
    return f"{socket.gethostname()} pid {pid} ({_machine()} {_start_of(pid)})"


@cache
def _machine() -> str:
    """Return an id of this machine since its last start, and of the namespace of its process numbers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return f"{socket.gethostname()}:{uuid.getnode():x}"


def _start_of(pid: int) -> str:
    """Return the start time of a process as the system tells it; `ended` for a zombie, `?` if unknown."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "?"
    # The name in parentheses may itself have spaces and parentheses.
    state, *rest = status.rpartition(")")[2].split()
    return "ended" if state in _ENDED else rest[18]
