"""The clients that can be set up: their files, and the parts that belong into them.

`docs/guides/mcp-clients.md` lists the same files and keys, with the documentation in which each was found.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal, TypeAlias

from pydantic import JsonValue

from fastroai.workflows.server.install.setup_parts import (
    THIS_MODULE,
    BlockPart,
    FilePart,
    JsonPart,
    Part,
    Server,
    TomlPart,
    Way,
)

Scope: TypeAlias = Literal["project", "user"]
"""The scope of a setup: one project, or all projects of this user."""

NAME: Final = "fastroai"
"""The name of the server in the configuration of clients."""

_SECONDS: Final = 10
"""Seconds that a client waits for a hook; a hook takes a fraction of a second."""

_TEXTS: Final = files("fastroai.workflows.server.install") / "skills"
_INSTRUCTIONS: Final = "instructions.md"
_STEP_DONE: Final = ".*fastroai_step_done"
_MARKDOWN: Final = ("<!-- fastroai: begin -->", "<!-- fastroai: end -->")
_TOML: Final = ("# fastroai: begin", "# fastroai: end")


@dataclass(frozen=True, slots=True)
class Target:
    """The project or the user to set up, and the command that starts FastroAI."""

    scope: Scope
    root: Path
    """The folder of the project, or the user's own folder."""
    command: tuple[str, ...]
    """The command that starts `fastroai`, as a list of words."""
    is_named: bool = False
    """Whether the user has named the command."""

    @property
    def is_project(self) -> bool:
        """Whether one project is set up, and not all projects of the user."""
        return self.scope == "project"

    def server(self, *options: str, **more: JsonValue) -> Server:
        """Return the entry of the server, with options of `fastroai mcp` and more members."""
        return Server(self.command, options, more, self.is_named)

    def hook(self, event: str, client: str) -> str:
        """Return the command line of a hook."""
        words = [*self.command, "mcp", "hook", event, "--client", client]
        return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


@dataclass(frozen=True, slots=True)
class Client:
    """A coding agent that can be set up."""

    name: str
    title: str
    home: Callable[[Path], Path]
    """Returns the client's folder of settings, given the user's own folder."""
    sign: str
    """Name of the client's folder in projects that are used with it."""
    parts_of: Callable[[Target, Path], Sequence[Part]]
    """Returns the parts that belong into the client's files, given its folder in the target."""

    def parts(self, target: Target) -> Sequence[Part]:
        """Return the parts that belong into the client's files."""
        folder = target.root / self.sign if target.is_project else self.home(target.root)
        return self.parts_of(target, folder)


def this_fastroai() -> tuple[str, ...]:
    """Return the command that starts this installation of FastroAI, wherever a client starts it."""
    return (sys.executable, *THIS_MODULE)


def snippet(target: Target) -> str:
    """Return the configuration for a client that FastroAI does not know."""
    server = json.dumps({"mcpServers": {NAME: target.server().entry()}}, indent=2, ensure_ascii=False)
    return f"As JSON:\n\n{server}\n\nAs TOML:\n\n{_toml(target.server())}"


# --- texts ---


@cache
def instructions() -> str:
    """Return the instructions about workflows for the agents of a project."""
    return (_TEXTS / _INSTRUCTIONS).read_text(encoding="utf-8")


@cache
def skill_texts() -> Mapping[str, str]:
    """Return the texts of the skills, by the names of their folders: `fastroai-…`."""
    skills = sorted(one.name for one in _TEXTS.iterdir() if one.name != _INSTRUCTIONS)
    return {
        f"fastroai-{name.removesuffix('.md')}": (_TEXTS / name).read_text(encoding="utf-8") for name in skills
    }


# --- Claude Code ---


def _claude(target: Target, folder: Path) -> list[Part]:
    hooks = {
        "SessionStart": [_group(target.hook("session-start", "claude-code"))],
        "Stop": [_group(target.hook("stop", "claude-code"))],
        "PostToolUse": [_group(target.hook("tool-failure", "claude-code"), _STEP_DONE)],
        "PostToolUseFailure": [_group(target.hook("tool-failure", "claude-code"))],
    }
    # If CLAUDE_CONFIG_DIR names the folder of settings, Claude Code keeps its state in there too.
    state = target.root if folder == target.root / ".claude" else folder
    return [
        _server(state / (".mcp.json" if target.is_project else ".claude.json"), target.server()),
        _block(target, folder, "CLAUDE.md"),
        *_skills(folder / "skills"),
        _hooks(folder / "settings.json", hooks),
    ]


# --- Cursor ---


def _cursor(target: Target, folder: Path) -> list[Part]:
    hooks: dict[str, list[JsonValue]] = {
        "sessionStart": [{"command": target.hook("session-start", "cursor")}],
        "afterAgentResponse": [{"command": target.hook("stop", "cursor")}],
        "afterMCPExecution": [{"command": target.hook("tool-failure", "cursor")}],
        "postToolUseFailure": [{"command": target.hook("tool-failure", "cursor")}],
    }
    # Cursor starts servers in any folder; this variable holds the folder of the project.
    server = target.server(*(("--workspace", "${workspaceFolder}") if target.is_project else ()))
    rule = (
        "---\ndescription: Workflows of FastroAI\nalwaysApply: true\n---\n\n" + instructions().strip() + "\n"
    )
    return [
        _server(folder / "mcp.json", server),
        *([FilePart("instructions", folder / "rules" / "fastroai.mdc", rule)] if target.is_project else []),
        *_skills(folder / "skills"),
        _hooks(folder / "hooks.json", hooks, ((("version",), 1),)),
    ]


