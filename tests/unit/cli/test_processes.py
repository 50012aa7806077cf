"""The command line as people use it: in a process of its own, on a file that another process has written."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.fork_server import Program
from support.patience import PATIENCE
from support.run_logs import support_desk

from fastroai.store import SQLiteRunStore

USER_CODE = """
import asyncio
import os

from fastroai import Pipeline, StepContext, step
from fastroai.store import SQLiteRunStore


@step
async def first(ctx: StepContext) -> str:
    return "first"


@step
async def second(ctx: StepContext) -> str:
    if "HANG" in os.environ:
        print("in the second step", flush=True)
        await asyncio.Event().wait()
    return ctx.get_dependency("first", str) + ", second"


desk = Pipeline("desk", {"first": first, "second": second}, {"second": ["first"]})

if __name__ == "__main__":
    asyncio.run(desk.execute(run_id="one", store=SQLiteRunStore("runs.db")))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(USER_CODE)
    return tmp_path


RUNS = ("-m", "fastroai.cli", "runs")


def fastroai(folder: Path, *arguments: str) -> tuple[int, str, str]:
    return Program(*RUNS, *arguments, "--store", "runs.db", folder=folder).end()


@pytest.mark.slow
def test_a_run_whose_process_was_killed_is_seen_resumed_and_deleted(folder: Path) -> None:
    process = Program("app.py", folder=folder, environment={"HANG": "1"})
    assert process.stdout.readline() == "in the second step\n"
    running = json.loads(fastroai(folder, "list", "--json")[1])
    assert [(run["run_id"], run["status"]) for run in running] == [("one", "running")]
    process.kill()
    process.end()
    assert "interrupted" in fastroai(folder, "list")[1], "at once, not when the lease ends"
    resume = (*RUNS, "resume", "one", "--pipeline", "app:desk", "--store", "runs.db")
    resumed = subprocess.run(
        [sys.executable, *resume],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
    )
    assert (resumed.returncode, resumed.stdout) == (0, "run one: finished\nfirst, second\n")
    assert "first: started" not in resumed.stderr
    assert "ignored" not in resumed.stderr, "nothing is left over when the process exits"
    _, explained, _ = fastroai(folder, "trace", "one")
    assert "the run was resumed; its process had died or stopped in second" in explained


INTERRUPTING = """
import os, signal, sys

module, *options = sys.argv[1:]
sys.argv[1:] = options


class Finder:
    def find_spec(name, path, target=None):
        if name == module:
            sys.meta_path.remove(Finder)
            os.kill(os.getpid(), signal.SIGINT)


sys.meta_path.insert(0, Finder)
from fastroai.cli import main

main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("module", ["fastroai.errors", "fastroai.cli.app", "fastroai.cli.running", "app"])
def test_an_interrupt_while_modules_load_is_one_line(folder: Path, with_a_run: Path, module: str) -> None:
    options = ["runs", "resume", "one", "--pipeline", "app:desk", "--store", "runs.db"]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTING, module, *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "fastroai: interrupted\n")


BLOCKING = """
import time

from fastroai import Pipeline, StepContext, step


@step
def first(ctx: StepContext) -> str:
    print("begun", flush=True)
    time.sleep(600)
    return "first"


desk = Pipeline("desk", {"first": first})
"""


@pytest.mark.slow
def test_an_interrupt_does_not_wait_for_a_thread_that_cannot_be_stopped(tmp_path: Path) -> None:
    """The first one cancels the run, and the second one ends the process, with one line."""
    (tmp_path / "app.py").write_text(BLOCKING)
    code = (
        "import asyncio, app\n"
        "from fastroai import SQLiteRunStore\n"
        "async def main():\n"
        "    await app.desk.execute(run_id='one', store=SQLiteRunStore('runs.db'))\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.kill()
    resume = ["-m", "fastroai.cli", "runs", "resume", "one", "--pipeline", "app:desk", "--store", "runs.db"]
    with subprocess.Popen(
        [sys.executable, *resume, "--force"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as command:
        assert command.stderr is not None
        lines = iter(command.stderr.readline, "")
        assert any("first: started" in line for line in lines)
        command.send_signal(signal.SIGINT)
        assert any(line == "fastroai: interrupted\n" for line in lines)
        command.send_signal(signal.SIGINT)
        assert [*lines] == []
    assert command.returncode == -signal.SIGINT


def test_a_process_that_imports_everything_exits_without_a_word() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import fastroai.cli.running"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stderr == ""


@pytest.fixture
def with_a_run(tmp_path: Path) -> Path:
    """A folder with a file in which a run is."""

    async def write() -> None:
        store = SQLiteRunStore(tmp_path / "runs.db")
        await support_desk("one").write(store)
        await store.aclose()

    asyncio.run(write())
    return tmp_path


def test_an_error_is_one_line(with_a_run: Path) -> None:
    code, out, err = fastroai(with_a_run, "show", "nope")
    assert (code, out, err.count("\n")) == (3, "", 1)


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 4)])
def test_on_a_terminal_the_answer_decides(with_a_run: Path, answer: bytes, code: int) -> None:
    controller, terminal = pty.openpty()
    os.write(controller, answer)
    asked = subprocess.run(
        [sys.executable, "-m", "fastroai.cli", "runs", "delete", "one", "--store", "runs.db"],
        cwd=with_a_run,
        stdin=terminal,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    os.close(controller)
    os.close(terminal)
    assert asked.returncode == code
    assert "Delete run one? [y/N]" in asked.stderr


def test_looking_at_runs_imports_no_model_library(with_a_run: Path) -> None:
    code = (
        "import sys, contextlib\n"
        "from fastroai.cli import main\n"
        "for command in (['list'], ['show', 'one'], ['trace', 'one'], ['purge', '--older-than', '1d']):\n"
        "    sys.argv = ['fastroai', 'runs', *command, '--store', 'runs.db']\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        main()\n"
        "heavy = {'pydantic_ai', 'logfire', 'fastroai.runtime.scope', 'genai_prices', 'redis', 'psycopg'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=with_a_run,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_json_in_a_file_is_read_as_utf_8_whatever_the_locale_says(tmp_path: Path) -> None:
    (tmp_path / "inputs.json").write_text('{"city": "Zürich"}', encoding="utf-8")
    code = "from fastroai.cli.targets import json_value; print(ascii(json_value('--inputs', '@inputs.json')))"
    strict = ["-X", "warn_default_encoding", "-W", "error::EncodingWarning"]
    done = subprocess.run(
        [sys.executable, *strict, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout == "{'city': 'Z\\xfcrich'}\n", done.stderr
