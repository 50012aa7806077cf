"""The store that a command uses, which is closed when the command is done."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from fastroai.cli.places import default_place
from fastroai.cli.targets import codec_at, existing_place

if TYPE_CHECKING:
    from fastroai.store.reading.history import RunHistory
    from fastroai.store.run_store import RunStore
    from fastroai.usage.shared.spend_book import SpendBook


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
