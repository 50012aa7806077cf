"""`fastroai mcp`: what keeps it from serving is told before it serves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fastroai.cli.app import app


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FASTROAI_STORE", "flows.db")
    return tmp_path


def mcp(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["mcp", *arguments], prog_name="fastroai")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--http", "8321"), "--http='8321': expected HOST:PORT, as in 127.0.0.1:8321"),
        (("--http", "0.0.0.0:8321"), "There is no authentication"),
        (("--allow-host", "flows.example"), "--allow-host='flows.example': expected no value without --http"),
        (("--workspace", "missing"), "--workspace='missing': expected an existing folder"),
        (("--store", "missing/flows.db"), "No such file or directory"),
        (("--store", "mysql://db"), "store='mysql://db'"),
        (("--key-file", "short.key"), "at least 32 random characters"),
        (("--codec", "nowhere:codec"), "--codec='nowhere:codec'"),
    ],
)
def test_an_option_that_cannot_be_is_told_with_its_name(
    folder: Path, arguments: tuple[str, ...], said: str
) -> None:
    (folder / "short.key").touch(0o600)
    done = mcp(*arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("fastroai: ")
    assert said in done.stderr
    assert done.stdout == ""


def test_a_missing_sdk_is_told_with_its_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    done = mcp()
    assert done.exit_code == 2
    assert "the MCP server needs mcp, version 2: " in done.stderr
    assert not (folder / "flows.db").exists()


def test_help_says_what_each_option_does() -> None:
    done = mcp("--help")
    assert done.exit_code == 0
    for option in ("--http", "--allow-host", "--workspace", "--key-file", "--trust-client", "--store"):
        assert option in done.stdout
