"""What people see of a run: lines in a log, a table in a terminal."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from fastroai.errors import MissingExtraError, StepExecutionError
from fastroai.pipelines import Pipeline, Progress, ShowProgress, StepConfig, StepContext, step
from fastroai.runs.progress import displays, showing
from fastroai.runs.progress.displays import LogDisplay, TerminalDisplay

EVIL = "<b>\x1b[31m[bold]\u202e"


@step
async def think(ctx: StepContext) -> str:
    return "thought"


@step
async def fail(ctx: StepContext) -> str:
    raise ValueError(f"broken\n{EVIL}")


def lines_of(text: str) -> list[str]:
    """Lines of a log, without their times."""
    fixed = re.sub(r"^ *\d+\.\d{3} s  ", "", text, flags=re.MULTILINE)
    return re.sub(r"[\d.e-]+ m?s\b", "TIME", fixed).splitlines()


async def test_a_log_has_a_line_for_what_happens_to_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    config = StepConfig(retries=1, retry_delay=0)
    pipeline = Pipeline(
        f"desk {EVIL}",
        {"a": think, "b": fail, "c": think},
        {"b": ["a"], "c": ["b"]},
        step_configs={"b": config},
    )
    with pytest.raises(StepExecutionError):
        await pipeline.run(progress=True)
    out, err = capsys.readouterr()
    shown, failed = r"desk <b>\x1b[31m[bold]\u202e", r"failed: ValueError: broken <b>\x1b[31m[bold]\u202e"
    assert out == ""
    assert lines_of(err) == [
        f"{shown}/a: started, because it needs no other step",
        f"{shown}/a: finished",
        f"{shown}/b: started, because 'a' was the last that it needed",
        f"{shown}/b: attempt 1 {failed}; tried again after TIME",
        f"{shown}/b: {failed}",
        f"{shown}/c: skipped, because 'b' failed",
        f"{shown}: failed: 3/3 steps, 1 failed; $0.00; TIME",
    ]


async def test_runs_of_one_name_at_the_same_time_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = Pipeline("desk", {"a": think})
    await asyncio.gather(pipeline.run(progress=True, run_id="one"), pipeline.run(progress=True, run_id="two"))
    ended = [line for line in lines_of(capsys.readouterr().err) if "steps" in line or "1/1 step" in line]
    assert ended == ["desk: finished: 1/1 step; $0.00; TIME", "desk two: finished: 1/1 step; $0.00; TIME"]


async def test_runs_that_share_an_id_are_numbered(capsys: pytest.CaptureFixture[str]) -> None:
    async def together(ctx: StepContext) -> None:
        inner = Pipeline("inner", {"a": think})
        await asyncio.gather(*(inner.run(progress=True) for _ in range(3)))

    await Pipeline("outer", {"together": step(together)}).run()
    ended = [line.split(":")[0] for line in lines_of(capsys.readouterr().err) if ": finished: " in line]
    assert sorted(ended) == ["inner", "inner 2", "inner 3"]


async def test_a_log_says_now_and_then_how_far_a_long_run_is(capsys: pytest.CaptureFixture[str]) -> None:
    display = LogDisplay()
    one = Progress(run_id="r", name="rows", noun="row", done=3, failed=1, total=200, seconds=12, rate=0.5)
    display.draw([("rows", Progress(run_id="r", name="rows", seconds=3))], ())
    display.draw([("rows", one)], ())
    display.draw([("rows", one)], ())
    said = "   12.000 s  rows: running: 4/200 rows, 1 failed; $0.00; 12 s, 0.5/s, 6:32 left\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("progress", [False, "auto"])
async def test_a_log_has_nothing_unless_it_is_asked_for(
    progress: ShowProgress, capsys: pytest.CaptureFixture[str]
) -> None:
    await Pipeline("desk", {"a": think}).run(progress=progress)
    assert capsys.readouterr() == ("", "")


async def test_nobody_looks_where_there_is_no_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert (await Pipeline("desk", {"a": think}).run(progress=True)).ok


async def test_a_display_that_fails_does_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(*args: object) -> None:
        raise BrokenPipeError("the terminal is gone")

    monkeypatch.setattr(LogDisplay, "told", gone)
    with caplog.at_level(logging.ERROR):
        assert (await Pipeline("desk", {"a": think}).run(progress=True)).ok
    assert caplog.text.count("the progress display failed; the run is not affected") == 1


async def test_the_display_ends_with_a_run_that_is_cancelled(capsys: pytest.CaptureFixture[str]) -> None:
    started = asyncio.Event()

    @step
    async def wait(ctx: StepContext) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    task = asyncio.create_task(Pipeline("desk", {"wait": wait}).run(progress=True))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert lines_of(capsys.readouterr().err)[-1] == "desk: cancelled: 0/1 step; $0.00; TIME"
    await Pipeline("next", {"a": think}).run(progress=True)
    assert lines_of(capsys.readouterr().err)[-1] == "next: finished: 1/1 step; $0.00; TIME"


# --- terminals ---


def drawn(width: int, runs: Sequence[tuple[str, Progress]]) -> str:
    """What a terminal of that width shows of runs."""
    display = TerminalDisplay()
    display._console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    with display._console.capture() as shown:
        display._console.print(display._table(runs))
    return shown.get()


def test_a_narrow_terminal_leaves_out_the_last_columns() -> None:
    one = Progress(run_id="r", name="desk", done=3, total=7, running=("write",), seconds=2, rate=1.5)
    wide = drawn(120, [("desk", one)])
    bar = "━" * 6 + "╸"  # the rest of the bar differs in colour only
    time = ["2", "s,", "1.5/s,", "2.67", "s", "left"]
    assert wide.split() == ["desk", "3/7", "steps", "$0.00", bar, *time, "write"]
    assert drawn(30, [("desk", one)]).split() == ["desk", "3/7", "steps", "$0.00"]
    assert all(len(line) <= 60 for line in drawn(60, [("d" * 500, one)] * 3).splitlines())


def test_a_terminal_shows_a_few_of_many_runs_and_no_markup_of_theirs() -> None:
    runs = [(f"{number} {EVIL}", Progress(run_id="r", name="desk", running=(EVIL,))) for number in range(100)]
    shown = drawn(120, runs)
    assert shown.count("\n") == displays._MOST_SHOWN + 1
    assert shown.splitlines()[-1].strip() == "and 92 more"
    assert r"<b>\x1b[31m[bold]\u202e" in shown
    assert "\x1b" not in shown


def test_without_rich_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(showing.display_for(True), TerminalDisplay)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(showing.display_for(True), LogDisplay)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setitem(sys.modules, "rich.live", None)
    with pytest.raises(MissingExtraError, match=r"progress=True in a terminal needs rich: .*\[cli\]"):
        showing.display_for(True)


SCRIPT = """
import asyncio
from fastroai.pipelines import Pipeline, StepConfig, StepContext, step

