"""The store that a command uses: which one it is, and that it is closed when the command is done."""

from __future__ import annotations

import os
import tomllib
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer

from fastroai.cli.targets import codec_at, existing_place
from fastroai.errors import ConfigurationError, FastroAIError

if TYPE_CHECKING:
    from fastroai.store.reading.history import RunHistory
    from fastroai.store.run_store import RunStore
    from fastroai.usage.shared.spend_book import SpendBook


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


def opened_store(place: str) -> AbstractAsyncContextManager[RunStore]:
    """Open the store that `--store` names, which must exist."""
    return _opened(existing_place(place))


@asynccontextmanager
async def _opened(place: str) -> AsyncGenerator[RunStore]:
    """Open a store of runs, with the payloads at `FASTROAI_PAYLOADS`, if that is set."""
    from fastroai.store.backends.run_offloading import OffloadingRunStore
    from fastroai.store.opening import open_payload_store, open_run_store

    store = open_run_store(place)
    if payloads := os.environ.get("FASTROAI_PAYLOADS"):
        store = OffloadingRunStore(store, open_payload_store(payloads))
    try:
        yield store
    finally:
        await _close(store)


@asynccontextmanager
async def opened_flow_store(
    place: str | None, may_be_new: bool = False
) -> AsyncGenerator[tuple[RunStore, str]]:
    """Open the store of flows and return it with its place: the store at `place`, or the default one."""
    from fastroai.store.opening import kind_and_place
    from fastroai.workflows.server.user_files import private_file

    place = default_place() if place is None else place
    if may_be_new and kind_and_place(place)[0] == "sqlite":
        where = private_file(kind_and_place(place)[1])
    else:
        where = existing_place(place)
    async with _opened(where) as store:
        yield store, where


@asynccontextmanager
async def opened_history(place: str, codec: str | None = None) -> AsyncGenerator[RunHistory]:
    """Open the runs of a store. Imports none of the user's code except the codec of `--codec`."""
    without_plugins()
    from fastroai.store.reading.history import RunHistory

    async with opened_store(place) as store:
        yield RunHistory(store, codec=codec_at(codec))


@asynccontextmanager
async def opened_book(place: str) -> AsyncGenerator[SpendBook]:
    """Open the spend limits of the store that `--store` names."""
    from fastroai.store.shared_spending.spend_stores import open_spend_store
    from fastroai.usage.shared.spend_book import SpendBook

    store = open_spend_store(existing_place(place))
    try:
        yield SpendBook(store)
    finally:
        await _close(store)


def without_plugins() -> None:
    """Keep Pydantic from importing its plugins with the first model: Logfire would take half a second."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


async def _close(store: object) -> None:
    if (close := getattr(store, "aclose", None)) is not None:
        await close()
