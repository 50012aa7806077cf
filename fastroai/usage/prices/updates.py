"""Newer list prices, downloaded only when asked for. Without this, prices are those that genai-prices ships.

List prices belong to the process: an update is seen by every calculator, and by PydanticAI itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from genai_prices import UpdatePrices
from genai_prices.data_snapshot import set_custom_snapshot
from genai_prices.update_prices import DEFAULT_UPDATE_URL

from fastroai.errors import PriceUpdateError
from fastroai.records import Duration, in_seconds

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot

_HOUR: Final = 3600.0


def refresh_prices(url: str = DEFAULT_UPDATE_URL) -> None:
    """Download the list prices now and use them from now on. Blocks: up to 10 s on a silent server.

    On an event loop: `await refresh_prices_async()`.

    Raises:
        PriceUpdateError: if the download fails or is not a price list.
    """
    set_custom_snapshot(_download(url))


async def refresh_prices_async(url: str = DEFAULT_UPDATE_URL) -> None:
    """Do `refresh_prices` without blocking the event loop. If it is cancelled, it changes nothing."""
    set_custom_snapshot(await asyncio.to_thread(_download, url))


def update_prices_in_background(*, interval: Duration = _HOUR, url: str = DEFAULT_UPDATE_URL) -> UpdatePrices:
    """Download the list prices now and then every `interval` seconds, in a thread, until `.stop()`.

    genai-prices logs a download that fails, and tries again next time. `.wait(timeout)` waits until the first
    download has ended; it raises the error of the latest download, and returns `False` if `timeout` seconds
    were too few. The result is also a context manager. Prices that were downloaded stay in use.
    """
    updater = UpdatePrices(update_interval=in_seconds(interval), url=url)
    updater.start()
    return updater


def _download(url: str) -> DataSnapshot:
    try:
        snapshot = UpdatePrices(url=url).fetch()
    except Exception as error:  # any error of a download is a reason to keep the prices in use
        raise PriceUpdateError(url, f"{type(error).__name__}: {error}") from error
    if snapshot is None or not snapshot.providers:
        raise PriceUpdateError(url, "it is empty")
    return snapshot
