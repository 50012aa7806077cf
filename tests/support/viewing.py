"""Viewers for tests: in this process, or in a thread that browsers reach; and a browser."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import httpx2
import pytest
import uvicorn
from starlette.types import ASGIApp

from support.patience import PATIENCE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

T = TypeVar("T")

_PATIENCE_OF_PAGES = 30
"""Seconds. A page that waits longer than that waits for something that is not on it."""
TOKEN = "the-token-of-these-tests"
HOST = "127.0.0.1:8642"

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(1)> {{7*7}} {% raw %} ${7*7} javascript:alert(1) "
    "'\"><b hx-get=/x> \u202egnp.exe\u2066 \x1b[31m\x07 \u05e9\u05dc\u05d5\u05dd"
)
"""Text that would do something where it is taken for anything but text."""
LABEL = "".join(char for char in HOSTILE if char.isprintable())
"""The same, as far as names can have it."""


def client(app: ASGIApp, *, host: str = HOST) -> httpx2.AsyncClient:
    """A browser without a window: it keeps cookies and follows no redirects."""
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=f"http://{host}")


@asynccontextmanager
async def signed_in(app: ASGIApp) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that has opened the printed link."""
    async with client(app) as browser:
        answer = await browser.get("/", params={"token": TOKEN})
        assert answer.status_code == 303
        yield browser


async def csrf_of(browser: httpx2.AsyncClient) -> str:
    """The secret of forms, which comes with the first page."""
    await browser.get("/people")
    return browser.cookies["fastroai_csrf"]


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """Serve an app in a thread, and return its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(
            app, log_level="error", lifespan="off", access_log=False, timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive()


@dataclass
class BrowserThread:
    """A Chromium, and the thread in which it is driven: Playwright blocks the event loop of its thread."""

    pool: ThreadPoolExecutor
    browser: Browser
    pages: list[Page] = field(default_factory=list)

    def run(self, act: Callable[[Page], T], **context: Any) -> T:
        """Call a function with a new page, and check that no script of the page had errors."""

        def look() -> T:
            with self.browser.new_context(**context) as opened:
                page = opened.new_page()
                page.set_default_timeout(_PATIENCE_OF_PAGES * 1000)
                errors = list[str]()
                page.on("pageerror", lambda error: errors.append(str(error)))
                page.on("dialog", lambda dialog: errors.append(f"dialog: {dialog.message}"))
                page.on("console", lambda told: errors.append(told.text) if told.type == "error" else None)
                found = act(page)
                if told := [one for one in errors if "Failed to load resource" not in one]:
                    raise AssertionError("\n".join(told))
                return found

        return self.pool.submit(look).result(PATIENCE * 2)


def keep_picture(page: Page, name: str) -> None:
    """Keep a picture of a page in the folder that `FASTROAI_SHOTS` names, if it names one."""
    if folder := os.environ.get("FASTROAI_SHOTS"):
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)


def chromium() -> str | None:
    """The Chromium that the tests use: `CHROMIUM`, else an installed one."""
    named = os.environ.get("CHROMIUM")
    return named or next(
        filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None
    )


@contextmanager
def started_browser() -> Iterator[BrowserThread]:
    """A browser for all tests of this process. Without one they are skipped, or fail where CI runs them."""
    path = chromium()
    if path is None:
        reason = "no Chromium: `make browser` installs one, or CHROMIUM names one"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with ThreadPoolExecutor(1) as pool:
        playwright = pool.submit(lambda: sync_playwright().start()).result(PATIENCE)
        browser = pool.submit(
            lambda: playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        ).result(PATIENCE)
        try:
            yield BrowserThread(pool, browser)
        finally:
            pool.submit(browser.close).result(PATIENCE)
            pool.submit(playwright.stop).result(PATIENCE)
