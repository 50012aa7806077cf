"""The fork server of the tests: a process that has imported what the others need, which are forked from it.

Python has one for each process, and whoever starts it says what it imports: this module, for all.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, Final

import pytest

from support.patience import PATIENCE

TESTS: Final = Path(__file__).parents[1]


@cache
def forks() -> Any:
    """What makes processes, pipes and barriers. A process has the environment of the first call."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["support.preloaded"])
    with pytest.MonkeyPatch.context() as patch:
        # The fork server does not take `sys.path` over before it imports.
        patch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), *sys.path]))
        forkserver.ensure_running()
    return context


@dataclass(frozen=True)
class Done:
    """What a script came to."""

    code: int
    out: str
    err: str


def run_script(script: str, folder: Path) -> Done:
    """Run Python in a folder, as a main module, in a process of its own."""
    path, out, err = folder / "script.py", folder / "script.out", folder / "script.err"
    path.write_text(script, encoding="utf-8")
    for said in (out, err):
        said.write_bytes(b"")
    process = forks().Process(target=_run, args=(path, out, err, dict(os.environ)), daemon=False)
    process.start()
    process.join(PATIENCE)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError(f"the script does not end: {out.read_text()}\n{err.read_text()}")
    code: int = process.exitcode
    process.close()
    return Done(code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))


class Program:
    """Python with these arguments, `-m module …` or `file.py …`, and what tests use of `subprocess.Popen`."""

    def __init__(
        self, *arguments: object, folder: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        (out, its_out), (err, its_err) = socket.socketpair(), socket.socketpair()
        with out, its_out, err, its_err:
            words = [str(argument) for argument in arguments]
            given = words, folder or Path.cwd(), {**os.environ, **(environment or {})}, its_out, its_err
            self._process = forks().Process(target=_run_program, args=given, daemon=True)
            self._process.start()
            self.stdout, self.stderr = out.makefile("r"), err.makefile("r")

    def send_signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()

    @property
    def returncode(self) -> int | None:
        """Its exit code, `None` before its end."""
        code: int | None = self._process.exitcode
        return code

    def end(self) -> tuple[int, str, str]:
        """Wait for its end. Return the exit code, and what it has written that nobody has read."""
        with self.stdout, self.stderr:
            out, err = self.stdout.read(), self.stderr.read()
        self._process.join(PATIENCE)
        assert self.returncode is not None, f"the program does not end: {out}\n{err}"
        return self.returncode, out, err


def _run_program(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], out: socket.socket, err: socket.socket
) -> None:
    _take_over(folder, environment)
    for number, end in ((1, out), (2, err)):
        os.dup2(end.fileno(), number)
        end.close()
    sys.stdout, sys.stderr = open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    try:
        if words[0] == "-m":
            sys.argv = list(words[1:])
            sys.path.insert(0, str(folder))
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(words)
            runpy.run_path(words[0], run_name="__main__")
    except KeyboardInterrupt:  # as Python ends by it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


class UvicornProcess:
    """A process that serves an application on a socket that listens."""

    def __init__(
        self,
        listener: socket.socket,
        *arguments: str,
        folder: Path,
        environment: Mapping[str, str],
        log: Path,
    ) -> None:
        """`arguments` are those of uvicorn. The socket stays open here."""
        given = (listener, arguments, folder, {**os.environ, **environment}, log)
        self._process = forks().Process(target=_serve, args=given, daemon=True)
        self._process.start()

    def send_signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def wait(self, seconds: float) -> int:
        """Wait for its end, and return its exit code, as `subprocess.Popen` does."""
        self._process.join(seconds)
        code = self._process.exitcode
        assert code is not None, "the server does not end"
        return int(code)


class ForkedProcess:
    """A process that calls a function, with the methods of `subprocess.Popen`."""

    def __init__(
        self, target: Callable[..., object], *arguments: object, environment: Mapping[str, str]
    ) -> None:
        given = (target, arguments, dict(environment))
        self._process = forks().Process(target=_call, args=given, daemon=True)
        self._process.start()
        self.pid: int = self._process.pid

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def wait(self, seconds: float) -> int:
        """Wait for its end, and return its exit code."""
        self._process.join(seconds)
        code = self._process.exitcode
        assert code is not None, "the process does not end"
        return int(code)


def _call(target: Callable[..., object], arguments: Sequence[object], environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    target(*arguments)


def _serve(
    listener: socket.socket,
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    log: Path,
) -> None:
    _enter(folder, environment, out=log, err=log)
    sys.argv = ["uvicorn", *arguments, "--fd", str(listener.fileno())]
    runpy.run_module("uvicorn", run_name="__main__")


def _run(path: Path, out: Path, err: Path, environment: Mapping[str, str]) -> None:
    _enter(path.parent, environment, out=out, err=err)
    sys.argv = [str(path)]
    try:
        runpy.run_path(str(path), run_name="__main__")
    except Exception:
        traceback.print_exc()
        sys.exit(1)


def _enter(folder: Path, environment: Mapping[str, str], *, out: Path, err: Path) -> None:
    """Take over what a new process would have."""
    _take_over(folder, environment)
    for number, place in ((0, os.devnull), (1, out), (2, err)):
        opened = os.open(place, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115


def _take_over(folder: Path, environment: Mapping[str, str]) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
