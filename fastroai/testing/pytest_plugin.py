"""The pytest fixture `model_server`. It needs no asyncio plugin, and imports nothing until it is used."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fastroai.testing.server import ModelServer

pytest.register_assert_rewrite("fastroai.testing.run_store_suite")


@pytest.fixture(scope="session")
def _running_model_server() -> "Iterator[ModelServer]":
    from fastroai.testing.server import ModelServer

    with ModelServer() as server:
        yield server


@pytest.fixture
def model_server(_running_model_server: "ModelServer") -> "Iterator[ModelServer]":
    """A running `fastroai.testing.ModelServer`, with nothing scripted and an empty ledger."""
    # One server for the whole session: a test then starts in microseconds.
    _running_model_server.reset()
    yield _running_model_server
    _running_model_server.reset()
