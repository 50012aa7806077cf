"""Setting clients up and taking it back, file by file."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fastroai.errors import ConfigurationError
from fastroai.workflows.server.install.clients import CLIENTS, Scope, Target
from fastroai.workflows.server.install.installing import Change, Setup
from fastroai.workflows.server.install.record import FOLDER, Record
from fastroai.workflows.server.install.setup_parts import HOOK, KINDS

COMMAND = ("/opt/my python/bin/python", "-P", "-m", "fastroai.cli")
EVERY = list(CLIENTS)

SERVERS = {
    "claude-code": ".mcp.json",
    "cursor": ".cursor/mcp.json",
    "codex": ".codex/config.toml",
    "vscode": ".vscode/mcp.json",
    "gemini-cli": ".gemini/settings.json",
}
AGENT_FILES = {
    "claude-code": "CLAUDE.md",
    "codex": "AGENTS.md",
    "vscode": ".github/copilot-instructions.md",
    "gemini-cli": "GEMINI.md",
}
JSON_BEFORE = """\
{
\t// kept by hand
\t"mcpServers": {
\t\t"other": { "command": "other", "args": [ "-x" ] }, /* first */
\t},
\t"servers": {"other": {"command": "other"}},
\t"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "bell"}]}]},
\t"theme": "dark"
}"""
TOML_BEFORE = """\
# my models
model = "gpt-5"   # the good one

[mcp_servers.other]   # kept by hand
command = "other"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def setup(
    root: Path,
    client: str,
    scope: Scope = "project",
    command: tuple[str, ...] = COMMAND,
    is_named: bool = False,
) -> Setup:
    record = Record(root, root / FOLDER, is_project=scope == "project")
    return Setup(CLIENTS[client], Target(scope, root, command, is_named), record)


def install(root: Path, client: str, scope: Scope = "project", **options: Any) -> dict[str, str]:
    one = setup(root, client, scope)
    changes = one.install(**options)
    one.write(changes)
    return words(root, changes)


def uninstall(root: Path, client: str, scope: Scope = "project", **options: Any) -> dict[str, str]:
    one = setup(root, client, scope)
    changes = one.uninstall(**options)
    one.write(changes, is_removal=True)
    return words(root, changes)


def words(root: Path, changes: list[Change]) -> dict[str, str]:
    return {one.path.relative_to(root).as_posix(): one.word for one in changes}


