"""`python -m fastroai.testing`, mostly in a process of its own."""

import io
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from support.patience import PATIENCE

from fastroai.testing.__main__ import main


@contextmanager
def running(*arguments: str) -> Iterator[tuple["subprocess.Popen[str]", dict[str, str]]]:
    """The process, and the environment variables that it says."""
    command = [sys.executable, "-W", "error", "-m", "fastroai.testing", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout
    environment: dict[str, str] = {}
    try:
        while len(environment) < 4:
            line = process.stdout.readline()
            assert line, "it ended before it had said how to reach it"
            if match := re.fullmatch(r"export (\w+)=(\S+)\n", line):
                environment[match[1]] = match[2]
        yield process, environment
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_logs_each_request_and_prints_the_totals(ending: signal.Signals) -> None:
    with running("--port", "0", "--latency", "0.01") as (process, environment):
        url = f"{environment['OPENAI_BASE_URL']}/responses"
        for prompt in ("four", "fivefive"):
            assert httpx2.post(url, json={"model": "gpt-5-mini", "input": prompt}).status_code == 200
        os.kill(process.pid, ending)
        output, _ = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0
    assert "#1 openai-responses gpt-5-mini: 200; input 1 (0 cached), output 3; " in output
    assert "2 requests, 2 of them billed: 3 input tokens (0 cached), 7 output tokens" in output
    assert "Traceback" not in output


def test_the_environment_it_prints_is_complete() -> None:
    with running("--port", "0") as (_, environment):
        assert sorted(environment) == [
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_BASE_URL",
            "OPENAI_API_KEY",
            "OPENAI_BASE_URL",
        ]
        assert environment["OPENAI_BASE_URL"] == environment["ANTHROPIC_BASE_URL"] + "/v1"


class Output(io.StringIO):
    """Standard output that tells when it says how to reach the server."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if "ANTHROPIC_API_KEY" in self.getvalue():
            self.ready.set()
        return written


def test_it_ends_by_ctrl_c_in_this_process_too(monkeypatch: pytest.MonkeyPatch) -> None:
    output = Output()
    monkeypatch.setattr(sys, "stdout", output)

    def ask_and_interrupt() -> None:
        output.ready.wait(PATIENCE)
        found = re.search(r"OPENAI_BASE_URL=(\S+)", output.getvalue())
        assert found
        httpx2.post(f"{found[1]}/responses", json={"model": "m", "input": "hi"})
        os.kill(os.getpid(), signal.SIGINT)

    handler = signal.getsignal(signal.SIGTERM)
    try:
        with ThreadPoolExecutor() as threads:
            asking = threads.submit(ask_and_interrupt)
            assert main(["--port", "0"]) == 0
            asking.result()
    finally:
        signal.signal(signal.SIGTERM, handler)
        logging.getLogger("fastroai.testing").handlers.clear()
        logging.getLogger("fastroai.testing").setLevel(logging.NOTSET)

    assert "1 requests, 1 of them billed" in output.getvalue()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--host", "0.0.0.0"], "expected a loopback host"),
        (["--latency", "-1"], "expected seconds"),
        (["--host", "192.0.2.1", "--allow-remote"], "assign"),
    ],
)
def test_bad_options_are_one_line_and_no_traceback(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--port", "0"]) == 1

    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert problem in error
    assert error.count("\n") == 1


def test_rules_of_a_file_answer(tmp_path: Path) -> None:
    file = tmp_path / "rules.py"
    file.write_text(
        "from fastroai.testing import ModelServer, Reply\n"
        "def rules(server: ModelServer) -> None:\n"
        "    server.rule(lambda request: 'four' in request.prompt, Reply('by rule'))\n"
    )
    with running("--port", "0", "--rules", str(file)) as (_, environment):
        url = f"{environment['OPENAI_BASE_URL']}/responses"
        assert "by rule" in httpx2.post(url, json={"model": "gpt-5-mini", "input": "four"}).text


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("x = 1", "it has no function `rules(server)`"),
        ("rules = 1 / 0", "ZeroDivisionError: division by zero"),
        (
            "def rules(server): server.rules()",
            "AttributeError: 'ModelServer' object has no attribute 'rules'",
        ),
        (None, "No such file or directory"),
    ],
)
def test_a_file_without_rules_is_told_with_what_is_wrong(
    code: str | None, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rules.py"
    if code is not None:
        file.write_text(code)
    assert main(["--port", "0", "--rules", str(file)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: --rules {file}: ")
    assert problem in error