@step
async def slow(ctx: StepContext) -> str:
    print("said on the way")
    await asyncio.sleep(0.3)
    return ""

@step
async def fail(ctx: StepContext) -> str:
    raise ValueError("broken")

async def main():
    goes_on = {"fail": StepConfig(on_error="continue")}
    steps = {"slow": slow, "fail": fail}
    one = Pipeline("one", steps, {"fail": ["slow"]}, step_configs=goes_on, output_step="slow")
    await asyncio.gather(one.run(progress=True), Pipeline("two", {"slow": slow}).run(progress=True))

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("to_file", [False, True])
def test_a_pseudo_terminal_shows_runs_that_move(tmp_path: Path, to_file: bool) -> None:
    script, said = tmp_path / "script.py", tmp_path / "said.txt"
    script.write_text(SCRIPT, encoding="utf-8")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    with said.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.DEVNULL,
            stdout=file if to_file else theirs,
            stderr=theirs,
            env=environment,
        )
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], 300)[0]:
        try:
            got = os.read(ours, 65536)
        except OSError:  # Linux says so at the end
            break
        if not got:
            break
        shown += got
    os.close(ours)
    assert process.wait(timeout=300) == 0
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown.decode())
    text = text.replace("\r", "\n")
    assert "one  0/2 steps" in text
    assert re.search(r"^one/fail: failed: ValueError: broken\s*$", text, re.MULTILINE)
    for ended in (r"two: finished: 1/1 step; \$0\.00; ", r"one: finished: 2/2 steps, 1 failed; \$0\.00; "):
        assert len(re.findall(ended, text)) == 1
    assert text.count("said on the way") == (0 if to_file else 2)
    assert said.read_text() == ("said on the way\n" * 2 if to_file else "")
