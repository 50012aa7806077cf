"""The pytest fixture `model_server`, and spend limits that begin anew in each test.

It needs no asyncio plugin, and imports nothing until it is used.
"""

import sys
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


@pytest.fixture(autouse=True)
def _no_spending_of_other_tests() -> Iterator[None]:
    """A `SpendLimit` without a store counts in the memory of the process, which each test finds empty."""
    yield
    counted = sys.modules.get("fastroai.usage.shared.memory_spend_store")
    if counted is not None:
        counted.default_spend_store().clear()
