"""Models that are built once for many short stories."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic_ai.models import Model

from fastroai.testing import ModelServer

ModelOf = Callable[[str], Model]
"""The model of a reference."""


@pytest.fixture(scope="module")
def built() -> dict[str, Model]:
    """To build a client takes longer than a story; the server keeps no connection that a loop could lose."""
    return {}


@pytest.fixture
def model_of(server: ModelServer, built: dict[str, Model]) -> ModelOf:
    """Models as the server serves them."""

    def get(reference: str) -> Model:
        if reference not in built:
            built[reference] = server.model(reference)
        return built[reference]

    return get


@pytest.fixture
def model(model_of: ModelOf, reference: str) -> Model:
    """The model of `reference`."""
    return model_of(reference)