# --- Codex ---


def _codex(target: Target, folder: Path) -> list[Part]:
    hooks = {
        "SessionStart": [_group(target.hook("session-start", "codex"))],
        "Stop": [_group(target.hook("stop", "codex"))],
        "PostToolUse": [_group(target.hook("tool-failure", "codex"), _STEP_DONE)],
    }
    path, server = folder / "config.toml", target.server()
    block = BlockPart("server", path, *_TOML, body=_toml(server))
    config = TomlPart("server", path, ("mcp_servers", NAME), server, block)
    return [
        config,
        _block(target, folder, "AGENTS.md"),
        *_skills(target.root / ".agents" / "skills"),
        _hooks(folder / "hooks.json", hooks),
    ]


def _toml(server: Server) -> str:
    # Strings and arrays of strings are written in TOML as in JSON.
    values = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in server.entry().items()]
    return "\n".join([f"[mcp_servers.{NAME}]", *values, ""])


# --- VS Code ---


def _vscode(target: Target, folder: Path) -> list[Part]:
    github = target.root / ".github"
    server = target.server("--workspace", "${workspaceFolder}", type="stdio")
    config = JsonPart("server", folder / "mcp.json", entry=(("servers", NAME), server))
    if not target.is_project:
        return [config, *_skills(target.root / ".copilot" / "skills")]
    hooks = {
        event: [{"type": "command", "command": target.hook(hook, "vscode"), "timeout": _SECONDS}]
        for event, hook in (("SessionStart", "session-start"), ("PostToolUse", "tool-failure"))
    }
    hooks_text = json.dumps({"hooks": hooks}, indent=2, ensure_ascii=False) + "\n"
    return [
        config,
        _block(target, github, ".github/copilot-instructions.md"),
        *_skills(github / "skills"),
        FilePart("hooks", github / "hooks" / "fastroai.json", hooks_text),
    ]


def _vscode_home(home: Path) -> Path:
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "Code" / "User"
    if os.name == "nt":
        return Path(os.environ.get("APPDATA", home / "AppData" / "Roaming")) / "Code" / "User"
    return Path(os.environ.get("XDG_CONFIG_HOME", home / ".config")) / "Code" / "User"


# --- Gemini CLI ---


def _gemini(target: Target, folder: Path) -> list[Part]:
    hooks = {
        event: [_group(target.hook(hook, "gemini-cli"), matcher, _SECONDS * 1000)]
        for event, hook, matcher in (
            ("SessionStart", "session-start", None),
            ("AfterAgent", "stop", None),
            ("AfterTool", "tool-failure", f"{_STEP_DONE}|run_shell_command"),
        )
    }
    return [
        _server(folder / "settings.json", target.server()),
        _block(target, folder, "GEMINI.md"),
        *_skills(folder / "skills"),
        _hooks(folder / "settings.json", hooks),
    ]


# --- parts that several clients have ---


def _server(path: Path, server: Server) -> JsonPart:
    return JsonPart("server", path, entry=(("mcpServers", NAME), server))


def _hooks(
    path: Path,
    hooks: Mapping[str, Sequence[JsonValue]],
    defaults: tuple[tuple[Way, JsonValue], ...] = (),
) -> JsonPart:
    items = tuple((("hooks", event), item) for event, each in hooks.items() for item in each)
    return JsonPart("hooks", path, items=items, defaults=defaults)


def _group(command: str, matcher: str | None = None, timeout: int = _SECONDS) -> JsonValue:
    handler: JsonValue = {"type": "command", "command": command, "timeout": timeout}
    return {"hooks": [handler]} if matcher is None else {"matcher": matcher, "hooks": [handler]}


def _block(target: Target, folder: Path, name: str) -> BlockPart:
    path = (target.root if target.is_project else folder) / name
    return BlockPart("instructions", path, *_MARKDOWN, body=instructions())


def _skills(folder: Path) -> list[Part]:
    return [FilePart("skills", folder / name / "SKILL.md", text) for name, text in skill_texts().items()]


def _in_home(name: str, variable: str | None = None) -> Callable[[Path], Path]:
    def folder(home: Path) -> Path:
        own = None if variable is None else os.environ.get(variable)
        return Path(own) if own else home / name

    return folder


CLIENTS: Final[Mapping[str, Client]] = {
    one.name: one
    for one in (
        Client("claude-code", "Claude Code", _in_home(".claude", "CLAUDE_CONFIG_DIR"), ".claude", _claude),
        Client("cursor", "Cursor", _in_home(".cursor"), ".cursor", _cursor),
        Client("codex", "Codex", _in_home(".codex", "CODEX_HOME"), ".codex", _codex),
        Client("vscode", "VS Code", _vscode_home, ".vscode", _vscode),
        Client("gemini-cli", "Gemini CLI", _in_home(".gemini"), ".gemini", _gemini),
    )
}
"""The clients by their names."""

ALIASES: Final[Mapping[str, str]] = {"claude": "claude-code", "gemini": "gemini-cli", "vs-code": "vscode"}
"""Other names of clients."""
