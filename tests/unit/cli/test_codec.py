"""`--codec`: runs whose payloads go through a codec, from a shell."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fastroai.cli.app import app
from fastroai.store import SQLiteRunStore

USER_CODE = """
from fastroai import Pipeline, PipelineConfig, StepContext, step
from fastroai.store import EncryptingCodec

codec = EncryptingCodec({"k": bytes(32)})
other = EncryptingCodec({"j": bytes(32)})


@step
async def asks(ctx: StepContext) -> str:
    return await ctx.ask("pay Elderberry?", str)


@step
async def waits(ctx: StepContext) -> str:
    return await ctx.receive("paid", str)


@step(retries=0)
async def ends(ctx: StepContext) -> str:
    raise ValueError(f"no account {ctx.get_dependency('asks')} {ctx.get_dependency('waits')}")


desk = Pipeline(
    "desk",
    {"asks": asks, "waits": waits, "ends": ends},
    {"ends": ["asks", "waits"]},
    config=PipelineConfig(codec=codec),
)
"""


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "sealed_app.py").write_text(USER_CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FASTROAI_STORE", "runs.db")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.syspath_prepend(str(tmp_path))
    desk = importlib.import_module("sealed_app").desk

    async def run() -> None:
        store = SQLiteRunStore("runs.db")
        await desk.execute({"name": "Elderberry"}, run_id="r", store=store)
        await store.aclose()

    asyncio.run(run())
    yield
    sys.modules.pop("sealed_app", None)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments], prog_name="fastroai")


def said(*arguments: str) -> str:
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


WITH = ("--codec", "sealed_app:codec")


def test_what_is_sealed_is_read_and_written_with_the_codec_and_said_to_be_sealed_without_it() -> None:
    listed = json.loads(said("review", "list", "--json", *WITH))
    assert listed[0]["question"] == "pay Elderberry?"
    assert "Elderberry" not in said("review", "list")
    question = listed[0]["id"]
    assert "pay Elderberry?" in said("review", "show", question, *WITH)
    for refused in (call("review", "answer", question, "A-1"), call("runs", "send", "r", "paid", "yes")):
        assert refused.exit_code != 0
        assert "the run has a codec" in refused.stderr
    said("review", "answer", question, "A-1", "--rationale", "Elderberry said so", *WITH)
    said("runs", "send", "r", "paid", "yes", *WITH)
    assert call("runs", "resume", "r", "--pipeline", "sealed_app:desk", *WITH).exit_code == 1
    assert "ValueError: no account A-1 yes" in said("runs", "trace", "r", *WITH)
    assert "because Elderberry said so" in said("runs", "trace", "r", *WITH)
    without = said("runs", "trace", "r")
    assert "texts are sealed: read them with RunHistory(store, codec=...), or --codec" in without
    assert "ends: attempt 1 failed" in without
    assert "A-1" not in without
    for command in (("list",), ("show", "r")):
        assert "no account A-1 yes" in said("runs", *command, *WITH)
        assert "(sealed)" in said("runs", *command)
    assert "no difference" in said("runs", "diff", "r", "r", *WITH)


@pytest.mark.parametrize(
    ("codec", "says"),
    [
        ("sealed_app:other", "expected the key 'k' too"),
        ("sealed_app:desk", "an object with encode(bytes) and decode(bytes)"),
        ("sealed_app:nothing", "an attribute of 'sealed_app'"),
    ],
)
def test_a_wrong_codec_is_refused_in_one_line(codec: str, says: str) -> None:
    refused = call("runs", "trace", "r", "--codec", codec)
    assert refused.exit_code != 0
    assert says in refused.stderr
    assert "Traceback" not in refused.output


def test_the_codec_can_be_named_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTROAI_CODEC", "sealed_app:codec")
    found: Any = json.loads(said("runs", "trace", "r", "--json"))
    assert found["entries"][0]["inputs"] == {"name": "Elderberry"}
