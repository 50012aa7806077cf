"""Every command, its options and its exit codes, in this process and on a real SQLite file."""

from __future__ import annotations

import asyncio
import builtins
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support.run_logs import START, Log, definition, failure, support_desk, write
from typer.testing import CliRunner, Result

from fastroai.cli import main
from fastroai.cli.app import app
from fastroai.cli.targets import import_target
from fastroai.errors import FlowStopped, StepExecutionError
from fastroai.human import Inbox
from fastroai.runtime.owner import new_owner, release_owner
from fastroai.store import RunTrace, SQLiteRunStore
from fastroai.store.record.headers import header_key

SHAPE = definition({"a": [], "b": ["a"]})

USER_CODE = """
from fastroai import Pipeline, StepConfig, StepContext, step
from fastroai.pipelines import ConversationState, ConversationStatus
from fastroai.functions import HumanReviewContext, await_human, flow


@step
async def a(ctx: StepContext) -> str:
    return ctx.get_input("text").upper()


@step
async def b(ctx: StepContext) -> dict[str, object]:
    if ctx.get_input("fail", False):
        raise RuntimeError("no paper\\x1b[31m")
    return {"said": ctx.get_dependency("a", str), "deps": ctx.deps}


@step(retries=1, retry_delay=0.0)
async def flaky(ctx: StepContext) -> str:
    if ctx.attempt == 1:
        raise ConnectionError("gone")
    ctx.record_usage(model="search", cost_usd="0.25")
    return "up"


@step
async def broken(ctx: StepContext) -> None:
    raise ValueError("always")


@step
async def never(ctx: StepContext) -> None: ...


@step
async def question(ctx: StepContext) -> ConversationState[None]:
    return ConversationState(status=ConversationStatus.INCOMPLETE, data=None)


asking = Pipeline("asking", {"question": question})
inner = Pipeline("inner", {"flaky": flaky})
desk = Pipeline(
    "desk",
    {"a": a, "nested": inner.as_step(), "broken": broken, "never": never, "b": b},
    {"b": ["a", "nested"], "never": ["broken"]},
    output_step="b",
    step_configs={"broken": StepConfig(on_error="continue")},
)
other = Pipeline("desk", {"a": a, "b": b}, {"b": ["a"]})


@flow
async def letter() -> str:
    first = await await_human(HumanReviewContext("First?"))
    second = await await_human(HumanReviewContext("Second?"))
    return f"{first.value} {second.value}"


class Office:
    name = "office"


def make_deps() -> str:
    return Office.name


async def make_deps_later() -> str:
    return "later"


def fails() -> None:
    raise KeyError("deps")


def interrupted() -> None:
    raise KeyboardInterrupt
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SQLiteRunStore:
    """The file that the commands work on, which is named by the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FASTROAI_STORE", "runs.db")
    monkeypatch.setenv("PYDANTIC_DISABLE_PLUGINS", "__all__")
    return SQLiteRunStore(tmp_path / "runs.db")


@pytest.fixture
def user_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of the user in the current directory."""
    name = "user_code_of_a_test"
    (tmp_path / f"{name}.py").write_text(USER_CODE)
    (tmp_path / "broken_code.py").write_text("\nimport nothing_of_this_name\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name
    sys.modules.pop(name, None)


@pytest.fixture(autouse=True)
def handler_of_interrupts() -> Iterator[None]:
    """Put back the handler that `main` removes."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["runs", *arguments], prog_name="fastroai")


