import asyncio
import json
import pickle
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from genai_prices.data_snapshot import get_snapshot, set_custom_snapshot
from support.patience import PATIENCE

from fastroai.errors import ConfigurationError, PriceUpdateError
from fastroai.usage import (
    CostCalculator,
    refresh_prices,
    refresh_prices_async,
    update_prices_in_background,
)

NEWER = [
    {
        "id": "openai",
        "name": "OpenAI",
        "api_pattern": "https://api\\.openai\\.com",
        "models": [
            {
                "id": "gpt-new",
                "match": {"equals": "gpt-new"},
                "prices": {"input_mtok": 1.5, "output_mtok": 6},
            }
        ],
    }
]


class PriceServer(ThreadingHTTPServer):
    """Answers every request with `body` and `status`."""

    body, status, served = json.dumps(NEWER).encode(), 200, 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/prices.json"


class _Answer(BaseHTTPRequestHandler):
    server: PriceServer

    def do_GET(self) -> None:
        self.server.served += 1
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, format: str, *args: object) -> None:
        """Tests are quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[PriceServer]:
    monkeypatch.setenv("no_proxy", "*")
    with PriceServer(("127.0.0.1", 0), _Answer) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()
    set_custom_snapshot(None)


def test_nothing_is_downloaded_unless_asked_for(server: PriceServer) -> None:
    assert not CostCalculator().has_price("gpt-new", "openai")
    assert server.served == 0


def test_refreshed_prices_are_used_at_once_by_calculators_that_exist(server: PriceServer) -> None:
    calculator = CostCalculator()
    calculator.refresh_prices(server.url)
    assert calculator.calculate_cost("gpt-new", 1_000_000, 0) == 1_500_000


async def test_prices_can_be_refreshed_on_an_event_loop(server: PriceServer) -> None:
    await refresh_prices_async(server.url)
    assert CostCalculator().calculate_cost("gpt-new", 0, 1_000_000) == 6_000_000


async def test_a_cancelled_refresh_changes_nothing(server: PriceServer) -> None:
    before = get_snapshot()
    task = asyncio.create_task(refresh_prices_async(server.url))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert get_snapshot() is before


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (500, b"", "500 Internal Server Error"),
        (200, b"not json", "JSONDecodeError"),
        (200, b"{}", "provider array"),
        (200, b'[{"id": "openai"}]', "ValidationError"),
        (200, b"[]", "it is empty"),
    ],
)
def test_a_download_that_fails_leaves_the_prices_in_use(
    server: PriceServer, status: int, body: bytes, reason: str
) -> None:
    server.status, server.body = status, body
    before = get_snapshot()
    with pytest.raises(PriceUpdateError, match=reason) as caught:
        refresh_prices(server.url)
    assert server.url in str(caught.value)
    assert "the present prices stay in use" in str(caught.value)
    assert get_snapshot() is before
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert caught.value.retryable


def test_an_unreachable_server_is_an_error(server: PriceServer) -> None:
    with pytest.raises(PriceUpdateError, match="ConnectError"):
        refresh_prices("http://127.0.0.1:1/prices.json")


def test_prices_are_updated_in_the_background_until_stopped(server: PriceServer) -> None:
    with update_prices_in_background(url=server.url, interval=60) as updater:
        assert updater.wait(timeout=PATIENCE)
        assert CostCalculator().has_price("gpt-new", "openai")


def test_a_list_without_prices_does_not_replace_those_in_use(server: PriceServer) -> None:
    server.body, before = b"[]", get_snapshot()
    with (
        update_prices_in_background(url=server.url) as updater,
        pytest.raises(PriceUpdateError, match="empty"),
    ):
        updater.wait(timeout=PATIENCE)
    assert get_snapshot() is before


@pytest.mark.parametrize("interval", [0, -1, 0.5, None, "x", True, timedelta.max, float("nan")])
def test_an_interval_that_cannot_be_meant_is_refused(interval: Any) -> None:
    with pytest.raises(ConfigurationError, match="interval="):
        update_prices_in_background(interval=interval)
