"""Runs the tests of time, threads and processes many times, on a machine that is far too busy for them.

    python tests/stress.py --times 20 [--workers 6] [--busy 4] [tests]

What such a test says must not depend on how busy the machine is. There are three workers for each core, which
keep each other waiting; `--busy` adds processes that only compute. Each failure is printed when it happens.
A test runs next to itself, too: its rounds are spread over the workers.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from support.rounds import ROUNDS

TESTS = Path(__file__).parent
ROOT = TESTS.parent
OF_TIME = re.compile(
    r"perf_counter|monotonic\(\)|time\.sleep|sleep\(0?\.\d|timeout=0?\.\d|os\.fork|os\.kill"
    r"|threading\.Thread|ThreadPoolExecutor|to_thread|Popen|create_subprocess|multiprocessing"
)
"""Found in the source of what depends on real time, or does several things at once.

A test that starts a program and waits until it has ended does one thing at a time.
"""
HAVE_COMMANDS = ("distributed", "durability", "properties", "versions", "workflows")
"""Folders whose tests have commands: `make machines`, `kill-sweep`, `faults`, `fuzz` and `test-versions`."""

SHARES_STATE = "test_invoice_desk.py"
"""Its tests use one service, which keeps what they have uploaded, so no test can run twice."""


def tests_of_time() -> list[str]:
    """Return the tests that depend on real time, threads or processes, themselves or by what they use."""
    return [
        f"{file.relative_to(ROOT)}::{test}"
        for file in sorted(TESTS.rglob("test_*.py"))
        if file.relative_to(TESTS).parts[0] not in HAVE_COMMANDS and file.name != SHARES_STATE
        for test in _of_time_in(file)
        if test.startswith("test_")
    ]


@cache
def _of_time_in(file: Path) -> list[str]:
    """Return the names that a file defines whose code matches `OF_TIME`, itself or by what it uses."""
    source, found, chosen = file.read_text("utf-8"), dict[str, ast.stmt](), set[str]()
    waiting = list[str]()
    for one in ast.parse(source).body:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[one.name] = one
        elif isinstance(one, ast.Assign):
            found |= {target.id: one for target in one.targets if isinstance(target, ast.Name)}
        elif isinstance(one, ast.ImportFrom) and one.module and one.module.startswith("support."):
            of_time = _of_time_in(TESTS.joinpath(*one.module.split(".")).with_suffix(".py"))
            waiting += [alias.asname or alias.name for alias in one.names if alias.name in of_time]
    waiting += [
        name for name, one in found.items() if OF_TIME.search(ast.get_source_segment(source, one) or "")
    ]
    while waiting:
        chosen.add(used := waiting.pop())
        waiting += [name for name, one in found.items() if name not in chosen and used in _names_in(one)]
    return [name for name in found if name in chosen]


def _names_in(statement: ast.stmt) -> set[str]:
    """The names that a statement uses, with those of parameters: fixtures are given by theirs."""
    return {one.id for one in ast.walk(statement) if isinstance(one, ast.Name)} | {
        one.arg for one in ast.walk(statement) if isinstance(one, ast.arg)
    }


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep processes busy beside the tests."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--times", type=int, default=20)
    options.add_argument("--busy", type=int, default=0)
    options.add_argument(
        "--workers", type=int, default=3 * (os.cpu_count() or 1), help="how many tests run at once"
    )
    options.add_argument("tests", nargs="*", help="tests, instead of those that depend on time")
    given = options.parse_args()
    tests = given.tests or tests_of_time()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "support.rounds",
        "-n",
        str(given.workers),
        "--dist",
        "worksteal",
    ]
    command += tests
    environment = os.environ | {
        ROUNDS: str(given.times),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH")))),
    }
    with busy(given.busy):
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