def json_of(*arguments: str, code: int = 0) -> Any:
    result = call(*arguments, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def line_of(result: Result, code: int) -> str:
    """The one line on standard error of a command that exits with this code."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("fastroai: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


# --- list ---


def test_list_shows_runs_newest_first(store: SQLiteRunStore) -> None:
    write(
        store, support_desk(), Log(SHAPE, run_id="later", start=datetime(2026, 4, 1, tzinfo=UTC)).start("a")
    )
    lines = call("list").stdout.splitlines()
    assert lines[0].split()[:4] == ["run", "pipeline", "status", "started"]
    assert lines[1].split()[:3] == ["later", "desk", "interrupted"]
    assert lines[2].split()[:3] == ["r1", "desk", "finished"]
    assert lines[2].split()[-4:] == ["8", "s", "2", "$0.003"]


def test_list_says_what_is_known_of_runs_that_go_on_or_have_died(store: SQLiteRunStore) -> None:
    nothing = {"requests": 0, "input_tokens": 0, "output_tokens": 0, "cost_usd": Decimal(0)}
    owner, soon = new_owner(), datetime.now(UTC) + timedelta(minutes=1)
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    write(store, Log(SHAPE, run_id="died").start("a").request("a"), **nothing, updated_at=START)
    write(store, Log(SHAPE, run_id="died-later").start("a").request("a"))
    alive = Log(SHAPE, run_id="alive", start=hour_ago).start("a").request("a")
    write(store, alive, owner=owner, lease_until=soon)
    write(store, Log(SHAPE, run_id="unpriced").start("a").request("a").request("a", None).end())
    shown = {line.split()[0]: " ".join(line.split()[5:]) for line in call("list").stdout.splitlines()[1:]}
    assert shown.pop("alive").startswith("1:00:")
    assert shown == {"died": "unknown", "died-later": "500 ms + 1 + $0.001 +", "unpriced": "1.6 s 2 $0.001 +"}
    told = {run["run_id"]: (run["cost_usd"], run["cost_complete"]) for run in json_of("list")}
    assert told["died"] == ("0", False)
    assert told["alive"] == told["died-later"] == told["unpriced"] == ("0.001", False)
    release_owner(owner)


def test_show_reads_the_cost_and_the_time_of_a_run_that_has_died_in_its_log(store: SQLiteRunStore) -> None:
    nothing = {"requests": 0, "input_tokens": 0, "output_tokens": 0, "cost_usd": Decimal(0)}
    write(store, Log(SHAPE, run_id="died").start("a").request("a"), **nothing, updated_at=START)
    assert "took 500 ms, 1 request, $0.001" in call("show", "died").stdout
    shown = json_of("show", "died")
    assert (shown["requests"], shown["cost_usd"], shown["failed_requests"]) == (1, "0.001", 0)


def test_list_prints_json_for_programs(store: SQLiteRunStore) -> None:
    write(store, support_desk())
    assert json_of("list") == [
        {
            "run_id": "r1",
            "pipeline": "desk",
            "status": "finished",
            "started_at": "2026-03-01T12:00:00+00:00",
            "updated_at": "2026-03-01T12:00:08+00:00",
            "requests": 2,
            "failed_requests": 0,
            "cost_usd": "0.003",
            "cost_complete": True,
            "error": None,
            "forked_from": None,
            "tags": [],
            "tenant": None,
            "owner": None,
            "lease_until": None,
            "due_at": None,
            "rows": None,
        }
    ]


def test_list_chooses_by_tag_and_tenant(store: SQLiteRunStore) -> None:
    write(store, support_desk(), tags=("new", "eu"), tenant="ada")
    write(store, support_desk("r2"), tags=("eu",))
    chosen = json_of("list", "--tag", "eu", "--tenant", "ada")
    assert [(run["run_id"], run["tags"], run["tenant"]) for run in chosen] == [("r1", ["new", "eu"], "ada")]
    assert [run["run_id"] for run in json_of("list", "--tag", "eu")] == ["r1", "r2"]


def test_list_filters_and_says_where_it_stopped(store: SQLiteRunStore) -> None:
    runs = [Log(SHAPE, run_id=f"r{n}", start=datetime(2026, 4, n, tzinfo=UTC)) for n in (1, 2, 3)]
    write(store, *(run.end() for run in runs))
    write(store, Log(SHAPE, run_id="bad", pipeline="other").end("failed", failure("[red]no\x1b[31m")))
    assert [run["run_id"] for run in json_of("list", "--limit", "2")] == ["r3", "r2"]
    assert "... these are the newest 2" in call("list", "--limit", "2").stdout
    assert "newest" not in call("list", "--limit", "4").stdout
    assert [run["run_id"] for run in json_of("list", "--status", "failed")] == ["bad"]
    assert [run["run_id"] for run in json_of("list", "--pipeline", "other")] == ["bad"]
    assert "no runs found in runs.db" in call("list", "--pipeline", "nope").stdout
    shown = call("list", "--status", "failed").stdout
    assert r"[red]no\x1b[31m" in shown, "neither markup nor control characters of others take effect"


def test_list_refuses_filters_that_cannot_be_meant(store: SQLiteRunStore) -> None:
    write(store, support_desk())
    assert "--status='done': expected one of running" in line_of(call("list", "--status", "done"), 2)
    refused = call("list", "--limit", "0")
    assert (refused.exit_code, "'--limit': 0 is not in the range" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    "store", ["postgresql:/me:secret@host/db", "posgres:/me:secret@h/db", "me:secret@h/db"]
)
def test_a_password_in_a_mistyped_url_is_not_shown(store: str) -> None:
    assert "secret" not in line_of(call("list", "--store", store), 2)


def test_a_foreign_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    before = path.read_bytes()
    assert "a database of another program" in line_of(call("list", "--store", str(path)), 5)
    assert path.read_bytes() == before


HARMFUL = "\x1b[31m\x7f\x9b2J\u202eevil\u2066 grüße 漢 \U000e0001"
"""Control characters, C1 ones too, and such that change the direction of text, among others."""


def test_characters_that_change_a_terminal_are_escaped_and_are_still_in_the_json(
    store: SQLiteRunStore,
) -> None:
    write(store, Log(SHAPE, run_id="bad").start("a").end("failed", failure(HARMFUL)))
    for command in (["list"], ["show", "bad"], ["trace", "bad"]):
        for options in ([], ["--json"]):
            shown = call(*command, *options).stdout
            assert "grüße 漢" in shown
            assert not [char for char in shown if not (char.isprintable() or char == "\n")]
    assert json_of("list")[0]["error"].endswith(HARMFUL)


# --- show, trace, diff ---


def test_show_draws_the_steps(store: SQLiteRunStore) -> None:
    write(store, support_desk())
    lines = call("show", "r1").stdout.splitlines()
    assert lines[0] == "r1 of pipeline desk: finished"
    assert "took 8 s, 2 requests, $0.003" in lines[1]
    steps = [line.split("  ")[0].strip() for line in lines[4:]]
    assert steps == ["classify", "look_up", "write", "├─ draft", "└─ check", "publish"]
    row = next(line for line in lines if line.startswith("look_up"))
    assert row.split()[:3] == ["look_up", "failed", "2"]
    assert "ConnectionError: no connection" in row
    assert "it needs 'look_up', which failed" in lines[-1]


def test_show_draws_the_branches_of_deeper_nesting(store: SQLiteRunStore) -> None:
    log = (
        Log(None, forked_from="r0").start("a").start("a@1/p/b").start("a@1/p/b@1/q/c").output("a@1/p/b@1/q/c")
    )
    log.output("a@1/p/b").start("a@1/p/d").start("a@1/p/d@1/q/e").fail("a").end("failed", failure())
    write(store, log.output("z"))
    lines = call("show", "r1").stdout.splitlines()
    assert "forked from r0" in lines
    assert "ConnectionError: no connection" in lines
    steps = [line.split("  ")[0] if line[0] not in "│ " else line[:7].rstrip() for line in lines[-6:]]
    assert steps == ["a", "├─ b", "│  └─ c", "└─ d", "   └─ e", "z"]
    assert "reused" in lines[-1]


def test_show_prints_json_for_programs(store: SQLiteRunStore) -> None:
    write(store, support_desk())
    shown = json_of("show", "r1")
    assert shown["status"] == "finished"
    look_up = next(step for step in shown["steps"] if step["step"] == "look_up")
    assert look_up == {
        "place": "look_up",
        "step": "look_up",
        "depth": 0,
        "needs": [],
        "status": "failed",
        "cause": "it needs no other step",
        "attempts": 2,
        "started_at": "2026-03-01T12:00:00+00:00",
        "ended_at": "2026-03-01T12:00:03.500000+00:00",
        "requests": 0,
        "failed_requests": 0,
        "cost_usd": "0",
        "cost_complete": True,
        "output": None,
        "failure": {
            "error_type": "ConnectionError",
            "message": "no connection",
            "failure_class": "recoverable",
        },
    }


def test_show_marks_a_cost_that_is_not_complete(store: SQLiteRunStore) -> None:
    write(store, Log(SHAPE).start("a").request("a@1", None))
    assert "1  unknown" in call("show", "r1").stdout


def test_trace_explains_or_gives_everything(store: SQLiteRunStore) -> None:
    log = support_desk()
    write(store, log)
    assert call("trace", "r1").stdout == f"{log.trace.explain()}\n"
    assert RunTrace.from_json(call("trace", "r1", "--json").stdout) == log.trace


def test_transcript_shows_what_was_said(store: SQLiteRunStore) -> None:
    asked: Any = [{"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Where\x1b[31m?"}]}]
    answered: Any = {"kind": "response", "parts": [{"part_kind": "text", "content": "Here."}]}
    log = Log(SHAPE).start("a").start("b").request("a@1", asked=asked, answered=answered)
    write(store, log, Log(SHAPE, run_id="silent").start("a"))
    assert (
        call("transcript", "r1").stdout == "a@1: an agent, call 1\n  user: Where\\x1b[31m?\n  model: Here.\n"
    )
    assert call("transcript", "r1", "--step", "b").stdout == "no messages on record\n"
    assert call("transcript", "silent").stdout == "no messages on record\n"
    (conversation,) = json_of("transcript", "r1", "--step", "a")
    assert conversation["messages"] == [*asked, answered]
    assert (conversation["place"], conversation["sealed"]) == ("a@1", False)
    assert "'c'" in line_of(call("transcript", "r1", "--step", "c"), 2)


def test_diff_exits_with_1_if_the_runs_differ(store: SQLiteRunStore) -> None:
    write(store, support_desk(), support_desk("r2"), Log(SHAPE, run_id="r3"))
    same = call("diff", "r1", "r2")
    assert (same.exit_code, same.stdout) == (0, "no difference\n")
    assert json_of("diff", "r1", "r2") == []
    other = call("diff", "r1", "r3")
    assert other.exit_code == 1
    assert "the run: finished in the first, running in the second" in other.stdout
    assert json_of("diff", "r1", "r3", code=1)[-1] == {
        "kind": "end",
        "place": "",
        "text": "the run: finished in the first, running in the second",
        "first": "finished",
        "second": "running",
    }


# --- what there is not ---


def test_a_run_that_is_not_there_exits_with_3(store: SQLiteRunStore) -> None:
    write(store, support_desk())
    for command in (["show"], ["trace"], ["diff", "r1"], ["delete", "--yes"]):
        assert "there is no run 'nope'" in line_of(call(*command, "nope"), 3)


def test_a_store_that_is_not_there_is_a_mistake_and_is_not_made(
    store: SQLiteRunStore, tmp_path: Path
) -> None:
    assert "an existing file" in line_of(call("list"), 2)
    assert "an existing file" in line_of(call("list", "--store", f"sqlite://{tmp_path}/x.db"), 2)
    assert "expected a path" in line_of(call("list", "--store", "mysql://x"), 2)
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_reached_exits_with_5(store: SQLiteRunStore, tmp_path: Path) -> None:
    (tmp_path / "runs.db").write_text("this is no database " * 100)
    assert "runs.db is unavailable" in line_of(call("list"), 5)


def test_a_store_may_be_named_by_its_url(store: SQLiteRunStore, tmp_path: Path) -> None:
    write(store, support_desk())
    assert len(json_of("list", "--store", f"sqlite://{tmp_path}/runs.db")) == 1


def test_a_record_that_cannot_be_read_exits_with_6(store: SQLiteRunStore) -> None:
    async def damage() -> None:
        await support_desk("bad").write(store)
        await store.compare_and_set(header_key("bad"), b"{", revision=1)
        await store.aclose()

    asyncio.run(damage())
    assert "its header is damaged" in line_of(call("show", "bad"), 6)
    assert [run["status"] for run in json_of("list")] == ["unreadable"]
    assert "its header is damaged" in line_of(call("delete", "bad", "--yes"), 6)
    assert json_of("delete", "bad", "--yes", "--force") == {"deleted": ["bad"]}


# --- delete, purge ---


def test_delete_forgets_a_run(store: SQLiteRunStore) -> None:
    write(store, support_desk(), support_desk("r2"))
    assert call("delete", "r1", "--yes").stdout == "deleted r1\n"
    assert [run["run_id"] for run in json_of("list")] == ["r2"]
    assert json_of("delete", "r2", "-y") == {"deleted": ["r2"]}


def test_delete_refuses_a_run_that_a_process_has(store: SQLiteRunStore) -> None:
    owner = new_owner()
    write(store, Log(SHAPE), owner=owner, lease_until=datetime.now(UTC) + timedelta(minutes=1))
    assert "is running in" in line_of(call("delete", "r1", "--yes"), 4)
    assert call("delete", "r1", "--yes", "--force").exit_code == 0
    release_owner(owner)


def test_purge_forgets_old_runs(store: SQLiteRunStore) -> None:
    now = datetime.now(UTC)
    write(store, *(Log(SHAPE, run_id=f"r{n}", start=now - timedelta(days=n)).end() for n in (1, 20, 40)))
    assert call("purge", "--older-than", "30d", "--dry-run").stdout == "would delete r40\n"
    assert json_of("purge", "--older-than", "30d", "--dry-run") == {"would_delete": ["r40"]}
    assert json_of("purge", "--older-than", "30d", "--yes") == {"deleted": ["r40"]}
    assert call("purge", "--older-than", "30d").stdout == "nothing to delete\n"
    assert call("purge", "--older-than", "1h", "--status", "failed").stdout == "nothing to delete\n"
    assert json_of("purge", "--older-than", "1.5w", "--yes") == {"deleted": ["r20"]}


def test_purge_refuses_ages_that_are_none(store: SQLiteRunStore) -> None:
    write(store, support_desk())
    for text in ("30", "d", "-3d", "3 years"):
        assert "as in 30d" in line_of(call("purge", f"--older-than={text}", "--yes"), 2)
    assert "expected one of" in line_of(call("purge", "--older-than", "3d", "--status", "done"), 2)


def test_an_age_of_any_length_is_an_age_or_refused(store: SQLiteRunStore) -> None:
    write(store, support_desk().end())
    assert "at most 999999999 days" in line_of(call("purge", "--older-than", f"{10**20}d", "--yes"), 2)
    for text in ("800000000d", "800000d"):  # before there were dates, and before there were computers
        assert json_of("purge", "--older-than", text, "--yes") == {"deleted": []}
    assert json_of("purge", "--older-than", "0s", "--yes") == {"deleted": ["r1"]}


def test_where_nobody_can_be_asked_nothing_is_deleted(store: SQLiteRunStore) -> None:
    write(store, support_desk())
    assert "add --yes" in line_of(call("delete", "r1"), 2)
    assert "Delete 1 runs?" in line_of(call("purge", "--older-than", "1s"), 2)
    assert len(json_of("list")) == 1


# --- resume, fork ---


def start(store: SQLiteRunStore, module: str, *, pipeline: str = "desk", **inputs: Any) -> None:
    """A run of the user's pipeline, whose process ended with a failure."""

    async def run() -> None:
        __import__(module)
        desk = getattr(sys.modules[module], pipeline)
        with pytest.raises(StepExecutionError, match="no paper") if "fail" in inputs else nullcontext():
            await desk.execute({"text": "hi", **inputs}, run_id="one", store=store)
        await store.aclose()

    sys.path.insert(0, "")
    asyncio.run(run())


def test_resume_goes_on_with_a_run_and_tells_what_happens(store: SQLiteRunStore, user_code: str) -> None:
    start(store, user_code, fail=True)
    result = call("resume", "one", "--pipeline", f"{user_code}:desk", "--inputs", '{"fail": false}')
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == ["run one: finished, $0.25 in all", '{"said": "HI", "deps": null}']
    assert "b: started, because 'nested' was the last that it needed" in result.stderr
    assert "broken: failed: ValueError: always" in result.stderr
    assert "never: skipped, because it needs 'broken', which failed" in result.stderr
    assert "a: started" not in result.stderr, "it had finished"


def test_resume_prints_json_for_programs(store: SQLiteRunStore, user_code: str) -> None:
    start(store, user_code, fail=True)
    shown = json_of(
        "resume", "one", "--pipeline", f"{user_code}:desk", "--inputs", '{"fail": false}', "--deps",
        f"{user_code}:Office.name",
    )  # fmt: skip
    assert (shown["run_id"], shown["status"]) == ("one", "finished")
    assert shown["output"] == {"said": "HI", "deps": "office"}


def test_a_run_that_fails_again_exits_with_1(store: SQLiteRunStore, user_code: str) -> None:
    start(store, user_code, fail=True)
    result = call("resume", "one", "--pipeline", f"{user_code}:desk")
    assert result.exit_code == 1
    assert result.stdout == "run one: failed, $0.25 in all\n"
    assert r"fastroai: step 'b' failed: RuntimeError: no paper\x1b[31m" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_run_that_waits_exits_with_0(store: SQLiteRunStore, user_code: str) -> None:
    start(store, user_code, pipeline="asking")
    assert json_of("resume", "one", "--pipeline", f"{user_code}:asking")["status"] == "paused"


def test_resume_takes_inputs_from_a_file(store: SQLiteRunStore, user_code: str, tmp_path: Path) -> None:
    start(store, user_code, fail=True)
    (tmp_path / "inputs.json").write_text('{"fail": false}')
    deps = f"{user_code}:make_deps_later"
    shown = json_of(
        "resume", "one", "--pipeline", f"{user_code}:desk", "--inputs", "@inputs.json", "--deps", deps
    )
    assert shown["output"]["deps"] == "later"


def test_resume_refuses_a_pipeline_that_has_changed_unless_it_is_forced(
    store: SQLiteRunStore, user_code: str
) -> None:
    start(store, user_code, fail=True)
    options = ["resume", "one", "--pipeline", f"{user_code}:other", "--inputs", '{"fail": false}']
    refused = call(*options)
    assert refused.exit_code == 4
    assert "step 'nested' was removed" in refused.stderr
    assert call(*options, "--force").exit_code == 0


def test_resume_passes_on_what_to_do_with_changed_calls(store: SQLiteRunStore, user_code: str) -> None:
    start(store, user_code, fail=True)
    options = ["resume", "one", "--pipeline", f"{user_code}:desk", "--inputs", '{"fail": false}']
    refused = call(*options, "--on-changed", "never")
    assert refused.exit_code != 0
    assert "--on-changed='never': expected 'ask', 'keep' or 'fail'" in refused.stderr
    assert call(*options, "--on-changed", "keep").exit_code == 0


def test_resume_of_a_run_that_is_not_there_or_runs_elsewhere(store: SQLiteRunStore, user_code: str) -> None:
    owner = new_owner()
    write(store, Log(SHAPE), owner=owner, lease_until=datetime.now(UTC) + timedelta(minutes=1))
    assert "there is no run 'nope'" in line_of(call("resume", "nope", "--pipeline", f"{user_code}:desk"), 3)
    assert "is running in" in line_of(call("resume", "r1", "--pipeline", f"{user_code}:other"), 4)
    release_owner(owner)


def test_fork_starts_a_run_that_reuses_another(store: SQLiteRunStore, user_code: str) -> None:
    start(store, user_code)
    target = ["--pipeline", f"{user_code}:desk", "--deps", f"{user_code}:make_deps"]
    result = call("fork", "one", "--at", "b", "--run-id", "two", *target)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == ["run two: finished", '{"said": "HI", "deps": "office"}']
    assert "a: started" not in result.stderr
    shown = json_of("fork", "one", "--outputs", '{"a": "put"}', *target)
    assert shown["forked_from"] == "one"
    assert shown["output"] == {"said": "put", "deps": "office"}
    assert "run 'two' is in the store already" in line_of(
        call("fork", "one", "--at", "b", "--run-id", "two", *target), 4
    )


def test_a_fork_that_fails_has_an_id_too(store: SQLiteRunStore, user_code: str) -> None:
    start(store, user_code)
    target = ["--pipeline", f"{user_code}:desk", "--at", "b", "--inputs", '{"fail": true}']
    shown = json_of("fork", "one", *target, code=1)
    assert (shown["status"], shown["forked_from"]) == ("failed", "one")


def test_progress_of_nested_steps_and_retries(store: SQLiteRunStore, user_code: str) -> None:
    start(store, user_code)
    result = call("fork", "one", "--at", "nested", "--pipeline", f"{user_code}:desk")
    assert (
        "nested/inner/flaky: attempt 1 failed: ConnectionError: gone; tried again after 0 ms" in result.stderr
    )
    assert "nested/inner/flaky: finished ($0.25)" in result.stderr
    assert result.stdout.startswith("run ")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--pipeline", "desk", "module:attribute, as in"),
        ("--pipeline", "nothing_of_this_name:desk", "ModuleNotFoundError: No module named"),
        ("--pipeline", "broken_code:desk", "(broken_code.py, line 2)"),
        ("--pipeline", "user_code_of_a_test:desc", "Did you mean 'desk'?"),
        ("--pipeline", "user_code_of_a_test:make_deps", "a Pipeline or a Graph; it is a function"),
        ("--pipeline", "user_code_of_a_test:Pipeline", "a Pipeline or a Graph; it is a class"),
        ("--deps", "user_code_of_a_test:fails", "KeyError: 'deps'"),
        ("--deps", "user_code_of_a_test:nope", "an attribute of 'user_code_of_a_test'"),
        ("--answer", "1", "no value for a pipeline, which takes --inputs"),
        ("--node", "a", "no value for a pipeline, which takes --inputs"),
        ("--inputs", "{", "JSON, or @file"),
        ("--inputs", "@nope.json", "No such file"),
        ("--inputs", "[1]", "a JSON object"),
        ("--inputs", "[" * 100_000 + "]" * 100_000, "JSON that is nested less deeply"),
    ],
)
def test_options_that_name_nothing(
    store: SQLiteRunStore, user_code: str, option: str, value: str, said: str
) -> None:
    write(store, support_desk())
    options = {"--pipeline": f"{user_code}:desk", option: value}
    line = line_of(call("resume", "r1", *(text for pair in options.items() for text in pair)), 2)
    assert line.startswith(f"fastroai: {option}=")
    assert said in line


