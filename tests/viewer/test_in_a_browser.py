"""The viewer in a real Chromium: pages that move, forms, keys, narrow screens, and what axe finds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.viewed_runs import Decision, asked, asking, failed, look_up
from support.viewing import TOKEN, BrowserThread, keep_picture, served

from fastroai import Inbox, Pipeline, PipelineConfig, RunHistory, SpendLimit, SQLiteRunStore
from fastroai.store import SQLiteSpendStore
from fastroai.viewer import viewer

if TYPE_CHECKING:
    from playwright.sync_api import Page

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text()
PAGES = ("/runs", "/spending?by=model", "/people", "/people/order:{question}", "/runs/order", "/runs/nope")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "runs.db"
    asyncio.run(_fill(place))
    return place


async def _fill(place: Path) -> None:
    store, spend = SQLiteRunStore(place), SQLiteSpendStore(place)
    limit = SpendLimit(usd="0.05", window="day", key="tenant", store=spend)
    pipeline = Pipeline("search", {"look up": look_up}, config=PipelineConfig(budget=limit))
    for number in range(3):
        await pipeline.execute(run_id=f"search {number}", store=store, tenant="acme", tags=["eu"])
    await asked(store, asking(Decision), "order")
    await asked(store, asking(bool))
    await failed(store)
    await spend.aclose()
    await store.aclose()


@pytest.fixture
def address(file: Path) -> Iterator[str]:
    with served(viewer(file, spend=str(file), token=TOKEN, name="Mia")) as address:
        yield address


def opened(page: Page, address: str, path: str = "/runs") -> None:
    page.goto(f"{address}/?token={TOKEN}")
    page.goto(address + path)


def question_of(file: Path, run_id: str) -> str:
    async def find() -> str:
        store = SQLiteRunStore(file)
        (found,) = await Inbox(store).list(run_id=run_id)
        await store.aclose()
        return found.id.rpartition(":")[2]

    return asyncio.run(find())


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (420, "dark")])
def test_axe_finds_nothing_and_no_page_is_wider_than_its_screen(
    browser: BrowserThread, address: str, file: Path, width: int, scheme: str
) -> None:
    paths = [path.replace("{question}", question_of(file, "order")) for path in PAGES]

    def look(page: Page) -> None:
        opened(page, address)
        for path in paths:
            page.goto(address + path)
            found: list[Any] = page.evaluate(f"{AXE}; axe.run().then(found => found.violations)")
            told = [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found]
            assert told == [], path
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            name = path.strip("/").replace("/", "-").partition("?")[0].partition(":")[0]
            keep_picture(page, f"{name}-{width}-{scheme}")

    browser.run(look, viewport={"width": width, "height": 900}, color_scheme=scheme)


def test_the_token_is_in_no_address_after_the_first_and_in_no_script(
    browser: BrowserThread, address: str
) -> None:
    def look(page: Page) -> None:
        page.goto(f"{address}/?token={TOKEN}")
        assert page.url == f"{address}/runs"
        assert TOKEN not in page.content()
        assert page.evaluate("document.cookie") == ""
        page.go_back()
        assert TOKEN not in page.url

    browser.run(look)


def test_the_list_moves_while_somebody_looks_and_keeps_the_focus(
    browser: BrowserThread, address: str, file: Path
) -> None:
    async def more() -> None:
        store = SQLiteRunStore(file)
        await Pipeline("search", {"look up": look_up}).execute(run_id="new", store=store, tenant="acme")
        await RunHistory(store).delete("search 0")
        await store.aclose()

    def look(page: Page) -> None:
        opened(page, address, "/runs?tenant=acme")
        link = page.get_by_role("link", name="search 1")
        link.focus()
        _in_thread(more)
        page.get_by_role("link", name="new").wait_for()
        page.get_by_role("link", name="search 0").wait_for(state="detached")
        assert page.evaluate("document.activeElement.textContent") == "search 1"

    browser.run(look)


def _in_thread(act: Any) -> None:
    """Run a coroutine function in a thread of its own: Playwright has a loop in this one."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(act())).result()


def test_runs_are_found_with_the_keyboard(browser: BrowserThread, address: str) -> None:
    def look(page: Page) -> None:
        opened(page, address)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.get_by_label("Search").focus()
        page.keyboard.type("search 2")
        page.keyboard.press("Enter")
        page.get_by_text("1 run", exact=True).wait_for()
        page.get_by_role("link", name="search 2").focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/runs/search%202")

    browser.run(look)


def test_a_question_is_answered_in_its_form(browser: BrowserThread, address: str, file: Path) -> None:
    def look(page: Page) -> None:
        opened(page, address, f"/people/order:{question_of_order}")
        page.get_by_role("button", name="Answer").click()
        page.get_by_label("Days").fill("99", force=True)
        page.get_by_label("refund").check()
        page.evaluate("document.querySelector('form.answer').noValidate = true")
        page.get_by_label("Count").fill("2")
        page.get_by_label("Sku").fill("A-1")
        page.get_by_role("button", name="Answer").click()
        page.get_by_text("This is not what is asked for").wait_for()
        assert page.get_by_label("Sku").input_value() == "A-1"
        page.get_by_label("Days").fill("7")
        page.get_by_role("button", name="Answer").click()
        page.get_by_text("Your answer is on record").wait_for()

    question_of_order = question_of(file, "order")
    browser.run(look)


def test_what_an_action_may_cost_is_told_before_it_is_done(browser: BrowserThread, address: str) -> None:
    def look(page: Page) -> None:
        opened(page, address, "/runs/failed")
        button = page.get_by_role("button", name="Cancel this run")
        assert not button.is_visible()
        page.locator("summary", has_text="Cancel").click()
        assert page.get_by_text("It costs nothing.").is_visible()
        button.click()
        page.locator(".s-cancelled").first.wait_for()

    browser.run(look)


def test_injected_attributes_of_htmx_do_nothing(browser: BrowserThread, address: str) -> None:
    """Whoever got markup into a page would still have no nonce, and no script would run."""

    def look(page: Page) -> None:
        asked_for = list[str]()
        page.on("request", lambda request: asked_for.append(request.url))
        opened(page, address)
        page.evaluate(
            """() => {
                const link = document.createElement('a');
                link.setAttribute('hx-get', '/injected');
                link.setAttribute('hx-trigger', 'load, click');
                link.id = 'injected';
                document.querySelector('main').append(link);
                htmx.process(link);
                link.click();
            }"""
        )
        page.wait_for_function("!document.querySelector('#injected').hasAttribute('hx-get')")
        assert not [url for url in asked_for if "injected" in url]

    with pytest.raises(AssertionError, match="hx-csp"):  # the extension says so in the console
        browser.run(look)
