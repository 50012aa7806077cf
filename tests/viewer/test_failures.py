"""What is wrong is told on the page, and nothing else breaks."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.patience import PATIENCE
from support.stored_runs import change_header
from support.viewed_runs import asked, asking
from support.viewing import TOKEN, csrf_of, signed_in

from fastroai import MemoryRunStore, RunHistory, SQLiteRunStore
from fastroai.cli.app import app
from fastroai.store import EncryptingCodec
from fastroai.store.record.headers import header_key
from fastroai.viewer import viewer

KEY = EncryptingCodec.new_key()


async def page_of(store: Any, path: str, **options: Any) -> httpx2.Response:
    async with signed_in(viewer(store, token=TOKEN, **options)) as browser:
        return await browser.get(path)


@pytest.mark.parametrize("path", ["/runs", "/people", "/spending", "/runs/order"])
async def test_a_file_that_is_no_store_is_told(tmp_path: Path, path: str) -> None:
    (tmp_path / "notes.db").write_text("these are notes, and no database\n" * 100)
    answer = await page_of(tmp_path / "notes.db", path)
    assert answer.status_code == 503
    assert "notes.db" in answer.text
    assert "not a database" in answer.text


async def test_a_server_that_does_not_answer_is_told_without_its_password() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    answer = await page_of(f"redis://user:hunter2@127.0.0.1:{port}/0", "/runs")
    assert answer.status_code == 503
    assert str(port) in answer.text
    assert "hunter2" not in answer.text


async def test_a_locked_file_is_told_and_works_again_afterwards(tmp_path: Path) -> None:
    store = SQLiteRunStore(tmp_path / "runs.db", timeout=0.05)
    await asked(store, asking(bool), "order")
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        data = {"csrf": await csrf_of(browser)}
        locking = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
        locking.execute("BEGIN EXCLUSIVE")
        answer = await browser.post("/runs/order/cancel", data=data)
        assert answer.status_code == 503
        assert "locked" in answer.text
        locking.execute("ROLLBACK")
        locking.close()
        assert (await browser.post("/runs/order/cancel", data=data)).status_code == 303
    await store.aclose()


async def test_runs_that_cannot_be_read_are_listed_and_the_others_work() -> None:
    store = MemoryRunStore()
    for run_id in ("damaged", "of another format", "fine"):
        await asked(store, asking(bool), run_id)
    await change_header(store, "of another format", format=99)
    found = await store.read(header_key("damaged"))
    await store.compare_and_set(header_key("damaged"), b"{nonsense", revision=found.revision)
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        page = (await browser.get("/runs")).text
        assert page.count('class="status s-unreadable"') == 2
        assert "fine" in page
        assert "A newer FastroAI" in (await browser.get("/runs/of another format")).text
        answer = await browser.get("/runs/damaged")
        assert (answer.status_code, "This run cannot be read" in answer.text) == (409, True)
        for path in ("/runs/fine", "/people", "/spending"):
            assert (await browser.get(path)).status_code in (200, 409)


async def test_a_run_that_is_encrypted_with_another_key_is_listed_and_says_so() -> None:
    store, secret = MemoryRunStore(), "may Ada have the money?"
    pipeline = asking(bool, question=secret, codec=EncryptingCodec({"old": KEY}))
    question = await asked(store, pipeline, "order")
    other = EncryptingCodec({"new": EncryptingCodec.new_key()})
    for codec, status, told in ((None, 200, "This question is encrypted"), (other, 409, "cannot decode")):
        async with signed_in(viewer(store, token=TOKEN, codec=codec)) as browser:
            assert "order" in (await browser.get("/runs")).text
            listed = await browser.get("/people")
            assert "(sealed)" in listed.text
            answer = await browser.get(f"/people/{question}")
            assert (answer.status_code, told in answer.text) == (status, True)
            assert "$sealed" not in listed.text + answer.text
            assert secret not in listed.text + answer.text
            data = {"csrf": await csrf_of(browser), "answer": "true"}
            assert (await browser.post(f"/people/{question}/answer", data=data)).status_code == 409
    async with signed_in(viewer(store, token=TOKEN, codec=EncryptingCodec({"old": KEY}))) as browser:
        assert secret in (await browser.get(f"/people/{question}")).text


async def test_a_run_that_was_deleted_meanwhile_is_told() -> None:
    store = MemoryRunStore()
    question = await asked(store, asking(bool), "order")
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        data = {"csrf": await csrf_of(browser), "answer": "true"}
        await RunHistory(store).delete("order")
        for answer in (
            await browser.get("/runs/order"),
            await browser.get(f"/people/{question}"),
            await browser.post(f"/people/{question}/answer", data=data),
            await browser.post("/runs/order/cancel", data=data),
        ):
            assert answer.status_code == 404
            assert "There is no such run" in answer.text
        assert (await browser.get("/runs")).status_code == 200


async def test_a_page_that_fails_by_a_mistake_of_ours_says_so_and_hides_the_rest(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*arguments: object, **options: object) -> object:
        raise ZeroDivisionError("the secret is 42")

    monkeypatch.setattr(RunHistory, "page", fail)
    async with signed_in(viewer(MemoryRunStore(), token=TOKEN)) as browser:
        answer = await browser.get("/runs")
        assert (answer.status_code, "This page has failed" in answer.text) == (500, True)
        assert "42" not in answer.text
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "the secret is 42" in caplog.text
        assert (await browser.get("/people")).status_code == 200


# --- the command ---


def view(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fastroai.cli", "view", "--no-browser", *arguments]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=None
    )


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as ended:
        app(["view", "--no-browser", *arguments], prog_name="fastroai")
    return ended.value.code, capsys.readouterr().err


def test_the_command_prints_a_link_that_works_and_ends_with_an_interrupt(tmp_path: Path) -> None:
    store = SQLiteRunStore(tmp_path / "runs.db")
    asyncio.run(asked(store, asking(bool), "order"))
    asyncio.run(store.aclose())
    with view(tmp_path, "--db", "runs.db", "--port", "0") as process:
        assert process.stdout is not None
        link = process.stdout.readline().split()[-1]
        with httpx2.Client(follow_redirects=True) as browser:
            assert browser.get(link.partition("?")[0]).status_code == 401
            page = browser.get(link)
            assert page.url.path == "/runs"
            assert not page.url.query
            assert "order" in page.text
            with browser.stream("GET", f"{link.partition('/?')[0]}/stream/runs") as stream:
                assert "order" in next(stream.iter_text())
                process.send_signal(2)
                rest, errors = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in errors
    assert link.partition("=")[2] not in rest + errors


def test_the_command_says_what_is_wrong_before_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SQLiteRunStore("runs.db")
    asyncio.run(asked(store, asking(bool), "order"))
    asyncio.run(store.aclose())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, errors = failed(capsys, "--store", "runs.db", "--port", port)
        assert code == 2
        assert f"--port={port}" in errors
        assert "a free port" in errors
    code, errors = failed(capsys, "--store", "nothing.db")
    assert (code, "nothing.db" in errors) == (2, True)
    code, errors = failed(capsys, "--store", "runs.db", "--import", "json")
    assert (code, "pipelines, graphs or flows" in errors) == (2, True)


def test_a_missing_extra_is_told_with_the_command_that_installs_it() -> None:
    code = """
import sys
for missing in ("starlette.applications", "jinja2", "uvicorn"):
    sys.modules[missing] = None
    try:
        import fastroai.viewer.serving
    except ImportError as error:
        print(missing, type(error).__name__, error)
    del sys.modules[missing]
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    lines = told.stdout.splitlines()
    assert len(lines) == 3
    assert all("MissingExtraError the viewer needs" in line for line in lines)
    assert all("[viewer]" in line for line in lines)