def tree(root: Path) -> dict[str, tuple[bytes, int]]:
    """Every file, with its bytes and its mode."""
    return {
        path.relative_to(root).as_posix(): (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def fill(root: Path, client: str) -> None:
    """The files of somebody who uses the client already."""
    server = root / SERVERS[client]
    server.parent.mkdir(parents=True, exist_ok=True)
    server.write_text(TOML_BEFORE if server.suffix == ".toml" else JSON_BEFORE)
    server.chmod(0o640)
    for name in (".claude/settings.json", ".cursor/hooks.json", ".codex/hooks.json"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text('{"hooks": {"Stop": [{"command": "bell"}], "sessionStart": []}, "x": 1}\r\n')
    agent = root / AGENT_FILES.get(client, "AGENTS.md")
    agent.parent.mkdir(exist_ok=True)
    agent.write_bytes("# Rules\r\n\r\nBe kind – always.".encode())


# --- an empty project ---


@pytest.mark.parametrize("client", EVERY)
def test_an_empty_project_gets_all_parts_and_loses_them_again(project: Path, client: str) -> None:
    written = install(project, client)
    assert set(written.values()) == {"created"}
    assert set(written) | {".fastroai/install/.gitignore", ".fastroai/install/record.json"} == set(
        tree(project)
    )
    assert sum(name.endswith("SKILL.md") for name in written) == 11
    assert SERVERS[client] in written
    assert set(uninstall(project, client).values()) == {"removed"}
    assert list(project.iterdir()) == []


@pytest.mark.parametrize("client", EVERY)
def test_a_second_time_changes_nothing(project: Path, client: str) -> None:
    fill(project, client)
    install(project, client)
    before = tree(project)
    assert set(install(project, client).values()) == {"unchanged"}
    assert tree(project) == before


@pytest.mark.parametrize("client", EVERY)
def test_working_out_changes_nothing_and_shows_a_diff(project: Path, client: str) -> None:
    fill(project, client)
    before = tree(project)
    changes = setup(project, client).install()
    assert tree(project) == before
    diff = next(one for one in changes if one.path == project / SERVERS[client]).diff()
    added = [line for line in diff.splitlines() if line.startswith("+") and not line.startswith("+++")]
    removed = [line for line in diff.splitlines() if line.startswith("-") and not line.startswith("---")]
    assert any("/opt/my python/bin/python" in line for line in added)
    assert len(removed) <= 2, "no more than the line that gets a comma, and the last one"


# --- files that are there ---


@pytest.mark.parametrize("client", EVERY)
def test_uninstall_gives_every_file_back_byte_for_byte(project: Path, client: str) -> None:
    fill(project, client)
    before = tree(project)
    install(project, client)
    assert tree(project) != before
    uninstall(project, client)
    assert tree(project) == before


@pytest.mark.parametrize("client", [name for name in EVERY if name != "codex"])
def test_other_servers_and_comments_stay(project: Path, client: str) -> None:
    fill(project, client)
    install(project, client)
    text = (project / SERVERS[client]).read_text()
    for kept in ("// kept by hand", '"other": { "command": "other", "args": [ "-x" ] }, /* first */', "dark"):
        assert kept in text
    assert text.count('"fastroai": {') == 1


def test_the_toml_of_codex_keeps_comments_and_other_servers(project: Path) -> None:
    fill(project, "codex")
    install(project, "codex")
    text = (project / ".codex/config.toml").read_text()
    assert text.startswith(TOML_BEFORE)
    servers = tomllib.loads(text)["mcp_servers"]
    assert servers["other"] == {"command": "other"}
    assert servers["fastroai"] == {"command": COMMAND[0], "args": [*COMMAND[1:], "mcp"]}


@pytest.mark.parametrize("client", EVERY)
def test_what_others_have_added_since_stays_when_ours_is_taken_out(project: Path, client: str) -> None:
    fill(project, client)
    install(project, client)
    for name in (SERVERS[client], AGENT_FILES.get(client, "AGENTS.md")):
        path = project / name
        text = path.read_bytes().decode()
        if path.suffix == ".json":
            text = text.replace('"dark"', '"light", "more": [true]')
        path.write_bytes(f"{text}\n".encode() if path.suffix == ".json" else f"{text}\n# mine\n".encode())
    uninstall(project, client)
    text = (project / SERVERS[client]).read_text()
    assert "fastroai" not in text
    assert "kept by hand" in text
    assert ("# mine" if client == "codex" else '"more": [true]') in text
    agent = (project / AGENT_FILES.get(client, "AGENTS.md")).read_text()
    assert "fastroai" not in agent
    assert "Be kind – always." in agent
    assert "# mine" in agent


MINE = {
    "command": "uvx",
    "args": ["--from", "fastroai-runs[mcp]", "fastroai", "mcp", "--store", "postgresql://flows"],
    "env": {"FASTROAI_MCP_KEY": "secret"},
}
BY_HAND = json.dumps({"mcpServers": {"fastroai": MINE}, "servers": {"fastroai": MINE}})


@pytest.mark.parametrize("client", [name for name in EVERY if name != "codex"])
def test_an_entry_that_was_written_by_hand_stays_as_it_is(project: Path, client: str) -> None:
    path = project / SERVERS[client]
    path.parent.mkdir(exist_ok=True)
    path.write_text(BY_HAND)
    for _ in range(2):
        changes = setup(project, client).install()
        (change,) = [one for one in changes if one.path == path]
        assert (
            change.kept == f"its entry {'servers' if client == 'vscode' else 'mcpServers'}.fastroai is yours"
        )
        setup(project, client).write(changes)
        assert server_in(path) == MINE
    path.write_text(path.read_text() + "\n")
    uninstall(project, client)
    assert json.loads(path.read_text()) == json.loads(BY_HAND)


@pytest.mark.parametrize("client", [name for name in EVERY if name != "codex"])
def test_a_command_that_is_named_goes_into_an_entry_and_leaves_its_store_and_environment(
    project: Path, client: str
) -> None:
    path = project / SERVERS[client]
    path.parent.mkdir(exist_ok=True)
    path.write_text(BY_HAND)
    one = setup(project, client, command=("uv", "run", "fastroai"), is_named=True)
    one.write(one.install())
    assert server_in(path) == {
        "command": "uv",
        "args": ["run", "fastroai", "mcp", "--store", "postgresql://flows"],
        "env": {"FASTROAI_MCP_KEY": "secret"},
    }
    assert {change.word for change in one.install()} == {"unchanged"}
    uninstall(project, client)
    assert path.read_text() == BY_HAND


def test_an_entry_that_names_no_command_stays_as_it_is(project: Path) -> None:
    path = project / ".mcp.json"
    path.write_text('{"mcpServers": {"fastroai": {"type": "http", "url": "http://127.0.0.1:8321/mcp"}}}')
    before = path.read_text()
    one = setup(project, "claude-code", command=("fastroai",), is_named=True)
    one.write(one.install())
    assert path.read_text() == before


@pytest.mark.parametrize("client", EVERY)
def test_what_somebody_has_added_to_our_entry_stays(project: Path, client: str) -> None:
    install(project, client)
    path = project / SERVERS[client]
    if path.suffix == ".toml":
        path.write_text(path.read_text().replace("args =", 'env = { KEY = "secret" }\nargs ='))
    else:
        path.write_text(path.read_text().replace('"args":', '"env": {"KEY": "secret"},\n"args":'))
    edited = path.read_text()
    assert install(project, client)[SERVERS[client]] in ("kept", "changed")
    assert server_in(path)["env"] == {"KEY": "secret"}
    if client != "gemini-cli":  # its hooks are in the same file
        assert path.read_text() == edited


@pytest.mark.parametrize("client", EVERY)
def test_the_entry_of_another_installation_is_replaced_also_if_its_file_has_changed(
    project: Path, client: str
) -> None:
    older = ("/gone/bin/python", "-P", "-m", "fastroai.cli")
    one = setup(project, client, command=older)
    one.write(one.install())
    path = project / SERVERS[client]
    path.write_text(path.read_text() + "\n")
    install(project, client)
    assert server_in(path)["command"] == COMMAND[0]
    assert "/gone" not in path.read_text()


def server_in(path: Path) -> Any:
    text = path.read_text()
    config = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    name = {".codex": "mcp_servers", ".vscode": "servers"}.get(path.parent.name, "mcpServers")
    return config[name]["fastroai"]


def test_a_new_command_takes_the_place_of_the_old_one(project: Path) -> None:
    fill(project, "gemini-cli")
    before = tree(project)
    install(project, "gemini-cli")
    one = setup(project, "gemini-cli", command=("fastroai",))
    one.write(one.install())
    settings = (project / ".gemini/settings.json").read_text()
    assert "/opt" not in settings
    assert len(HOOK.findall(settings)) == 3
    uninstall(project, "gemini-cli")
    assert tree(project) == before


@pytest.mark.parametrize("client", EVERY)
def test_a_setup_that_came_without_its_record_is_taken_out_too(project: Path, client: str) -> None:
    install(project, client)
    shutil.rmtree(project / ".fastroai")
    assert set(install(project, client).values()) == {"unchanged"}
    uninstall(project, client)
    assert [path for path in project.rglob("*") if path.is_file()] == []


def test_hooks_are_beside_those_of_others(project: Path) -> None:
    (project / ".claude").mkdir()
    bell = {"hooks": [{"type": "command", "command": "bell"}]}
    (project / ".claude/settings.json").write_text(json.dumps({"hooks": {"Stop": [bell]}}))
    install(project, "claude-code")
    hooks = json.loads((project / ".claude/settings.json").read_text())["hooks"]
    assert set(hooks) == {"SessionStart", "Stop", "PostToolUse", "PostToolUseFailure"}
    assert hooks["Stop"][0] == bell
    assert hooks["Stop"][1]["hooks"][0]["command"] == (
        "'/opt/my python/bin/python' -P -m fastroai.cli mcp hook stop --client claude-code"
    )


def test_clients_do_not_get_into_each_other(project: Path) -> None:
    for client in EVERY:
        install(project, client)
    uninstall(project, "codex")
    assert set(install(project, "vscode").values()) == {"unchanged"}
    for client in EVERY:
        uninstall(project, client)
    assert list(project.iterdir()) == []


def test_parts_can_be_left_out(project: Path) -> None:
    assert list(install(project, "claude-code", kinds=("server",))) == [".mcp.json"]
    assert set(install(project, "claude-code", kinds=KINDS).values()) == {"created", "unchanged"}


@pytest.mark.parametrize("lose_record", [False, True])
def test_parts_that_come_one_after_the_other_are_taken_back_together(
    project: Path, lose_record: bool
) -> None:
    install(project, "gemini-cli", kinds=("server",))
    settings = project / ".gemini/settings.json"
    settings.write_text(settings.read_text().replace("{", '{"theme": "dark",', 1))
    if lose_record:
        shutil.rmtree(project / ".fastroai")
    install(project, "gemini-cli", kinds=("hooks",))
    assert uninstall(project, "gemini-cli")[".gemini/settings.json"] == "changed"
    left = json.loads(settings.read_text())
    assert left.pop("mcpServers", {}) == {}
    assert left == {"theme": "dark"}


# --- skills ---


def test_skills_that_were_edited_are_kept(project: Path) -> None:
    install(project, "claude-code")
    mine = project / ".claude/skills/fastroai-debug/SKILL.md"
    mine.write_text(mine.read_text() + "\nOurs: ask Ada first.\n")
    edited = mine.read_text()
    assert install(project, "claude-code")[".claude/skills/fastroai-debug/SKILL.md"] == "kept"
    assert uninstall(project, "claude-code")[".claude/skills/fastroai-debug/SKILL.md"] == "kept"
    assert set(tree(project)) == {".claude/skills/fastroai-debug/SKILL.md"}
    assert mine.read_text() == edited


def test_all_skills_can_be_kept_and_taken_back_later(project: Path) -> None:
    install(project, "cursor")
    uninstall(project, "cursor", keep_skills=True)
    kept = [name for name in tree(project) if not name.startswith(".fastroai")]
    assert len(kept) == 11
    assert all(name.endswith("SKILL.md") for name in kept)
    uninstall(project, "cursor")
    assert list(project.iterdir()) == []


def test_a_skill_of_an_older_version_is_replaced(project: Path) -> None:
    one = setup(project, "codex")
    changes = one.install()
    old = [
        Change(c.path, c.before, "old text\n", original=None) if c.path.name == "SKILL.md" else c
        for c in changes
    ]
    one.write(old)
    written = install(project, "codex")
    assert written[".agents/skills/fastroai-plan/SKILL.md"] == "changed"
    uninstall(project, "codex")
    assert list(project.iterdir()) == []


# --- safety ---


@pytest.mark.parametrize("client", [name for name in EVERY if name != "codex"])
def test_broken_json_is_refused_with_its_place_and_nothing_is_written(project: Path, client: str) -> None:
    path = project / SERVERS[client]
    path.parent.mkdir(exist_ok=True)
    path.write_text('{\n  "mcpServers": {\n    "a": 1,,\n  }\n}\n')
    before = tree(project)
    with pytest.raises(ConfigurationError, match=r"valid JSON; line 3, column 12"):
        install(project, client)
    assert tree(project) == before


def test_broken_toml_is_refused_with_its_place_and_nothing_is_written(project: Path) -> None:
    (project / ".codex").mkdir()
    (project / ".codex/config.toml").write_text('model = "x"\n[mcp_servers\n')
    before = tree(project)
    with pytest.raises(ConfigurationError, match=r"at line 2, column 13"):
        install(project, "codex")
    assert tree(project) == before


def test_an_entry_in_toml_that_was_written_by_hand_stays_as_it_is(project: Path) -> None:
    (project / ".codex").mkdir()
    before = '[mcp_servers.fastroai]\ncommand = "mine" # kept\nenv = { FASTROAI_STORE = "flows.db" }\n'
    (project / ".codex/config.toml").write_text(before)
    for _ in range(2):
        assert install(project, "codex")[".codex/config.toml"] == "kept"
        assert (project / ".codex/config.toml").read_text() == before
    assert (project / "AGENTS.md").exists()
    uninstall(project, "codex")
    assert (project / ".codex/config.toml").read_text() == before


@pytest.mark.parametrize(
    "text", ["<!-- fastroai: end -->\n<!-- fastroai: begin -->\n", "<!-- fastroai: begin -->\n"]
)
def test_markers_that_do_not_pair_are_refused(project: Path, text: str) -> None:
    (project / "CLAUDE.md").write_text(f"one\n{text}")
    with pytest.raises(ConfigurationError, match=r"CLAUDE.md.*see line [23]"):
        install(project, "claude-code")


def test_symbolic_links_are_refused(project: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside.md").write_text("theirs")
    (project / "CLAUDE.md").symlink_to(tmp_path / "outside.md")
    with pytest.raises(ConfigurationError, match=r"not a symbolic link \(to .*outside.md\)"):
        install(project, "claude-code")
    (project / "CLAUDE.md").unlink()
    (project / ".claude").symlink_to(tmp_path / "outside")
    with pytest.raises(ConfigurationError, match=r"\.claude.*not a symbolic link"):
        install(project, "claude-code")
    (project / ".claude").unlink()
    (project / ".fastroai").symlink_to(tmp_path / "outside")
    with pytest.raises(ConfigurationError, match=r"\.fastroai.*not a symbolic link"):
        install(project, "claude-code")
    assert list((tmp_path / "outside").iterdir()) == []
    assert (tmp_path / "outside.md").read_text() == "theirs"


def test_a_read_only_file_is_told_before_anything_is_written(project: Path) -> None:
    (project / "GEMINI.md").write_text("rules")
    (project / "GEMINI.md").chmod(0o444)
    before = tree(project)
    with pytest.raises(ConfigurationError, match=r"GEMINI.md.*read-only"):
        install(project, "gemini-cli")
    assert tree(project) == before


@pytest.mark.parametrize(
    ("data", "message"), [(b"\xff\xfe", "UTF-8; byte 0"), (b"x" * 10_000_001, "at most 10,000,000 bytes")]
)
def test_what_is_no_text_is_refused(project: Path, data: bytes, message: str) -> None:
    (project / "AGENTS.md").write_bytes(data)
    with pytest.raises(ConfigurationError, match=message):
        install(project, "codex")


def test_a_record_that_somebody_has_put_there_leads_nowhere_else(project: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("theirs")
    (project / FOLDER).mkdir(parents=True)
    written = {"digest": "0", "has_backup": True}
    record = {"clients": {"codex": {"../victim": written, str(victim): written}}}
    (project / FOLDER / "record.json").write_text(json.dumps(record))
    uninstall(project, "codex")
    assert victim.read_text() == "theirs"


def test_a_broken_record_is_told(project: Path) -> None:
    (project / FOLDER).mkdir(parents=True)
    (project / FOLDER / "record.json").write_text("{")
    with pytest.raises(ConfigurationError, match=r"record\.json.*remove it"):
        install(project, "codex")


def test_backups_are_private_and_modes_stay(project: Path) -> None:
    fill(project, "claude-code")
    install(project, "claude-code")
    backup = project / FOLDER / "backups/claude-code/.mcp.json"
    assert backup.read_text() == JSON_BEFORE
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert stat.S_IMODE((project / ".mcp.json").stat().st_mode) == 0o640
    assert (project / FOLDER / ".gitignore").read_text() == "*\n"


def test_a_backup_that_is_gone_is_told(project: Path) -> None:
    fill(project, "codex")
    install(project, "codex")
    (project / FOLDER / "backups/codex/AGENTS.md").unlink()
    with pytest.raises(ConfigurationError, match=r"backup of AGENTS\.md"):
        uninstall(project, "codex")


def test_a_setup_that_was_broken_off_can_be_finished_or_taken_back(project: Path) -> None:
    fill(project, "cursor")
    before = tree(project)
    one = setup(project, "cursor")
    changes = one.install()
    obstacle = project / ".cursor/skills"
    obstacle.write_text("in the way")
    with pytest.raises(ConfigurationError, match=r"expected a folder"):
        one.write(changes)
    obstacle.unlink()
    assert "fastroai" in (project / ".cursor/mcp.json").read_text(), "some files were written"
    uninstall(project, "cursor")
    assert tree(project) == before
    one = setup(project, "cursor")
    changes = one.install()
    obstacle.write_text("in the way")
    with pytest.raises(ConfigurationError):
        one.write(changes)
    obstacle.unlink()
    install(project, "cursor")
    uninstall(project, "cursor")
    assert tree(project) == before


# --- the scope of a user ---


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("client", "files"),
    [
        ("claude-code", {".claude.json", ".claude/CLAUDE.md", ".claude/settings.json"}),
        ("cursor", {".cursor/mcp.json", ".cursor/hooks.json"}),
        ("codex", {".codex/config.toml", ".codex/AGENTS.md", ".codex/hooks.json"}),
        ("gemini-cli", {".gemini/settings.json", ".gemini/GEMINI.md"}),
        ("vscode", {".config/Code/User/mcp.json"}),
    ],
)
def test_the_scope_of_a_user_has_files_of_its_own(
    home: Path, client: str, files: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    written = install(home, client, "user")
    assert {name for name in written if "skills" not in name} == files
    assert sum(name.endswith("SKILL.md") for name in written) == 11
    uninstall(home, client, "user")
    assert list(home.iterdir()) == []


def test_folders_that_the_environment_names_are_taken(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    for client in ("codex", "claude-code"):
        one = setup(home, client, "user")
        one.write(one.install())
    assert (tmp_path / "codex/config.toml").exists()
    assert (tmp_path / "claude/.claude.json").exists()
    assert (tmp_path / "claude/settings.json").exists()
    assert not (home / ".claude").exists()
    for client in ("codex", "claude-code"):
        one = setup(home, client, "user")
        one.write(one.uninstall(), is_removal=True)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.skipif(os.name != "posix", reason="the quoting of POSIX shells")
@pytest.mark.parametrize("client", EVERY)
def test_commands_of_hooks_are_quoted_for_the_shell(project: Path, client: str) -> None:
    one = setup(project, client, command=("/opt/a'b $(touch x)/python", "-P"))
    one.write(one.install())
    text = "".join(data.decode() for name, (data, _) in tree(project).items() if name.endswith(".json"))
    assert HOOK.search(text)
    assert """'/opt/a'\\"'\\"'b $(touch x)/python' -P mcp hook""" in text


PAGE = Path(__file__).parents[5] / "docs/guides/mcp-clients.md"


@pytest.mark.parametrize("client", EVERY)
def test_the_page_of_clients_lists_every_file(
    home: Path, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    text = (
        PAGE.read_text(encoding="utf-8").partition(f"### {CLIENTS[client].title}\n")[2].partition("\n### ")[0]
    )
    listed = set(re.findall(r"`(~?[\w./*-]*[./][\w./*-]+)`", text))
    for scope, prefix in (("project", ""), ("user", "~/")):
        target = Target(scope, home, COMMAND)  # type: ignore[arg-type]
        for part in CLIENTS[client].parts(target):
            name = prefix + part.path.relative_to(home).as_posix()
            assert re.sub(r"fastroai-\w+", "fastroai-*", name) in listed
