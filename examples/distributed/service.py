"""The web process: it starts runs, follows them and takes answers. Workers carry them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from distributed.app import app, letters
from fastroai.web import RunsHost, runs_router


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    """Close the connections at the end."""
    async with app:
        yield


service = FastAPI(title="Letters", lifespan=lifespan)
service.include_router(runs_router(RunsHost(letters, workers=app)), prefix="/letters")
