"""The page of one run in a browser: it moves, opens and closes, and can be used by everybody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from support.patience import PATIENCE
from support.seen_runs import desk, make_runs
from support.viewing import LABEL, TOKEN, BrowserThread, keep_picture, served

from fastroai import Pipeline, SQLiteRunStore, StepContext, step
from fastroai.runtime.fact import RunEvent
from fastroai.runtime.facts import PauseRequested
from fastroai.viewer import viewer

if TYPE_CHECKING:
    from playwright.sync_api import Page

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = SQLiteRunStore(tmp_path_factory.mktemp("runs") / "runs.db")
    asyncio.run(make_runs(store))
    with served(viewer(store, token=TOKEN, runs=[desk()])) as served_at:
        yield served_at


def opened(page: Page, address: str, path: str) -> None:
    page.goto(f"{address}/?token={TOKEN}")
    page.goto(address + path)


def test_a_step_opens_in_place_by_mouse_and_keyboard_and_closes(browser: BrowserThread, address: str) -> None:
    def act(page: Page) -> None:
        opened(page, address, "/runs/desk")
        page.click("#canvas .node[data-node=review]")
        assert page.locator("#panel h2 bdi").inner_text() == "review"
        assert page.locator("tr[aria-current] a").get_attribute("data-step") == "review"
        page.wait_for_selector("#step-title:focus")
        page.keyboard.press("Escape")
        assert page.locator("#panel").is_hidden()
        assert page.evaluate("document.activeElement.dataset.step") == "review"
        page.locator("a[data-step='review@1/inner/say@1:1']").press("Enter")
        page.wait_for_selector("#panel .said")
        assert page.url.endswith("step=review%401%2Finner%2Fsay%401%3A1")
        page.reload()
        assert page.locator("#panel .said").count() == 2

    browser.run(act)


def test_the_drawing_can_be_moved_and_what_is_nested_opens_in_it(
    browser: BrowserThread, address: str
) -> None:
    def act(page: Page) -> None:
        opened(page, address, "/runs/desk")
        transform = "document.querySelector('#canvas svg').style.transform"
        before = page.evaluate(transform)
        page.click("[data-zoom=in]")
        larger = page.evaluate(transform)
        page.locator("#canvas").press("ArrowLeft")
        moved = page.evaluate(transform)
        assert len({before, larger, moved}) == 3
        page.reload()
        assert page.evaluate(transform) == moved, "the view is kept"
        page.click("[data-zoom=fit]")
        assert page.evaluate(transform) == before
        assert page.locator("[data-node='review@1/inner/flaky'].node").count() == 0
        page.click("a[data-step=review]")
        page.click("text=Open in the drawing")
        page.wait_for_selector("[data-node='review@1/inner/flaky'].node")
        page.click("text=Close in the drawing")
        page.wait_for_selector("[data-node='review@1/inner/flaky'].node", state="detached")

    browser.run(act)


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (420, "dark")])
def test_everybody_can_use_it(browser: BrowserThread, address: str, width: int, scheme: str) -> None:
    def act(page: Page) -> None:
        page.goto(f"{address}/?token={TOKEN}")
        for name, path in (
            ("graph", "/runs/essay?step=review&open=review"),
            ("hostile", f"/runs/{quoted(LABEL)}?step=fails"),
            ("diff", "/runs/desk/diff?with=essay"),
        ):
            page.goto(address + path)
            page.evaluate(AXE)
            found = page.evaluate("axe.run({resultTypes: ['violations']})")
            told = [
                (one["id"], [node["html"][:200] for node in one["nodes"]][:3]) for one in found["violations"]
            ]
            assert told == [], path
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            keep_picture(page, f"{name}-{width}-{scheme}")

    browser.run(act, viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)


def quoted(run_id: str) -> str:
    return quote(quote(run_id, safe=""), safe="")


def test_hostile_text_runs_nothing(browser: BrowserThread, address: str) -> None:
    def act(page: Page) -> None:
        opened(page, address, f"/runs/{quoted(LABEL)}")
        for link in range(page.locator(".timeline a[data-step]").count()):
            with page.expect_response(lambda answer: "/step?" in answer.url):
                page.locator(".timeline a[data-step]").nth(link).click()
            page.wait_for_selector("#panel h2")
        assert page.locator("[hx-get]").count() == 0
        assert page.locator("main img").count() == 0

    browser.run(act)


async def test_a_running_run_moves_while_it_is_looked_at(browser: BrowserThread, tmp_path: Path) -> None:
    go_on = asyncio.Event()

    @step
    async def waits(ctx: StepContext[Any]) -> str:
        await go_on.wait()
        return "went"

    @step
    async def after(ctx: StepContext[Any]) -> str:
        return "after"

    pipeline = Pipeline[Any, Any, str]("live", {"waits": waits, "after": after}, {"after": ["waits"]})
    loop, store = asyncio.get_running_loop(), SQLiteRunStore(tmp_path / "runs.db")
    run = asyncio.ensure_future(pipeline.execute(run_id="live", store=store))

    def act(page: Page) -> list[str]:
        opened(page, own_address, "/runs/live")
        states = "[...document.querySelectorAll('#canvas .node')].map(one => one.classList[1]).join()"
        seen = [page.evaluate(states)]
        loop.call_soon_threadsafe(go_on.set)
        page.wait_for_selector("#canvas .node.succeeded[data-node=after]")
        page.wait_for_selector("[data-status=finished]")
        return [*seen, page.evaluate(states)]

    with served(viewer(SQLiteRunStore(tmp_path / "runs.db"), token=TOKEN)) as own_address:
        assert await asyncio.to_thread(browser.run, act) == ["running,plain", "succeeded,succeeded"]
    await run


async def test_a_run_is_paused_resumed_with_a_budget_and_compared(
    browser: BrowserThread, tmp_path: Path
) -> None:
    go_on = asyncio.Event()

    @step
    async def waits(ctx: StepContext[Any]) -> str:
        await go_on.wait()
        return "went"

    @step
    async def after(ctx: StepContext[Any]) -> str:
        return f"after {ctx.get_input('word')}"

    pipeline = Pipeline[Any, Any, str]("live", {"waits": waits, "after": after}, {"after": ["waits"]})
    store = SQLiteRunStore(tmp_path / "runs.db")
    go_on.set()
    await pipeline.execute({"word": "three"}, run_id="other", store=store)
    go_on.clear()

    loop, has_noticed = asyncio.get_running_loop(), threading.Event()

    async def note(event: RunEvent) -> None:
        if isinstance(event, PauseRequested):
            has_noticed.set()

    run = asyncio.ensure_future(pipeline.execute({"word": "one"}, run_id="live", store=store, on_event=note))

    def act(page: Page) -> None:
        opened(page, own_address, "/runs/live")
        page.locator("summary", has_text="Pause").click()
        page.get_by_role("button", name="Pause this run").click()
        page.get_by_text("Asked to pause").wait_for()  # a page of the paused run does not say so
        assert has_noticed.wait(PATIENCE)
        loop.call_soon_threadsafe(go_on.set)
        page.wait_for_selector("[data-status=paused]")
        page.reload()  # what can be done with it has changed
        page.locator("summary", has_text="Change its inputs or budget").click()
        page.get_by_label("Inputs to change").fill('{"word": "two"}')
        page.get_by_label("Budget in dollars").first.fill("0.05")
        page.get_by_role("button", name="Resume", exact=True).click()
        page.wait_for_selector("[data-status=finished]")
        page.get_by_text("after two", exact=True).first.wait_for()
        page.goto(f"{own_address}/runs/live/diff")
        page.get_by_role("link", name="other").click()
        page.get_by_role("cell", name="input 'word'").wait_for()

    with served(viewer(SQLiteRunStore(tmp_path / "runs.db"), token=TOKEN, runs=[pipeline])) as own_address:
        while not (await store.read("run:live")).values:
            await asyncio.sleep(0.01)
        watching = asyncio.create_task(asyncio.to_thread(browser.run, act))
        assert (await run).status == "paused"
        await watching
    await store.aclose()


def test_a_run_is_forked_with_the_output_that_somebody_writes(browser: BrowserThread, address: str) -> None:
    def act(page: Page) -> None:
        opened(page, address, "/runs/desk?step=first")
        assert page.locator("textarea[name=output]").input_value() == "quick"
        page.fill("textarea[name=inputs]", "{word")
        page.click("text=Run it again from here")
        page.locator("#panel [role=alert]", has_text="It is not JSON").wait_for()
        assert page.locator("textarea[name=inputs]").first.input_value() == "{word", (
            "what was written is kept"
        )
        page.wait_for_function("location.pathname === '/runs/desk'")  # by a script: a reload repeats nothing
        page.fill("textarea[name=output]", "slow")
        page.click("text=Go on with another output")
        page.wait_for_selector("[data-status=finished]")
        assert "desk-fork-" in page.url
        assert page.locator(".run-head .sub").inner_text().endswith("forked from desk")
        page.click("a[data-step=echo]")
        page.wait_for_selector("#panel pre:has-text('slow, one')")

    browser.run(act)
