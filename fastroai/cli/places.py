"""The store that a command uses if neither an option nor the environment names one."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import cast

import typer

from fastroai.errors import ConfigurationError, FastroAIError


def default_place() -> str:
    """Return the store that the project's `pyproject.toml` names, else the path of this user's own store.

        [tool.fastroai]
        store = "runs.db"

    The nearest `pyproject.toml` counts, in this directory or above it. A path in it starts from its folder.

    Raises:
        ConfigurationError: `pyproject.toml` cannot be read, or its entry is no text.
        MissingExtraError: platformdirs, which finds the user's own store, is not installed.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (file := folder / "pyproject.toml").is_file():
            return _place_in(file) or _own_store()
    return _own_store()


def default_of_option() -> str:
    """Return the default of an option that names a store: `default_place`, whose errors are usage errors."""
    try:
        return default_place()
    except FastroAIError as error:
        raise typer.BadParameter(f"{error}; name the store with --store or FASTROAI_STORE") from error


def _place_in(file: Path) -> str | None:
    try:
        tool: object = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError) as error:
        expected = f"a TOML file that can be read; {error}"
        raise ConfigurationError("pyproject.toml", str(file), expected) from error
    table: object = cast("dict[str, object]", tool).get("fastroai") if isinstance(tool, dict) else None
    place: object = cast("dict[str, object]", table).get("store") if isinstance(table, dict) else None
    if place is None:
        return None
    if not isinstance(place, str) or not place:
        raise ConfigurationError("store", place, f"a file or a URL, as text, under [tool.fastroai] of {file}")
    return place if "://" in place else str(file.parent / place)


def _own_store() -> str:
    from fastroai.workflows.server.user_files import user_store

    return user_store()
