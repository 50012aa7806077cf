"""Fixtures of the viewer: a browser, if there is one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.viewing import BrowserThread, started_browser


@pytest.fixture(scope="session")
def browser() -> Iterator[BrowserThread]:
    """One Chromium for all tests of this process."""
    with started_browser() as started:
        yield started
