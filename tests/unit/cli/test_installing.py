"""`fastroai mcp install`, `uninstall` and `hook`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from support.patience import PATIENCE
from support.workflow_servers import Tools, environment
from typer.testing import CliRunner, Result

from fastroai.cli.app import app


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "project" / ".git").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(platformdirs, "user_data_path", lambda *_, **__: tmp_path / "data" / "fastroai")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def mcp(*arguments: str, said: str | None = None) -> Result:
    return CliRunner().invoke(app, ["mcp", *arguments], prog_name="fastroai", input=said)


def files(folder: Path) -> list[str]:
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in found if "skills" not in name)


async def test_the_written_configuration_starts_the_server(project: Path) -> None:
    done = await asyncio.to_thread(mcp, "install", "--client", "claude-code")
    assert done.exit_code == 0, done.stderr
    written = json.loads((project / ".mcp.json").read_text())["mcpServers"]["fastroai"]
    (project / "typer.py").write_text("raise SystemExit('a module of the project was imported')")
    started = StdioServerParameters(
        **written, env=environment(FASTROAI_STORE=str(project / "flows.db")), cwd=project
    )
    with (project / "server.log").open("w") as log:
        async with Client(stdio_client(started, errlog=log)) as client:
            answer = await Tools(client)("list_workflows")
    assert answer["status"] == "ok"


@pytest.mark.parametrize("hook", ["SessionStart", "Stop", "PostToolUseFailure"])
def test_the_written_commands_of_hooks_run_in_a_shell(project: Path, hook: str) -> None:
    mcp("install", "--client", "claude")
    (group,) = json.loads((project / ".claude/settings.json").read_text())["hooks"][hook]
    event = {"cwd": str(project), "session_id": "s1", "last_assistant_message": "Done; `rm` $(x)."}
    event |= {"tool_name": "Bash", "error": "broken"}
    done = subprocess.run(
        group["hooks"][0]["command"],
        shell=True,
        input=json.dumps(event),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")
    if hook != "SessionStart":
        assert ("broken" if hook != "Stop" else "`rm` $(x).") in (project / ".fastroai/memory.md").read_text()


def test_install_and_uninstall_say_what_they_did(project: Path) -> None:
    before = sorted(project.rglob("*"))
    (project / ".mcp.json").write_text("{}")
    assert "changed    " in mcp("install", "--client", "claude-code").stdout
    assert "nothing to do" in mcp("install", "--client", "claude-code").stdout
    done = mcp("uninstall")
    assert done.exit_code == 0
    assert "removed    " in done.stdout
    assert (project / ".mcp.json").read_text() == "{}"
    (project / ".mcp.json").unlink()
    assert sorted(project.rglob("*")) == before
    assert mcp("uninstall").stdout == "Nothing of FastroAI's is on record for this project.\n"


def test_a_dry_run_shows_a_diff_and_writes_nothing(project: Path) -> None:
    done = mcp("install", "--client", "codex", "--dry-run")
    assert "Codex (project), dry run:" in done.stdout
    assert "+[mcp_servers.fastroai]" in done.stdout
    assert files(project) == []
    mcp("install", "--client", "codex")
    before = files(project)
    assert "-[mcp_servers.fastroai]" in mcp("uninstall", "--dry-run").stdout
    assert files(project) == before


def test_what_install_prints_of_files_and_folders_cannot_change_a_terminal(project: Path) -> None:
    odd = project / "odd\u202e\x1b[2J"
    odd.mkdir()
    (odd / "CLAUDE.md").write_text("# notes \x1b]0;title\x07\u202e\n")
    for words in (("--dry-run",), ()):
        done = mcp("install", "--client", "claude-code", "--project", str(odd), *words)
        assert done.exit_code == 0
        assert done.stdout.replace("\n", "").replace("\t", "").isprintable()
        assert r"\u202e" in done.stdout


def test_an_entry_that_was_written_by_hand_is_kept_and_told(project: Path) -> None:
    by_hand = (
        '{"mcpServers": {"fastroai": {"command": "uvx", "args": ["fastroai", "mcp", "--store", "flows.db"]}}}'
    )
    (project / ".mcp.json").write_text(by_hand)
    for arguments in (["--dry-run"], []):
        said = mcp("install", "--client", "claude-code", *arguments).stdout
        assert f"kept       {project}/.mcp.json (its entry mcpServers.fastroai is yours)" in said
        assert (project / ".mcp.json").read_text() == by_hand
    told = json.loads(mcp("install", "--client", "claude-code", "--json").stdout)[0]["files"]
    assert [one["kept"] for one in told if "kept" in one] == ["its entry mcpServers.fastroai is yours"]
    said = mcp("install", "--client", "claude-code", "--command", "uv run fastroai", "--dry-run").stdout
    assert '+{"mcpServers": {"fastroai": {' in said
    mcp("install", "--client", "claude-code", "--command", "uv run fastroai")
    assert json.loads((project / ".mcp.json").read_text())["mcpServers"]["fastroai"] == {
        "command": "uv",
        "args": ["run", "fastroai", "mcp", "--store", "flows.db"],
    }


def test_several_clients_are_set_up_at_once_and_share_a_record(project: Path) -> None:
    done = mcp("install", "--client", "cursor", "--client", "gemini", "--part", "server", "--json")
    assert [(one["client"], len(one["files"])) for one in json.loads(done.stdout)] == [
        ("cursor", 1),
        ("gemini-cli", 1),
    ]
    mcp("uninstall", "--client", "cursor")
    assert ".gemini/settings.json" in files(project)
    mcp("uninstall")
    assert files(project) == []


def test_clients_are_found_by_their_folders(project: Path) -> None:
    done = mcp("install", "--dry-run")
    assert done.exit_code == 2
    assert "none was found here: claude-code, cursor, codex, vscode, gemini-cli" in done.stderr
    (project / ".vscode").mkdir()
    (project.parent / "home" / ".codex").mkdir()
    assert [one["client"] for one in json.loads(mcp("install", "--dry-run", "--json").stdout)] == [
        "codex",
        "vscode",
    ]


def test_a_client_that_is_not_known_gets_the_configuration_printed(project: Path) -> None:
    done = mcp("install", "--client", "other", "--command", "uv run fastroai")
    assert done.exit_code == 0
    assert '"command": "uv"' in done.stdout
    assert 'args = ["run", "fastroai", "mcp"]' in done.stdout
    assert files(project) == []


def test_the_scope_of_a_user_writes_into_the_home_folder_only(project: Path) -> None:
    home = project.parent / "home"
    assert mcp("install", "--client", "claude-code", "--scope", "user").exit_code == 0
    assert files(home) == [".claude.json", ".claude/CLAUDE.md", ".claude/settings.json"]
    assert files(project) == []
    assert files(project.parent / "data") == ["fastroai/install/record.json"]
    assert mcp("uninstall", "--scope", "user").exit_code == 0
    assert files(project.parent) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("install", "--scope", "machine"), "'machine' is not one of 'project', 'user'"),
        (
            ("install", "--part", "skill"),
            "--part='skill': expected one of server, instructions, skills, hooks",
        ),
        (("install", "--project", "missing"), "--project='missing': expected an existing folder"),
        (("install", "--command", "'"), "--command"),
        (("install", "--command", ""), "expected a command"),
        (("uninstall", "--client", "other"), "--client='other': expected one of claude-code"),
    ],
)
def test_an_option_that_cannot_be_is_told_with_its_name(arguments: tuple[str, ...], said: str) -> None:
    done = mcp(*arguments)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_broken_file_is_told_and_stops_every_client_before_anything_is_written(project: Path) -> None:
    (project / "AGENTS.md").mkdir()
    done = mcp("install", "--client", "claude-code", "--client", "codex")
    assert done.exit_code == 2
    assert "AGENTS.md" in done.stderr
    assert files(project) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("hook", "stop", "--client", "codex"), "{"),
        (("hook", "no-such-hook", "--client", "codex"), "{}"),
        (("hook", "stop", "--client", "from the future"), "[]"),
    ],
)
def test_a_hook_never_fails_its_client(arguments: tuple[str, ...], said: str) -> None:
    done = mcp(*arguments, said=said)
    assert done.exit_code == 0
    assert done.stdout == ""
    assert done.stderr.startswith("fastroai: hook ")


@pytest.mark.parametrize(
    "arguments", [["mcp", "install", "--help"], ["mcp", "hook", "stop", "--client", "x"]]
)
def test_help_and_hooks_import_nothing_that_is_slow(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from fastroai.cli import main\n"
        f"sys.argv = ['fastroai', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print(sorted({'mcp', 'logfire', 'pydantic_ai', 'yaml', 'uvicorn'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input="{}",
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stdout.endswith("[]\n"), (done.stdout, done.stderr)
