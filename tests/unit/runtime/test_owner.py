"""Which process runs something, and whether it still can."""

import asyncio
import os
import subprocess
import sys

import pytest

from fastroai.runtime import owner as owners
from fastroai.runtime.owner import is_dead, new_owner, process_owner, release_owner

CHILD = "from fastroai.runtime.owner import new_owner; print(new_owner(), flush=True); input()"


def changed(owner: str, part: int, to: str) -> str:
    """Another machine (0), start (1) or token (2)."""
    front, _, back = owner.removesuffix(")").rpartition(" (")
    parts = back.split(" ")
    parts[part] = to
    return f"{front} ({' '.join(parts)})"


def test_what_this_process_runs_is_alive_until_it_is_released() -> None:
    owner = new_owner()
    assert f"pid {os.getpid()}" in owner
    assert not is_dead(owner)
    release_owner(owner)
    assert is_dead(owner)
    release_owner(owner)


def test_another_token_of_this_process_is_dead() -> None:
    assert is_dead(changed(new_owner(), 2, "000000000000"))


def test_of_another_machine_nothing_is_certain() -> None:
    owner = new_owner()
    release_owner(owner)
    assert not is_dead(changed(owner, 0, "elsewhere:1"))


@pytest.mark.parametrize("owner", ["", "somebody", "host pid x (a b c)", "host pid 1 (a b)"])
def test_of_an_owner_that_cannot_be_read_nothing_is_certain(owner: str) -> None:
    assert not is_dead(owner)


def test_a_number_that_no_process_can_have_is_nothing_certain() -> None:
    owner = new_owner()
    assert not is_dead(owner.replace(f"pid {os.getpid()}", f"pid {10**30}"))


def test_what_ran_on_a_loop_that_is_closed_is_dead() -> None:
    async def begin() -> str:
        owner = new_owner()
        assert not is_dead(owner)
        return owner

    assert is_dead(asyncio.run(begin()))


def test_this_process_is_alive_and_an_earlier_one_with_its_number_is_dead() -> None:
    owner = process_owner()
    assert f"pid {os.getpid()}" in owner
    assert not is_dead(owner)
    assert is_dead(changed(owner, 1, "1"))
    assert is_dead(changed(new_owner(), 1, "1"))


def test_a_forked_process_has_a_name_of_its_own() -> None:
    ours = process_owner()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, process_owner().encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        theirs = pipe.read()
    assert not is_dead(ours)
    assert f"pid {child} " in theirs
    os.waitpid(child, 0)
    assert is_dead(theirs)


def test_another_process_is_alive_until_it_ends_even_if_nobody_has_looked_at_its_end() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdin is not None
    owner = child.stdout.readline().strip()
    assert not is_dead(owner)
    assert is_dead(changed(owner, 1, "1")), "another process has got its number"
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_dead(owner), "it has ended, and its parent has yet to look"
    child.wait()
    assert is_dead(owner)
    child.stdout.close()
    child.stdin.close()


def test_a_process_of_somebody_else_may_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, signal: int) -> None:
        raise PermissionError

    owner = new_owner().replace(f"pid {os.getpid()}", "pid 1")
    monkeypatch.setattr(os, "kill", refuse)
    assert not is_dead(owner)


def test_without_proc_a_process_is_known_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> str:
        raise FileNotFoundError

    def forget() -> None:
        owners._machine.cache_clear()
        owners._name_of.cache_clear()

    monkeypatch.setattr(owners.Path, "read_text", missing)
    forget()
    try:
        owner = new_owner()
        assert " ? " in owner
        assert not is_dead(owner)
        release_owner(owner)
        assert is_dead(owner)
    finally:
        forget()
