"""The store that a command works on, closed after it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastroai.cli.targets import codec_at, existing_store
from fastroai.store.history import RunHistory
from fastroai.store.run_store import RunStore


@asynccontextmanager
async def opened_store(place: str) -> AsyncGenerator[RunStore]:
    """The store that `--store` names."""
    store = existing_store(place)
    try:
        yield store
    finally:
        if (close := getattr(store, "aclose", None)) is not None:
            await close()


@asynccontextmanager
async def opened_history(place: str, codec: str | None = None) -> AsyncGenerator[RunHistory]:
    """Its runs, for commands that import no code of the user besides the codec that `--codec` names."""
    # Pydantic imports its plugins with the first model, which takes half a second where Logfire is installed.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    async with opened_store(place) as store:
        yield RunHistory(store, codec=codec_at(codec))
