"""Newer list prices, downloaded only when asked for. Without this, prices are those that genai-prices ships.

List prices belong to the process: an update is seen by every calculator, and by PydanticAI itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from genai_prices import UpdatePrices
from genai_prices.data_snapshot import set_custom_snapshot
from genai_prices.update_prices import DEFAULT_UPDATE_URL
from typing_extensions import override

from fastroai.errors import ConfigurationError, PriceUpdateError
from fastroai.records import Duration, in_seconds

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot

_HOUR: Final = 3600.0
_LONGEST: Final = 365 * 24 * _HOUR


def refresh_prices(url: str = DEFAULT_UPDATE_URL) -> None:
    """Download the list prices of models now, and use them in this process from now on.

    Every calculator of the process uses them, and so does PydanticAI. `url` is that of a price list in the
    format of genai-prices; by default, it is the list of that project.

    The call blocks until the download ends: up to 10 s on a silent server. On an event loop, use
    `await refresh_prices_async()`.

    Raises:
        PriceUpdateError: if the download fails or is not a price list; the prices in use stay in use.
    """
    set_custom_snapshot(_download(url))


async def refresh_prices_async(url: str = DEFAULT_UPDATE_URL) -> None:
    """Download the list prices of models now, and use them in this process from now on.

    It does what `refresh_prices` does, but in a thread, so that the event loop is not blocked. If it is
    cancelled, it changes nothing.

    Raises:
        PriceUpdateError: if the download fails or is not a price list; the prices in use stay in use.
    """
    set_custom_snapshot(await asyncio.to_thread(_download, url))


def update_prices_in_background(*, interval: Duration = _HOUR, url: str = DEFAULT_UPDATE_URL) -> UpdatePrices:
    """Download the list prices now and then every `interval` seconds, in a thread, until `.stop()`.

    Return the updater of genai-prices at once, without waiting for the first download. `interval` may also
    be a `timedelta`; by default, it is an hour. `url` is as in `refresh_prices`.

    A download that fails, or has no prices, raises nothing: genai-prices logs it, and tries again after
    `interval`. `.wait(timeout)` of the updater waits until the first download has ended. It returns `True`,
    or `False` if that took longer than `timeout` seconds, and raises the error if the latest download has
    failed. The updater is also a context manager, which stops it at the end. Downloaded prices stay in use
    after that.

    All updaters of a process share one thread, which takes the interval and the URL of the latest one.

    Raises:
        ConfigurationError: `interval` is not a time of a second to a year.
    """
    seconds: object = in_seconds(interval)
    if isinstance(seconds, bool) or not (isinstance(seconds, int | float) and 1 <= seconds <= _LONGEST):
        raise ConfigurationError("interval", interval, "a timedelta, or seconds, of a second to a year")
    updater = _Updater(update_interval=seconds, url=url)
    updater.start()
    return updater


class _Updater(UpdatePrices):
    """Refuses a price list without prices, so that those in use stay in use."""

    @override
    def fetch(self) -> DataSnapshot:
        snapshot = super().fetch()
        if snapshot is None or not snapshot.providers:
            raise PriceUpdateError(self.url, "it is empty")
        return snapshot


def _download(url: str) -> DataSnapshot:
    try:
        return _Updater(url=url).fetch()
    except PriceUpdateError:
        raise
    except Exception as error:  # any error of a download is a reason to keep the prices in use
        raise PriceUpdateError(url, f"{type(error).__name__}: {error}") from error
