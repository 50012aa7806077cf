"""The page of one run, as the server gives it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from html import unescape
from typing import Any
from urllib.parse import quote, urlencode

import httpx2
import pytest
from support.seen_runs import desk, make_runs, quick
from support.viewing import LABEL, TOKEN, client, csrf_of, signed_in

from fastroai import Budget, FastroAgent, MemoryRunStore, Pipeline, StepContext, budget_scope, step
from fastroai.errors import StepExecutionError
from fastroai.store import RunHistory
from fastroai.tracing import set_redaction
from fastroai.viewer import Visitor, viewer

RUNS = ("desk", "sums", "essay", "gated", LABEL)


@pytest.fixture(scope="module")
def store() -> MemoryRunStore:
    kept = MemoryRunStore()
    asyncio.run(make_runs(kept))
    return kept


@pytest.fixture
async def page(store: MemoryRunStore) -> AsyncIterator[httpx2.AsyncClient]:
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        yield browser


def path_of(run_id: str, more: str = "", **query: str) -> str:
    once = quote(run_id, safe="")
    return f"/runs/{quote(once, safe='')}{more}" + (f"?{urlencode(query)}" if query else "")


async def test_it_shows_the_drawing_the_timeline_and_the_costs(
    page: httpx2.AsyncClient, store: MemoryRunStore
) -> None:
    text = (await page.get("/runs/desk")).text
    for node in ("first", "sums", "review", "echo"):
        assert (
            f'class="node succeeded {"graph" if node in ("sums", "review") else "step"}" data-node="{node}"'
            in text
        )
    assert text.count("<tr id=") == len((await store.trace("desk")).timeline)
    assert 'class="b-retry"' in text
    assert 'data-step="review@1/inner/say@1:1"' in text
    assert '<caption class="unseen">Cost by model</caption>' in text
    assert "<style" not in text, "the content security policy allows no styles in elements"


@pytest.mark.parametrize("run_id", RUNS)
async def test_each_row_of_each_run_has_a_panel(
    page: httpx2.AsyncClient, store: MemoryRunStore, run_id: str
) -> None:
    for row in (await store.trace(run_id)).timeline:
        answer = await page.get(path_of(run_id, "/step", step=row.id))
        assert answer.status_code == 200
        heading = re.search(r'<h2.*?<bdi>(.*?)</bdi> <span class="kind">(\w+)', answer.text, re.DOTALL)
        assert heading is not None, row.id
        assert heading[2].lower() == row.kind


@pytest.mark.parametrize("run_id", RUNS)
async def test_nothing_of_a_run_is_markup_or_changes_the_direction_of_text(
    page: httpx2.AsyncClient, store: MemoryRunStore, run_id: str
) -> None:
    rows = (await store.trace(run_id)).timeline
    opened = "|".join(row.id for row in rows)
    answers = [
        await page.get(path_of(run_id, open=opened)),
        await page.get(path_of(run_id, "/diff", **{"with": "desk"})),
    ]
    answers += [await page.get(path_of(run_id, "/step", step=row.id)) for row in rows]
    for answer in answers:
        assert answer.status_code == 200
        for taken_for_markup in ("<script>alert", "<img src=x", "<b hx-get", ">49<"):
            assert taken_for_markup not in answer.text
        assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08\x0b\x1b]", answer.text)


async def test_values_are_bounded(page: httpx2.AsyncClient, store: MemoryRunStore) -> None:
    (large,) = (
        row.id for row in (await store.trace(LABEL)).timeline if row.name == LABEL and row.kind == "step"
    )
    answer = await page.get(path_of(LABEL, "/step", step=large))
    assert "more characters" in answer.text
    assert len(answer.text) < 60_000


async def test_a_conversation_can_be_read(page: httpx2.AsyncClient) -> None:
    text = unescape((await page.get(path_of("desk", "/step", step="review@1/inner/say"))).text)
    assert re.findall(r'<div class="who">(.*?)</div>', text) == ["user", "model"]
    assert "hello" in text


async def test_failures_and_reasons_are_told(page: httpx2.AsyncClient) -> None:
    text = unescape((await page.get(path_of("desk", "/step", step="review@1/inner/flaky"))).text)
    assert "Attempt 1: ConnectionError" in text
    assert "review@1/inner/flaky: finished at attempt 2" in text
    assert "another attempt followed" in text
    assert 'raise ConnectionError("not yet")' in text, "the traceback"


async def test_a_run_of_a_thousand_steps_is_a_page_of_bounded_size() -> None:
    many = Pipeline[Any, Any, str](
        "many", {f"s{n}": quick for n in range(1000)}, {f"s{n}": [f"s{n - 1}"] for n in range(1, 1000)}
    )
    kept = MemoryRunStore()
    await many.execute(run_id="many", store=kept)
    async with signed_in(viewer(kept, token=TOKEN)) as browser:
        text = (await browser.get("/runs/many")).text
        assert len(text) < 300_000
        assert "1,000 steps are more than one picture shows well" in text
        assert text.count("<tr id=") == 200
        assert 'data-step="s999"' in (await browser.get("/runs/many?row=800")).text
        assert 'data-node="s999"' in (await browser.get("/runs/many?draw=all")).text


async def test_what_is_not_there_is_said_and_the_rest_is_shown(page: httpx2.AsyncClient) -> None:
    answer = await page.get("/runs/desk?step=nothing&row=x&open=a|b|c")
    assert answer.status_code == 200
    assert "There is no such step" in answer.text
    assert (await page.get("/runs/nothing")).status_code == 404
    assert (await page.get("/runs/desk/diff?with=nothing")).status_code == 404


async def test_two_runs_are_compared_side_by_side(store: MemoryRunStore) -> None:
    await desk().fork("desk", inputs={"word": "two"}, at="echo", new_run_id="desk-2", store=store)
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        text = unescape((await browser.get("/runs/desk/diff?with=desk-2")).text)
        assert "quick, one" in text
        assert "quick, two" in text
        assert text.count('class="fastroai-drawing"') == 2
        assert "No difference" in (await browser.get("/runs/desk/diff?with=desk")).text


# --- what can be done ---


@step(retries=0)
async def at_second(ctx: StepContext[Any]) -> str:
    if not ctx.get_input("ready"):
        raise ValueError("not ready")
    return "went"


def waiting() -> Pipeline[Any, Any, str]:
    return Pipeline[Any, Any, str]("waiting", {"first": quick, "second": at_second}, {"second": ["first"]})


@pytest.fixture
async def failed() -> MemoryRunStore:
    kept = MemoryRunStore()
    with pytest.raises(StepExecutionError):
        await waiting().execute({"ready": False}, run_id="w", store=kept, tenant="acme")
    return kept


async def test_without_code_resume_and_fork_are_there_with_the_reason(failed: MemoryRunStore) -> None:
    async with signed_in(viewer(failed, token=TOKEN)) as browser:
        text = unescape((await browser.get("/runs/w?step=first")).text)
        assert text.count("start it with fastroai view --import") == 2
        assert len(re.findall(r'<button class="primary" disabled', text)) == 3
        form = {"csrf": await csrf_of(browser)}
        answer = await browser.post("/runs/w/resume", data=form)
        assert (answer.status_code, "--import" in answer.text) == (409, True)
        assert (await browser.post("/runs/w/fork", data={**form, "step": "first"})).status_code == 409


async def test_a_run_is_resumed_with_other_inputs(failed: MemoryRunStore) -> None:
    async with signed_in(viewer(failed, token=TOKEN, runs=[waiting()])) as browser:
        text = (await browser.get("/runs/w")).text
        assert "Nothing that is on record is paid for again" in text
        assert "without an upper limit" in text
        form = {"csrf": await csrf_of(browser), "inputs": json.dumps({"ready": True})}
        answer = await browser.post("/runs/w/resume", data=form)
        assert (answer.status_code, answer.headers["location"]) == (303, "/runs/w")
        async for _ in RunHistory(failed).follow("w"):
            pass
        trace = await failed.trace("w")
        assert (trace.status, trace.output) == ("finished", "went")
        first = unescape((await browser.get("/runs/w/step?step=first")).text)
        assert "An earlier process did this. Its result was kept" in first


async def test_a_run_is_no_part_of_a_budget_around_the_page(failed: MemoryRunStore) -> None:
    @step
    async def asks(ctx: StepContext) -> str:
        assert ctx.get_input("ready", bool)
        await go_on.wait()
        return (await ctx.run(FastroAgent("test"), "Hello")).output

    go_on, asking = asyncio.Event(), Pipeline("asking", {"asks": asks})
    with pytest.raises(StepExecutionError):
        await asking.execute({"ready": False}, run_id="asked", store=failed)
    async with signed_in(viewer(failed, token=TOKEN, runs=[asking])) as browser:
        form = {"csrf": await csrf_of(browser), "inputs": json.dumps({"ready": True})}
        async with budget_scope(Budget(requests=1)):
            await browser.post("/runs/asked/resume", data=form)
        go_on.set()
        async for _ in RunHistory(failed).follow("asked"):
            pass
    assert (await failed.trace("asked")).status == "finished"


async def test_a_form_that_shows_redacted_inputs_does_not_change_them(failed: MemoryRunStore) -> None:
    with pytest.raises(StepExecutionError):
        inputs = {"ready": False, "who": "ann@example.org"}
        await waiting().execute(inputs, run_id="private", store=failed)
    set_redaction([r"\S+@\S+"])
    try:
        async with signed_in(viewer(failed, token=TOKEN, runs=[waiting()])) as browser:
            text = unescape((await browser.get("/runs/private")).text)
            assert '"who": "[redacted]"' in text
            sent = json.dumps({"ready": True, "who": "[redacted]"})
            form = {"csrf": await csrf_of(browser), "inputs": sent}
            assert (await browser.post("/runs/private/resume", data=form)).status_code == 303
            async for _ in RunHistory(failed).follow("private"):
                pass
    finally:
        set_redaction(None)
    assert (await failed.trace("private")).inputs == {"ready": True, "who": "ann@example.org"}


async def test_what_is_wrong_with_a_resume_is_told_in_its_place_and_what_was_written_stays(
    failed: MemoryRunStore,
) -> None:
    async with signed_in(viewer(failed, token=TOKEN, runs=[waiting()])) as browser:
        as_browsers_send = '{\r\n  "ready": true\r\n}'
        form = {"csrf": await csrf_of(browser), "inputs": as_browsers_send, "budget": "much"}
        answer = await browser.post("/runs/w/resume", data=form)
        text = unescape(answer.text)
        assert (answer.status_code, "Not resumed" in text, 'value="much"' in text) == (422, True, True)
        assert '{\n  "ready": true\n}</textarea>' in text
        assert "A budget is a number of dollars" in text
        assert (await failed.trace("w")).status == "failed"
        assert (await browser.post("/runs/w/resume", data={**form, "budget": "$0.50"})).status_code == 303
        async for _ in RunHistory(failed).follow("w"):
            pass
        assert (await failed.trace("w")).status == "finished"
        with pytest.raises(StepExecutionError):
            await waiting().execute({"ready": False}, run_id="bound", store=failed, budget=Budget(usd="0.07"))
        text = (await browser.get("/runs/bound")).text
        assert "of its budget of $0.07" in text
        assert "it will cost at most $0.07" in text


async def test_a_run_shows_what_it_was_given_and_gave_and_the_runs_to_compare_it_with(
    failed: MemoryRunStore,
) -> None:
    await waiting().execute({"ready": True}, run_id="went", store=failed, tenant="acme")
    async with signed_in(viewer(failed, token=TOKEN)) as browser:
        text = unescape((await browser.get("/runs/went")).text)
        assert ("<h2>Inputs</h2>" in text, '"ready": true' in text) == (True, True)
        assert '<h2>Output</h2><pre tabindex="0">went</pre>' in text
        assert "<h2>Output</h2>" not in (await browser.get("/runs/w")).text
        assert 'href="/runs/went/diff?with=w"' in (await browser.get("/runs/went/diff")).text


async def test_a_run_is_forked_with_another_output(failed: MemoryRunStore) -> None:
    async with signed_in(viewer(failed, token=TOKEN, runs=[waiting()])) as browser:
        form = {"csrf": await csrf_of(browser), "step": "second", "what": "output", "output": '"by hand"'}
        answer = await browser.post("/runs/w/fork", data=form)
        assert answer.status_code == 303
        new = answer.headers["location"].rpartition("/")[2]
        async for _ in RunHistory(failed).follow(new):
            pass
        trace = await failed.trace(new)
        assert (trace.output, trace.opened.forked_from) == ("by hand", "w")
        assert "Its output is that of run" in (await browser.get(f"/runs/{new}/step?step=first")).text
        assert (await failed.trace("w")).status == "failed"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"inputs": "{ready"}, "It is not JSON"),
        ({"inputs": "[1]"}, "They are a JSON object"),
        ({"inputs": "[" * 100_000}, "It is not JSON"),
        ({"what": "output", "output": ""}, "It is not JSON"),
        ({"budget": "a lot"}, "a lot"),
        ({"step": "nothing"}, "nothing"),
        ({"inputs": '{"redy": true}'}, "The run has no input 'redy'; it has 'ready'. Did you mean 'ready'?"),
        (
            {"inputs": "[1]", "budget": "a lot"},
            'such as {"text": "..."}. The budget cannot be read: \'a lot\' is not an amount',
        ),
        (
            {"what": "output", "output": "", "inputs": "[1]"},
            "The inputs cannot be read: They are a JSON object",
        ),
    ],
)
async def test_a_fork_that_cannot_be_says_why(
    failed: MemoryRunStore, given: dict[str, str], told: str
) -> None:
    async with signed_in(viewer(failed, token=TOKEN, runs=[waiting()])) as browser:
        form = {"csrf": await csrf_of(browser), "step": "second", **given}
        answer = await browser.post("/runs/w/fork", data=form)
        assert (answer.status_code, told in unescape(answer.text)) == (422, True)
        assert [run.run_id for run in await RunHistory(failed).list()] == ["w"]


async def test_visitors_see_and_do_only_what_they_may(failed: MemoryRunStore) -> None:
    await waiting().execute({"ready": True}, run_id="other", store=failed, tenant="globex")
    visitor = Visitor(tenants={"acme"}, actions={"pause"})
    async with client(viewer(failed, authorize=lambda request: visitor, runs=[waiting()])) as browser:
        text = unescape((await browser.get("/runs/w?step=first")).text)
        assert "You may not resume runs here." in text
        assert "You may not fork runs here." in text
        form = {"csrf": await csrf_of(browser), "step": "first"}
        for action in ("resume", "fork"):
            assert (await browser.post(f"/runs/w/{action}", data=form)).status_code == 403
        for path in (
            "/runs/other",
            "/runs/other/step?step=first",
            "/stream/runs/other",
            "/runs/w/diff?with=other",
        ):
            assert (await browser.get(path)).status_code == 404
