"""The code of the documentation runs against a model server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fastroai.functions import reset
from fastroai.testing import ModelServer


@pytest.fixture
def server(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[ModelServer]:
    """The model server, which is where providers are, and no waiting between attempts at a request."""
    for name, value in model_server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fastroai.agent.requests.metering.REQUEST_RETRY_DELAY", 0.0)
    yield model_server
    reset()  # what a page has configured for the process