def test_a_worker_needs_an_application_or_a_name(store: SQLiteRunStore, user_code: str) -> None:
    refused = CliRunner().invoke(app, ["worker", "--import", user_code])
    assert f"--name needs the name of the application to work for, because {user_code}" in refused.stderr
    named = CliRunner().invoke(app, ["worker", "--import", user_code, "--name", "orders"])
    assert (named.exit_code, "--url needs a file of SQLite" in named.stderr) == (2, True)


def test_a_flow_is_resumed_as_pipelines_are(store: SQLiteRunStore, user_code: str) -> None:
    flow: Any = import_target("--pipeline", f"{user_code}:letter")
    inbox = Inbox(store)

    async def begin() -> None:
        with pytest.raises(FlowStopped):
            await flow.run(run_id="f", store=store)

    async def answer(value: str) -> None:
        (question,) = await inbox.list()
        await inbox.answer(question.id, value, reviewer="Mia")

    asyncio.run(begin())
    for value, said in (("a", "run f: paused\n"), ("b", "run f: finished\na b\n")):
        asyncio.run(answer(value))
        resumed = call("resume", "f", "--pipeline", f"{user_code}:letter")
        assert (resumed.exit_code, resumed.stdout) == (0, said)


def test_ctrl_c_exits_with_130(
    store: SQLiteRunStore, user_code: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(store, support_desk())
    options = ["--pipeline", f"{user_code}:desk", "--deps", f"{user_code}:interrupted"]
    monkeypatch.setattr("sys.argv", ["fastroai", "runs", "resume", "r1", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "fastroai: interrupted\n")


# --- main ---


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import_module = builtins.__import__

    def without_typer(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "typer":
            raise ImportError(name)
        return import_module(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_typer)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said == ("fastroai: the command line needs typer and rich: pip install 'fastroai-runs[cli]'\n")


# --- the version, and the default store ---


def test_the_version_is_told_without_a_command() -> None:
    from importlib.metadata import version

    from fastroai.version import __version__

    told = CliRunner().invoke(app, ["--version"])
    assert told.exit_code == 0
    assert told.stdout == f"fastroai {__version__} (PydanticAI {version('pydantic-ai-slim')})\n"


def test_all_commands_share_the_store_that_the_project_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FASTROAI_STORE", raising=False)
    below = tmp_path / "app" / "deep"
    below.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.fastroai]\nstore = "kept.db"\n')
    monkeypatch.chdir(below)
    for command in (["runs", "list"], ["review", "list"], ["spend", "limits"], ["flow", "list"]):
        missing = CliRunner().invoke(app, command)
        assert missing.exit_code == 2, command
        assert f"{tmp_path / 'kept.db'}" in missing.stderr.replace("\n", "")
    (tmp_path / "kept.db").touch()
    for command in (["runs", "list"], ["review", "list"], ["spend", "limits"], ["flow", "list"]):
        assert CliRunner().invoke(app, command).exit_code == 0, command
    other = CliRunner().invoke(app, ["runs", "list"], env={"FASTROAI_STORE": str(below / "other.db")})
    assert "other.db" in other.stderr.replace("\n", ""), "the environment comes first"


def test_without_a_project_all_commands_share_the_store_of_this_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FASTROAI_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "other"\n')
    for command in (["runs", "list"], ["flow", "list"]):
        assert CliRunner().invoke(app, command).exit_code == 0, command
    assert [file.name for file in (tmp_path / "data" / "fastroai").iterdir()] == ["workflows.db"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[tool.fastroai\n", "a TOML file that can be read"),
        ("[tool.fastroai]\nstore = 3\n", "under [tool.fastroai]"),
    ],
)
def test_a_project_file_that_names_no_store_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, wrong: str
) -> None:
    monkeypatch.delenv("FASTROAI_STORE", raising=False)
    (tmp_path / "pyproject.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, ["runs", "list"], env={"COLUMNS": "400", "TERMINAL_WIDTH": "400"})
    assert refused.exit_code == 2
    assert wrong in refused.stderr
    assert "--store or FASTROAI_STORE" in refused.stderr


def test_no_banner_of_pydantic_ai_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYDANTIC_AI_NO_BANNER", "x")  # restored after the test
    monkeypatch.delenv("PYDANTIC_AI_NO_BANNER")
    monkeypatch.setattr(sys, "argv", ["fastroai", "--version"])
    with pytest.raises(SystemExit):
        main()
    assert os.environ["PYDANTIC_AI_NO_BANNER"] == "1"
