"""The pages of runs, spending and people, as HTML."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html import unescape
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from support.run_logs import START, Log
from support.viewed_runs import Decision, asked, asking, failed, look_up
from support.viewing import HOSTILE, LABEL, TOKEN, csrf_of, signed_in
from typer.testing import CliRunner

from fastroai import (
    Inbox,
    MemoryRunStore,
    Pipeline,
    PipelineConfig,
    RunHistory,
    SpendLimit,
    SQLiteRunStore,
    StepContext,
    step,
)
from fastroai.cli.app import app
from fastroai.errors import SpendLimitExceeded, StepExecutionError
from fastroai.functions import compute
from fastroai.runtime.owner import new_owner, release_owner
from fastroai.store import MemorySpendStore, RowCounts
from fastroai.tracing import set_redaction
from fastroai.usage import SpendBook
from fastroai.viewer import viewer

GOOD = {
    "answer/verdict": "0",
    "answer/amount": "12.50",
    "answer/days": "7",
    "answer/note": "two\r\nlines",
    "answer/urgent": "true",
    "answer/due": "2026-12-24",
    "answer/tags": "eu\r\n gold \r\n\r\n",
    "answer/item/sku": "A-1",
    "answer/item/count": "2",
}


def ids_on(page: str) -> list[str]:
    return [unescape(found) for found in re.findall(r'<td data-label="Run"[^>]*><a [^>]*><bdi>([^<]*)', page)]


async def told(browser: httpx2.AsyncClient, path: str, **query: str) -> str:
    answer = await browser.get(path, params=query or None)
    assert answer.status_code == 200
    return answer.text


# --- runs ---


async def test_runs_of_rows_show_how_far_they_are_and_what_all_rows_cost(tmp_path: Any) -> None:
    @step
    async def buys(ctx: StepContext) -> None:
        ctx.record_usage(model="search", cost_usd="0.25")

    @compute
    async def halved(number: int) -> float:
        return 1 / (number - 1)

    store = SQLiteRunStore(tmp_path / "runs.db")
    await halved.map([1, 2, 3], store=store, run_id="rows")
    await Pipeline("plain", {"look up": look_up}).execute(run_id="plain", store=store)
    await Pipeline("buying", {"buys": buys}).map([{"number": 1}, {"number": 2}], store=store, run_id="bought")
    counts = RowCounts(done=3, failed=1, total=3)
    found = {run.run_id: run.rows for run in await RunHistory(store).list()}
    assert (found["rows"], found["plain"], found["bought"]) == (counts, None, RowCounts(done=2, total=2))
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        assert (await told(browser, "/runs")).count("3 of 3 rows, 1 failed") == 1
        assert "<dt>Rows</dt><dd>3 of 3, 1 failed</dd>" in await told(browser, "/runs/rows")
        assert "<dt>Rows</dt>" not in await told(browser, "/runs/plain")
        assert 'title="exactly $0.50"' in await told(browser, "/runs/bought")

    def printed(*command: str) -> str:
        return CliRunner().invoke(app, ["runs", *command, "--store", str(tmp_path / "runs.db")]).output

    assert "3 of 3, 1 failed" in await asyncio.to_thread(printed, "list")
    assert "3 of 3 rows, 1 failed" in (shown := await asyncio.to_thread(printed, "show", "rows"))
    assert "attempts" not in shown, "a run without steps has no table of steps"
    assert ", $0.50" in await asyncio.to_thread(printed, "show", "bought")
    assert json.loads(await asyncio.to_thread(printed, "show", "rows", "--json"))["rows"] == asdict(counts)


async def test_runs_that_go_on_or_have_died_show_at_least_what_is_known() -> None:
    store, owner, now = MemoryRunStore(), new_owner(), datetime.now(UTC)
    nothing = {"requests": 0, "input_tokens": 0, "output_tokens": 0, "cost_usd": Decimal(0)}
    lives = {"owner": owner, "lease_until": now + timedelta(minutes=1)}
    await Log(run_id="died").start("a").request("a").write(store, **nothing, updated_at=START)
    await Log(run_id="later").start("a").request("a").write(store, updated_at=START + timedelta(seconds=10))
    alive = Log(run_id="alive", start=now - timedelta(hours=1)).start("a").request("a")
    await alive.write(store, **lives)
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        page = await told(browser, "/runs")
    cells = {
        name: re.findall(r'<td data-label="(?:Cost|Tokens|Duration)" class="num">([^<]*)</td>', row)
        for name, row in zip(ids_on(page), page.split("<tr id=")[1:], strict=True)
    }
    assert cells["died"] == ["unknown", "unknown", ""]
    assert cells["later"] == ["at least $0.001", "at least 12", "at least 10.0 s"]
    assert cells["alive"][:2] == ["at least $0.001", "at least 12"]
    assert cells["alive"][2] == "1 h 00 min"
    release_owner(owner)


async def test_runs_are_found_sorted_and_paged(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastroai.viewer.runs.SIZE", 4)
    store = SQLiteRunStore(tmp_path / "runs.db")
    for number in range(9):
        kind = "invoice" if number % 2 else "ticket"
        tenant = "acme" if number < 3 else "globex"
        pipeline = Pipeline(kind, {"look up": look_up})
        await pipeline.execute(run_id=f"run {number}", store=store, tenant=tenant, tags=[f"no-{number}"])
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        page = await told(browser, "/runs")
        assert ids_on(page) == ["run 8", "run 7", "run 6", "run 5"]
        assert "9 runs" in page
        seen = ids_on(page)
        while after := re.search(r'href="([^"]*)">Next page', page):
            page = await told(browser, unescape(after[1]))
            seen += ids_on(page)
        assert seen == [f"run {number}" for number in reversed(range(9))]
        assert ids_on(await told(browser, "/runs", tenant="acme")) == ["run 2", "run 1", "run 0"]
        assert ids_on(await told(browser, "/runs", pipeline="invoice", way="up"))[:2] == ["run 1", "run 3"]
        assert ids_on(await told(browser, "/runs", search="RUN 7")) == ["run 7"]
        assert ids_on(await told(browser, "/runs", tag="no-4")) == ["run 4"]
        assert ids_on(await told(browser, "/runs", status="failed")) == []
        assert "No run matches" in await told(browser, "/runs", since="2100-01-01T00:00")
        assert len(ids_on(await told(browser, "/runs", sort="duration"))) == 4
    await store.aclose()


@pytest.mark.parametrize(
    "query", [{"status": "ended"}, {"sort": "colour"}, {"since": "yesterday"}, {"after": "x"}]
)
async def test_an_address_that_makes_no_sense_is_told(query: dict[str, str]) -> None:
    async with signed_in(viewer(MemoryRunStore(), token=TOKEN)) as browser:
        answer = await browser.get("/runs", params=query)
    assert answer.status_code == 400
    assert next(iter(query.values())) in answer.text


@pytest.mark.parametrize("run_id", ["..", ".", "a/b", "a?b=c", "a#b", "%2e%2e", "a%2Fb", "ü ñ", LABEL])
async def test_every_id_has_a_page_of_its_own(run_id: str) -> None:
    store = MemoryRunStore()
    await asked(store, asking(bool), run_id)
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        page = await told(browser, "/runs")
        (link,) = re.findall(r'<td data-label="Run"[^>]*><a href="([^"]*)"', page)
        assert (await browser.get(unescape(link))).status_code == 200
        (link,) = re.findall(r'<a class="question" href="([^"]*)"', await told(browser, "/people"))
        assert (await browser.get(unescape(link))).status_code == 200


async def test_nothing_of_a_run_is_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    store, spend = MemoryRunStore(), MemorySpendStore()
    question = await asked(store, asking(Decision))
    options = await asked(store, asking(options=["DHL", HOSTILE]), "options")
    await failed(store)
    book = SpendBook(spend)
    await book.set_limit(LABEL[:150], 5, by=LABEL, reason=HOSTILE)
    async with signed_in(viewer(store, token=TOKEN, name=LABEL, spend=spend)) as browser:
        data = {"csrf": await csrf_of(browser), **GOOD, "answer/note": LABEL, "answer/days": LABEL}
        pages = [
            await told(browser, "/runs"),
            await told(browser, "/runs", search=LABEL, tenant=LABEL, tag=LABEL, pipeline=LABEL),
            await told(browser, "/people"),
            await told(browser, f"/people/{_quoted(question)}"),
            await told(browser, f"/people/{_quoted(options)}"),
            *[await told(browser, "/spending", by=by) for by in ("pipeline", "step", "tenant", "tag")],
            (await browser.post(f"/people/{_quoted(question)}/answer", data=data)).text,
            (await browser.get(f"/runs/{_quoted(HOSTILE)}")).text,
            (await browser.get("/runs", params={"sort": HOSTILE})).text,
        ]
    for page in pages:
        assert "alert(1)" in page
        assert "<script>alert" not in page
        assert "<img" not in page
        assert "<b hx" not in page
        assert not re.search(r"[\u202a-\u202e\u2066-\u2069\x1b\x07]", page)
        assert " 49 " not in page


def _quoted(name: str) -> str:
    return quote(quote(name, safe=""), safe="")


async def test_huge_values_do_not_make_huge_pages() -> None:
    store = MemoryRunStore()
    question = await asked(store, asking(bool, question={"text": "<&" * 400_000}))
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        page = await told(browser, f"/people/{_quoted(question)}")
        assert len(page) < 200_000
        assert "more characters" in page
        assert len(await told(browser, "/people")) < 20_000


# --- people ---


async def test_an_answer_in_the_form_is_of_the_type_that_the_step_asks_for() -> None:
    store = MemoryRunStore()
    pipeline = asking(Decision)
    question = await asked(store, pipeline, "order")
    async with signed_in(viewer(store, token=TOKEN, name="Mia")) as browser:
        page = await told(browser, f"/people/{question}")
        assert all(f'name="{name}"' in page for name in GOOD)
        assert "look up" in page
        data = {"csrf": await csrf_of(browser), **GOOD, "rationale": "it is right"}
        answer = await browser.post(f"/people/{question}/answer", data=data)
        assert answer.status_code == 303
        assert "Your answer is on record" in await told(browser, answer.headers["location"])
    given = (await Inbox(store).get(question)).answer
    assert given is not None
    assert (given.reviewer, given.rationale) == ("Mia", "it is right")
    assert given.value == {
        "verdict": "refund",
        "amount": "12.50",
        "days": 7,
        "note": "two\nlines",
        "urgent": True,
        "due": "2026-12-24",
        "tags": ["eu", "gold"],
        "item": {"sku": "A-1", "count": 2},
    }
    result = await pipeline.resume("order", store=store)
    assert "Decimal('12.50')" in str(result.output)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"answer/days": ""}, "This is needed"),
        ({"answer/days": "1.5"}, "A whole number"),
        ({"answer/days": "99"}, "answer.days is not at most 30|days is not at most 30"),
        ({"answer/verdict": ""}, "This is needed"),
        ({"answer/verdict": "17"}, "Choose one of these"),
        ({"answer/verdict": "0000000009999"}, "Choose one of these"),
        ({"answer/item/sku": "x" * 21}, "too few or too many"),
    ],
)
async def test_an_answer_that_does_not_fit_is_told_and_what_was_written_stays(
    changed: dict[str, str], problem: str
) -> None:
    store = MemoryRunStore()
    question = await asked(store, asking(Decision), "order")
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        data = {"csrf": await csrf_of(browser), **GOOD, "answer/note": "keep me", **changed}
        answer = await browser.post(f"/people/{question}/answer", data=data)
    assert answer.status_code == 422
    assert re.search(problem, unescape(answer.text))
    assert "keep me" in answer.text
    assert (await Inbox(store).get(question)).answer is None


@pytest.mark.parametrize(
    ("pipeline", "sent", "expected"),
    [
        (asking(bool), "false", False),
        (asking(int), "12", 12),
        (asking(int), "9" * 400, int("9" * 400)),
        (asking(str), "yes", "yes"),
        (asking(float | None), "none", None),
        (asking(options=["DHL", {"carrier": "UPS"}]), "1", {"carrier": "UPS"}),
        (asking(dict[str, int]), '{"a": 1}', {"a": 1}),
        (asking(list[str]), "a\r\nb", ["a", "b"]),
    ],
)
async def test_any_type_has_a_form(pipeline: Pipeline[None], sent: str, expected: object) -> None:
    store = MemoryRunStore()
    question = await asked(store, pipeline, "order")
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        assert 'name="answer"' in await told(browser, f"/people/{question}")
        data = {"csrf": await csrf_of(browser), "answer": sent}
        assert (await browser.post(f"/people/{question}/answer", data=data)).status_code == 303
    given = (await Inbox(store).get(question)).answer
    assert given is not None
    assert given.value == expected


async def test_the_second_of_two_people_is_told_what_the_first_has_answered() -> None:
    store = MemoryRunStore()
    question = await asked(store, asking(bool), "order")
    app = viewer(store, token=TOKEN)
    async with signed_in(app) as mia, signed_in(app) as tom:
        for browser, value, name in ((mia, "true", "Mia"), (tom, "false", "Tom")):
            data = {"csrf": await csrf_of(browser), "answer": value, "reviewer": name}
            answer = await browser.post(f"/people/{question}/answer", data=data)
    assert answer.status_code == 409
    assert "Your answer came too late" in answer.text
    assert "Mia" in answer.text
    given = (await Inbox(store).get(question)).answer
    assert given is not None
    assert (given.value, given.reviewer) == (True, "Mia")


# --- spending ---


async def test_spending_is_that_of_the_read_model_and_limits_say_what_is_left() -> None:
    store, spend = MemoryRunStore(), MemorySpendStore()
    limit = SpendLimit(usd="0.03", window="day", key="tenant", store=spend)
    pipeline = Pipeline("search", {"look up": look_up}, config=PipelineConfig(budget=limit))
    for number in range(2):
        await pipeline.execute(run_id=f"{number}", store=store, tenant="acme", tags=["eu"])
    with pytest.raises(SpendLimitExceeded):
        await pipeline.execute(run_id="too much", store=store, tenant="acme")
    await SpendBook(spend).set_limit("tenant:acme", "0.04", by="Mia", reason="a large order")
    async with signed_in(viewer(store, token=TOKEN, spend=spend)) as browser:
        for by, name in (
            ("pipeline", "search"),
            ("step", "look up"),
            ("model", "acme:search"),
            ("tag", "eu"),
        ):
            page = await told(browser, "/spending", by=by)
            assert re.search(rf"<td><bdi>{name}</bdi></td><td class=\"num\">\$0.025<", page)
        assert re.search(r"<dt>Cost</dt><dd>\$0.025</dd>", page)
        assert re.search(r">\$0.025</td><td class=\"num\">\$0.00</td><td class=\"num\">\$0.015<", page)
        assert "a large order" in page
        assert "too much" in page.partition("Stopped by a budget or limit")[2]
        assert "No store of spend limits" not in page
        for query in ({"by": "colour"}, {"period": "x"}):
            assert (await browser.get("/spending", params=query)).status_code == 400


async def test_the_list_tells_the_quality_of_runs_that_finished_and_what_of_their_cost_is_unknown() -> None:
    @step(on_error="continue")
    async def fails(ctx: StepContext) -> str:
        raise ValueError("no")

    @step
    async def costs(ctx: StepContext) -> str:
        async with ctx.spend("0.02"):
            return "sent, and no bill came"

    store = MemoryRunStore()
    await Pipeline("p", {"look up": look_up}).execute(run_id="clean", store=store)
    steps = {"fails": fails, "costs": costs}
    await Pipeline("p", steps, output_step="costs").execute(run_id="degraded", store=store)
    await asked(store, asking(bool), "paused")
    summaries = {run.run_id: run for run in await RunHistory(store).list()}
    assert {run_id: run.quality for run_id, run in summaries.items()} == {
        "clean": "clean",
        "degraded": "degraded",
        "paused": None,
    }
    for run_id, run in summaries.items():
        trace = await store.trace(run_id)
        assert (trace.quality, trace.usage.cost_complete) == (run.quality, run.cost_complete)
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        rows = (await told(browser, "/runs", sort="started")).split("<tr")
        (degraded,) = (row for row in rows if ">degraded</a>" in row or "<bdi>degraded" in row)
        assert ('quality">degraded<' in degraded, ">unknown<" in degraded) == (True, True)


# --- actions ---


async def test_an_answer_is_in_the_panel_of_its_step_and_the_run_goes_on_from_its_page() -> None:
    store, pipeline = MemoryRunStore(), asking(bool, question="Refund?")
    await asked(store, pipeline, "order")
    (question,) = await Inbox(store).list()
    async with signed_in(viewer(store, token=TOKEN, runs=[pipeline])) as browser:
        data = {"csrf": await csrf_of(browser), "answer": "true", "reviewer": "Mia", "rationale": "a regular"}
        answer = await browser.post(f"/people/{question.id}/answer", data=data)
        assert "Resume it here" in await told(browser, answer.headers["location"])
        assert (await browser.post("/runs/order/resume", data={"csrf": data["csrf"]})).status_code == 303
        async for _ in RunHistory(store).follow("order"):
            pass
        panel = unescape(await told(browser, "/runs/order/step", step="decide"))
        for text in ("Refund?</bdi>", "Answered by <bdi>Mia", "a regular", f"/people/{question.id}"):
            assert text in panel


async def test_a_paused_run_is_cancelled_once() -> None:
    store = MemoryRunStore()
    await asked(store, asking(bool), "order")
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        assert "Cancel this run" in await told(browser, "/runs/order")
        data = {"csrf": await csrf_of(browser)}
        assert (await browser.post("/runs/order/cancel", data=data)).status_code == 303
        again = await browser.post("/runs/order/cancel", data=data)
        assert again.status_code == 409
        assert "cancelled" in again.text
        assert (await browser.post("/runs/order/pause", data=data)).status_code == 409
    assert (await RunHistory(store).summary("order")).status == "cancelled"


async def test_lists_and_questions_are_redacted_as_runs_are() -> None:
    store, private = MemoryRunStore(), "ann@example.org"
    pipeline = asking(bool, question=f"May {private} have the money?")
    question = await asked(store, pipeline, "order")

    @step
    async def look(ctx: StepContext) -> None:
        raise ValueError(f"{private} is unknown")

    with pytest.raises(StepExecutionError):
        await Pipeline("look", {"look": look}).execute({"who": private}, store=store)
    set_redaction([r"\S+@\S+"])
    try:
        async with signed_in(viewer(store, token=TOKEN)) as browser:
            open_pages = [
                (await browser.get(path)).text for path in ("/runs", "/people", f"/people/{question}")
            ]
            data = {
                "csrf": await csrf_of(browser),
                "answer": "true",
                "reviewer": "Bob",
                "rationale": f"{private} asked",
            }
            await browser.post(f"/people/{question}/answer", data=data)
            answered = (await browser.get(f"/people/{question}")).text
    finally:
        set_redaction(None)
    for text in (*open_pages, answered):
        assert "[redacted]" in text
        assert private not in text
    given = (await Inbox(store).get(question)).answer
    assert given is not None
    assert given.rationale == f"{private} asked"
