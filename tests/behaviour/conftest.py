"""One model server for all stories, told in each of the three protocols."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from pydantic_ai.models import Model
from support.accounting import Account, open_account

from fastroai.testing import ModelServer

REFERENCES = ("openai:gpt-5-mini", "openai-chat:gpt-5-mini", "anthropic:claude-haiku-4-5")


@pytest.fixture
def server(model_server: ModelServer) -> ModelServer:
    """The running model server, with nothing scripted and an empty ledger."""
    return model_server


@pytest.fixture(params=REFERENCES)
def reference(request: pytest.FixtureRequest) -> str:
    """A model of each protocol."""
    value: str = request.param
    return value


@pytest.fixture
def model(server: ModelServer, reference: str) -> Model:
    """The model of `reference`, as the server serves it."""
    return server.model(reference)


@pytest.fixture
async def account(server: ModelServer) -> AsyncIterator[Account]:
    """The run that the test is in, with its records."""
    async with open_account(server) as account:
        yield account


@pytest.fixture(autouse=True)
def no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts at a request follow each other at once, unless the server says `Retry-After`."""
    monkeypatch.setattr("fastroai.agent.requests.metering.REQUEST_RETRY_DELAY", 0.0)
