"""The service of the FastAPI guide: two worker processes of uvicorn on loopback, and the model server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.fork_server import Program, UvicornProcess
from support.patience import PATIENCE

from fastroai.store import SQLiteSpendStore
from fastroai.testing import Fault, ModelServer, Reply, ServedRequest, Usage
from fastroai.usage import SpendAccount

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "examples"))

from invoice_desk import offline  # noqa: E402  (examples are no part of the package)

DAILY_USD = Decimal("0.01")
KNOWN = "From: Acme Paper\nTotal: 120 EUR\n40 reams of paper"
DOUBTFUL = "From: Fly-by-Night\nTotal: 9,000 EUR\nservices"
PRICES = {"gpt-5-nano": (Decimal("0.05"), Decimal("0.40")), "gpt-5-mini": (Decimal("0.25"), Decimal("2.00"))}
"""Dollars for a million tokens, in and out: from OpenAI's page, not from the library."""

pytestmark = pytest.mark.slow


# --- workers ---


class Worker:
    """A process of uvicorn that serves the desk."""

    def __init__(self, folder: Path, provider: ModelServer) -> None:
        self.folder = folder
        listener = socket.create_server(("127.0.0.1", 0))  # so a request may come before the worker is up
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        settings = {
            "DESK_FOLDER": str(folder),
            "DESK_DAILY_USD": str(DAILY_USD),
            "DESK_INVOICE_USD": "0.004",
            "PYTHONPATH": str(ROOT),
        }
        with listener:
            self.process = UvicornProcess(
                listener,
                *("--app-dir", "examples", "invoice_desk.app:app"),
                folder=ROOT,
                environment={**settings, **provider.environment()},
                log=folder / "log",
            )
        self.client = httpx2.AsyncClient(base_url=self.url, timeout=PATIENCE, trust_env=False)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    async def put(self, path: str, text: str = KNOWN) -> httpx2.Response:
        return await self.client.put(f"/customers/{path}", json={"text": text})

    async def post(self, path: str, body: object = None) -> httpx2.Response:
        return await self.client.post(f"/customers/{path}", json=body)

    async def get(self, path: str) -> Any:
        response = await self.client.get(f"/customers/{path}")
        assert response.status_code == 200, response.text
        return response.json()

    async def news(self, path: str, after: str | None = None) -> AsyncGenerator[News]:
        """Read server-sent events as a browser does."""
        headers = {} if after is None else {"Last-Event-ID": after}
        async with self.client.stream("GET", f"/customers/{path}/events", headers=headers) as response:
            assert response.status_code == 200
            assert response.headers["content-type"].startswith("text/event-stream")
            fields: dict[str, str] = {}
            async for line in response.aiter_lines():
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif "data" in fields:
                    yield News(fields["event"], json.loads(fields["data"]), fields.get("id"))
                    fields = {}

    async def all_news(self, path: str, after: str | None = None) -> list[News]:
        """Read until the run has halted, and leave."""
        seen = []
        async with aclosing(self.news(path, after)) as news:
            async for one in news:
                seen.append(one)
                if one.event == "state":
                    break
        return seen


@dataclass(frozen=True)
class News:
    event: str
    data: dict[str, Any]
    id: str | None


@pytest.fixture(scope="module")
def provider_of_all() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def provider(provider_of_all: ModelServer) -> Iterator[ModelServer]:
    """The model server, with the answers that ship with the desk."""
    offline.install(provider_of_all)
    yield provider_of_all
    provider_of_all.reset()


@contextmanager
def serving(folder: Path, provider: ModelServer) -> Iterator[list[Worker]]:
    """Two workers; a test may add others."""
    workers = [Worker(folder, provider), Worker(folder, provider)]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()


@pytest.fixture(scope="module")
def lasting_workers(
    tmp_path_factory: pytest.TempPathFactory, provider_of_all: ModelServer
) -> Iterator[list[Worker]]:
    with serving(tmp_path_factory.mktemp("desk"), provider_of_all) as workers:
        yield workers


@pytest.fixture
async def desk(lasting_workers: list[Worker], provider: ModelServer) -> AsyncIterator[tuple[Worker, Worker]]:
    """Two workers that last for all tests; the clients are those of one test."""
    async with AsyncExitStack() as stack:
        for worker in lasting_workers:
            worker.client = httpx2.AsyncClient(base_url=worker.url, timeout=PATIENCE, trust_env=False)
            await stack.enter_async_context(worker.client)
        yield lasting_workers[0], lasting_workers[1]


@pytest.fixture
async def own_workers(tmp_path: Path, provider: ModelServer) -> AsyncIterator[list[Worker]]:
    """Two workers for a test that kills them."""
    with serving(tmp_path, provider) as workers:
        yield workers
        for worker in workers:
            await worker.client.aclose()


# --- what is read ---


def text_in(news: list[News]) -> str:
    """The draft as the page puts it together."""
    text = ""
    for one in news:
        if one.event == "text":
            text = text[: one.data["at"]] + one.data["text"]
        elif (one.data.get("step_id"), one.data.get("kind")) == ("draft", "step_finished"):
            text = one.data["output"]
    return text


def steps_in(news: list[News]) -> list[tuple[str, str]]:
    """What is told of the steps of the pipeline, and not of those inside of them."""
    facts = [one.data for one in news if one.event == "fact" and one.data["part"] == ""]
    return [(fact["step_id"], fact["kind"]) for fact in facts if "step_id" in fact]


def pieces_of(news: list[News]) -> str:
    return "".join(one.data["text"] for one in news if one.event == "text")


def ids_of(news: list[News]) -> list[str]:
    return [one.id for one in news if one.id is not None]


def last_id(news: list[News]) -> str | None:
    """As a browser sends it, which may have had no fact yet."""
    return (ids_of(news) or [None])[-1]


async def until_text(worker: Worker, path: str, after: str | None = None) -> list[News]:
    """Read until the draft is being written, and leave."""
    seen = []
    async for one in worker.news(path, after):
        seen.append(one)
        if one.event == "text":
            return seen
    raise AssertionError(seen)


async def until_ended(worker: Worker, path: str, after: str | None = None) -> list[News]:
    """Reconnect until the run has ended for good, as a browser does."""
    seen: list[News] = []
    async with asyncio.timeout(PATIENCE):
        while not (seen and seen[-1].data.get("status") in ("finished", "failed", "cancelled")):
            seen += await worker.all_news(path, last_id(seen) or after)
    return seen


async def until_free(worker: Worker, customer: str) -> None:
    """Wait for the rest of what was set aside for runs: it is free a moment after they have ended."""
    store = SQLiteSpendStore(worker.folder / "spend.db", timeout=PATIENCE)
    async with asyncio.timeout(PATIENCE):
        while (await store.balance(SpendAccount(key=customer, window="day"))).reserved_usd:
            await asyncio.sleep(0.01)
    await store.aclose()


async def until_data(response: httpx2.Response) -> AsyncIterator[str]:
    async for line in response.aiter_lines():
        yield line
        if line.startswith("data"):
            return


def is_reading(request: ServedRequest) -> bool:
    return request.output_tool is not None


def hanging_draft(provider: ModelServer) -> None:
    """The next draft stops in its middle, until whoever waits for it has gone."""
    provider.reset()
    provider.rule(is_reading, offline.read)
    drafts: list[ServedRequest] = []

    def write(request: ServedRequest) -> Reply:
        drafts.append(request)
        reply = offline.write(request)
        return Reply(reply.text, chunk_size=8, fault=Fault.hang(after=2)) if len(drafts) == 1 else reply

    provider.rule(None, write)


def sent(provider: ModelServer) -> tuple[int, int]:
    """How many requests the provider has had for reading, and for drafts."""
    reading = sum("tools" in entry.body for entry in provider.ledger.entries)
    return reading, len(provider.ledger.entries) - reading


def billed_usd(provider: ModelServer) -> Decimal:
    return sum(
        (
            (
                PRICES[entry.model][0] * entry.usage.input_tokens
                + PRICES[entry.model][1] * entry.usage.output_tokens
            )
            / 1_000_000
            for entry in provider.ledger.billed
        ),
        Decimal(0),
    )


# --- an invoice from the upload to the draft ---


async def test_an_uploaded_invoice_becomes_a_draft_that_any_worker_streams(
    desk: tuple[Worker, Worker], provider: ModelServer
) -> None:
    here, there = desk
    uploaded = await here.put("ada/runs/1")
    assert (uploaded.status_code, uploaded.json()["status"]) == (202, "running")
    news, elsewhere = await asyncio.gather(here.all_news("ada/runs/1"), there.all_news("ada/runs/1"))

    draft = "Dear Acme Paper, thank you for your invoice over 120 EUR. We pay it. Your accounts department"
    assert steps_in(news) == [
        (step, kind) for step in ("read", "approve", "draft") for kind in ("step_started", "step_finished")
    ]
    for told in (news, elsewhere):
        assert text_in(told) == draft
        assert ids_of(told) == ids_of(news)
        assert draft.startswith(pieces_of(told))
    state = await there.get("ada/runs/1")
    assert news[-1].data == elsewhere[-1].data == state
    assert (state["id"], state["status"], state["code"], state["output"]) == (
        "1",
        "finished",
        "completed",
        draft,
    )
    assert (Decimal(state["cost_usd"]), state["cost_complete"]) == (billed_usd(provider), True)


async def test_a_repeated_upload_is_the_same_invoice_and_another_text_is_refused(
    desk: tuple[Worker, Worker], provider: ModelServer
) -> None:
    here, there = desk
    await here.put("bea/runs/1")
    await here.all_news("bea/runs/1")
    assert sent(provider) == (2, 1)
    (line,) = (await there.get("bea/runs"))["runs"]
    assert (line["id"], line["status"]) == ("1", "finished")
    again = await there.put("bea/runs/1")
    assert (again.status_code, again.json()["status"]) == (200, "finished")
    other = await there.put("bea/runs/1", DOUBTFUL)
    assert (other.status_code, other.json()["code"]) == (409, "other-inputs")
    assert sent(provider) == (2, 1)


async def test_a_long_invoice_is_read_by_the_larger_model(
    desk: tuple[Worker, Worker], provider: ModelServer
) -> None:
    for number, text in (("1", KNOWN), ("2", KNOWN + " paper" * 400)):
        provider.ledger.clear()
        assert (await desk[0].put(f"cleo/runs/{number}", text)).status_code == 202
        await desk[0].all_news(f"cleo/runs/{number}")
        reader = {entry.model for entry in provider.ledger.entries if "tools" in entry.body}
        assert reader == {"gpt-5-nano" if number == "1" else "gpt-5-mini"}


async def test_a_browser_that_reconnects_misses_nothing_and_hears_nothing_twice(
    desk: tuple[Worker, Worker], provider: ModelServer
) -> None:
    here, there = desk
    hanging_draft(provider)
    await here.put("dora/runs/1")
    first = await until_text(here, "dora/runs/1")
    second = await until_text(there, "dora/runs/1", last_id(first))
    for text in (text_in(first), text_in(second), text_in(first + second)):
        assert text in ("Dear Acm", "Dear Acme Paper,"), "either worker has the text"
    await there.post("dora/runs/1/cancel")
    third = await there.all_news("dora/runs/1", last_id(first + second))
    assert (await there.post("dora/runs/1/resume")).status_code == 202
    fourth = await until_ended(here, "dora/runs/1", last_id(third))
    whole = await there.all_news("dora/runs/1")
    assert ids_of(first + second + third + fourth) == ids_of(whole)
    assert text_in(first + second + third + fourth) == text_in(whole)

    last = {"Last-Event-ID": ids_of(whole)[-1]}
    ended = await here.client.get("/customers/dora/runs/1/events", headers=last)
    assert ended.status_code == 204, "or the browser would reconnect for ever"


async def test_a_browser_that_leaves_does_not_end_the_run(
    desk: tuple[Worker, Worker], provider: ModelServer
) -> None:
    await desk[0].put("emma/runs/1")
    async with aclosing(desk[0].news("emma/runs/1")) as news:
        await anext(news)
    await until_ended(desk[1], "emma/runs/1")
    assert (await desk[1].get("emma/runs/1"))["status"] == "finished"
    assert sent(provider) == (2, 1)


async def test_a_run_is_cancelled_through_any_worker_and_goes_on_later(
    desk: tuple[Worker, Worker], provider: ModelServer
) -> None:
    here, there = desk
    hanging_draft(provider)
    await here.put("fay/runs/1")
    before = await until_text(here, "fay/runs/1")
    assert (await there.post("fay/runs/1/cancel")).status_code == 202
    after = await here.all_news("fay/runs/1", last_id(before))
    assert after[-1].data["status"] == "cancelled"
    (*_, draft) = await provider.ledger.wait_for(3, state="finished", timeout=PATIENCE)
    assert draft.client_disconnected, "the provider need not write the rest"

    assert (await there.post("fay/runs/1/resume")).status_code == 202
    news = await until_ended(there, "fay/runs/1", last_id(after))
    assert news[-1].data["status"] == "finished"
    assert sent(provider) == (2, 2), "what was read before is not read again"
    for action in ("cancel", "resume"):
        refused = await here.post(f"fay/runs/1/{action}")
        assert (refused.status_code, refused.json()["run_status"]) == (409, "finished")


async def test_a_summary_ends_when_its_reader_leaves(
    desk: tuple[Worker, Worker], provider: ModelServer
) -> None:
    hanging_draft(provider)
    path = "/customers/flo/summaries"
    async with desk[0].client.stream("POST", path, json={"text": KNOWN}) as response:
        lines = [line async for line in until_data(response)]
    assert lines == ["event: text", 'data: "Dear Acm"']
    (summary,) = await provider.ledger.wait_for(1, state="finished", timeout=PATIENCE)
    assert summary.client_disconnected
    whole = await desk[0].client.post(path, json={"text": KNOWN})
    assert whole.text.count("event: text") > 2
    assert "event: error" not in whole.text


async def test_a_summary_that_fails_says_so_in_its_stream(
    desk: tuple[Worker, Worker], provider: ModelServer
) -> None:
    provider.fail_next(1, Fault.status(400))
    failed = await desk[0].client.post("/customers/flo/summaries", json={"text": KNOWN})
    assert failed.text == 'event: error\ndata: "the summary has stopped"\n\n'


# --- money ---


async def test_the_limit_of_a_customer_holds_over_both_workers(
    desk: tuple[Worker, Worker], provider: ModelServer
) -> None:
    provider.reset()
    provider.rule(is_reading, costly(offline.read))
    provider.rule(None, costly(offline.write))
    uploads = await asyncio.gather(*(desk[number % 2].put(f"gil/runs/{number}") for number in range(16)))
    accepted = [number for number, upload in enumerate(uploads) if upload.status_code == 202]
    stories = await asyncio.gather(
        *(until_ended(desk[1 - number % 2], f"gil/runs/{number}") for number in accepted)
    )
    ends = [story[-1].data for story in stories]
    assert {(end["status"], end["code"]) for end in ends} == {("finished", "completed")}, "each is paid for"
    await until_free(desk[0], "gil")
    refused = [upload for upload in uploads if upload.status_code != 202]
    assert {upload.status_code for upload in refused} == {429}
    assert {upload.json()["code"] for upload in refused} == {"limit-reserved"}, "others have it for now"
    assert {upload.headers["Retry-After"] for upload in refused} == {"5"}

    number = 0
    while (await desk[number % 2].put(f"gil/runs/next-{number}")).status_code == 202:
        await until_ended(desk[number % 2], f"gil/runs/next-{number}")
        await until_free(desk[0], "gil")
        number += 1
    for worker in desk:
        last = await worker.put("gil/runs/one-more")
        assert last.status_code == 429
        said = last.json()
        assert (said["code"], Decimal(said["limit_usd"])) == ("limit-reached", DAILY_USD)
        assert Decimal(said["spent_usd"]) == billed_usd(provider)
        assert 0 < int(last.headers["Retry-After"]) <= 24 * 3600

    spent = Decimal((await desk[0].get("gil/spending"))["spent_usd"])
    assert spent == billed_usd(provider), "to the last digit, by the ledger of the provider"
    assert DAILY_USD - Decimal("0.004") < spent <= DAILY_USD
    assert (await desk[1].put("hal/runs/1")).status_code == 202, "others have their own"
    await until_ended(desk[1], "hal/runs/1")


async def test_operators_hear_of_spending_see_it_by_customer_and_raise_a_limit(
    own_workers: list[Worker], provider: ModelServer
) -> None:
    provider.reset()
    provider.rule(is_reading, costly(offline.read))
    provider.rule(None, costly(offline.write))
    first, second = own_workers
    number = 0
    while (upload := await own_workers[number % 2].put(f"gil/runs/{number}")).status_code == 202:
        await until_ended(own_workers[1 - number % 2], f"gil/runs/{number}")
        await until_free(first, "gil")
        number += 1
    assert upload.status_code == 429

    spent = billed_usd(provider)
    report = (await second.client.get("/operators/spending")).json()
    assert report == [
        {
            "customer": "gil",
            "requests": len(provider.ledger.billed),
            "cost_usd": str(spent),
            "left_today_usd": str(DAILY_USD - spent),
        }
    ]
    told = [line for line in (first.folder / "log").read_text().splitlines() if "has spent" in line]
    shares = [share for share in (50, 80, 95) if spent >= DAILY_USD * share / 100]
    assert told == [f"customer gil has spent {share} % of $0.01 today" for share in shares] != []

    place = ("--store", str(first.folder / "spend.db"))
    await on_the_command_line("spend", "set", "gil", "1", "--reason", "a large order", *place)
    for name, worker in zip(("one-more", "another"), own_workers, strict=True):
        assert (await worker.put(f"gil/runs/{name}")).status_code == 202
        story = await until_ended(worker, f"gil/runs/{name}")
        assert story[-1].data["status"] == "finished"


async def on_the_command_line(*arguments: str) -> None:
    code, out, err = await asyncio.to_thread(Program("-m", "fastroai.cli", *arguments).end)
    assert code == 0, out + err


def costly(answer: Callable[[ServedRequest], Reply]) -> Callable[[ServedRequest], Reply]:
    def reply(request: ServedRequest) -> Reply:
        assert request.max_tokens is not None
        return replace(answer(request), usage=Usage(60, min(400, request.max_tokens)), chunk_delay=0.0)

    return reply


# --- people ---


async def test_a_doubtful_invoice_waits_for_a_person_and_goes_on_with_the_answer(
    desk: tuple[Worker, Worker], provider: ModelServer
) -> None:
    here, there = desk
    await here.put("ida/runs/1", DOUBTFUL)
    news = await here.all_news("ida/runs/1")
    assert (news[-1].data["status"], news[-1].data["code"]) == ("paused", "question")
    (asked,) = (await there.get("ida/questions"))["questions"]
    assert news[-1].data["questions"] == [asked]
    assert asked["question"] == "Pay 9,000 EUR to Fly-by-Night? The vendor is new."

    path, answer = "ida/runs/1/answers", {"question": asked["key"], "reviewer": "Mia"}
    perhaps = await there.post(path, {**answer, "value": "perhaps"})
    assert (perhaps.status_code, perhaps.json()["code"]) == (422, "answer-rejected")
    assert (await there.post(path, {**answer, "value": False})).status_code == 202
    after = await until_ended(here, "ida/runs/1", last_id(news))
    assert "We do not pay it." in text_in(after)
    assert sent(provider) == (2, 1)
    again = await here.post(path, {**answer, "value": True})
    assert (again.status_code, again.json()["code"]) == (409, "question-closed")


async def test_an_answer_from_the_command_line_is_found_by_the_workers(
    own_workers: list[Worker], tmp_path: Path
) -> None:
    here, there = own_workers
    await here.put("jon/runs/1", DOUBTFUL)
    news = await here.all_news("jon/runs/1")
    (asked,) = news[-1].data["questions"]
    question = f"jon.1:{asked['key']}"
    place = ("--reviewer", "Mia", "--store", str(tmp_path / "runs.db"))
    await on_the_command_line("review", "answer", question, "true", *place)
    after = await until_ended(there, "jon/runs/1", last_id(news))
    assert "We pay it." in text_in(after)


# --- workers that end ---


async def test_a_worker_that_is_killed_loses_nothing_and_nothing_is_paid_for_twice(
    own_workers: list[Worker], tmp_path: Path, provider: ModelServer
) -> None:
    here, there = own_workers
    hanging_draft(provider)
    await here.put("kim/runs/1")
    before = await until_text(there, "kim/runs/1")
    following = asyncio.create_task(there.all_news("kim/runs/1", last_id(before)))
    here.kill()
    own_workers.append(anew := Worker(tmp_path, provider))  # recovers at its start
    after = await following
    assert after[-1].data["status"] == "finished"
    whole = await anew.all_news("kim/runs/1")
    assert ids_of(before) + ids_of(after) == ids_of(whole)
    assert sent(provider) == (2, 2), "the draft that nobody got is asked for again, and nothing else"


async def test_a_worker_that_is_stopped_hands_over_its_runs_and_its_readers(
    own_workers: list[Worker], provider: ModelServer
) -> None:
    here, there = own_workers
    await there.put("lea/runs/0")  # it is up
    await until_ended(there, "lea/runs/0")
    provider.reset()
    provider.rule(is_reading, offline.read)
    provider.rule(None, lambda request: replace(offline.write(request), chunk_delay=0.2))
    await here.put("lea/runs/1")
    waiting = asyncio.create_task(here.get("lea/runs/1?wait=60"))
    before = []
    async for one in here.news("lea/runs/1"):  # until the worker ends the stream
        if not before:
            here.process.send_signal(signal.SIGTERM)
        before.append(one)
    assert (before[-1].event, before[-1].data) == ("reconnect", {})
    assert (await waiting)["status"] == "running", "whoever waits is answered, and does not hold the end up"
    assert here.process.wait(PATIENCE) in (0, -signal.SIGTERM)
    after = await until_ended(there, "lea/runs/1", last_id(before))
    assert after[-1].data["status"] == "finished"
    assert ids_of(before) + ids_of(after) == ids_of(await there.all_news("lea/runs/1"))
    assert sent(provider) == (2, 1), "nothing is paid for twice"
    assert "Traceback" not in (here.folder / "log").read_text()


# --- customers, bad input, and the page ---


async def test_customers_see_nothing_of_each_other(desk: tuple[Worker, Worker]) -> None:
    here, there = desk
    await here.put("nia/runs/1", DOUBTFUL)
    (asked,) = (await here.all_news("nia/runs/1"))[-1].data["questions"]
    assert (await there.get("eve/runs"))["runs"] == (await there.get("eve/questions"))["questions"] == []
    for path in ("eve/runs/1", "eve/runs/1/events", "eve/runs/nia.1"):
        hidden = await there.client.get(f"/customers/{path}")
        assert (hidden.status_code, hidden.json()["code"]) == (404, "run-not-found")
    answer = {"question": asked["key"], "value": True, "reviewer": "Eve"}
    for action, body in (("cancel", None), ("pause", None), ("resume", None), ("answers", answer)):
        assert (await there.post(f"eve/runs/1/{action}", body)).status_code == 404

    assert (await there.put("eve/runs/1")).status_code == 202, "a number is free if only others have it"
    await until_ended(there, "eve/runs/1")
    stolen = await there.post("eve/runs/1/answers", answer)
    assert (stolen.status_code, stolen.json()["code"]) == (404, "question-not-found")
    assert (await here.get("nia/runs/1"))["status"] == "paused"


@pytest.mark.parametrize(
    ("path", "text", "pointer"),
    [
        ("mia/runs/1", "", "/text"),
        ("mia/runs/1", "x" * 50_001, "/text"),
        ("Mia!/runs/1", KNOWN, "/path/customer"),
    ],
)
async def test_an_invoice_that_is_none_is_refused(
    desk: tuple[Worker, Worker], provider: ModelServer, path: str, text: str, pointer: str
) -> None:
    refused = await desk[0].put(path, text)
    assert refused.status_code == 422, refused.text
    assert [error["pointer"] for error in refused.json()["errors"]] == [pointer]
    assert not provider.ledger.entries


async def test_the_page_finds_its_client_and_the_routes_beside_it(desk: tuple[Worker, Worker]) -> None:
    home = await desk[0].client.get("/", follow_redirects=True)
    assert home.url.path == "/customers/ada/"
    assert 'from "./client.js"' in home.text
    client = await desk[0].client.get("/customers/ada/client.js")
    assert client.headers["content-type"].startswith("text/javascript")
    paths = (await desk[0].client.get("/openapi.json")).json()["paths"]
    assert {"/customers/{customer}/runs/{run_id}/events", "/customers/{customer}/spending"} < set(paths)
    for path, operations in paths.items():
        for operation in operations.values():
            named = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"}
            assert named == set(re.findall("{(.+?)}", path)), path


async def test_the_desk_serves_without_a_key(tmp_path: Path) -> None:
    # Bound, and not listening: nobody else is given the port meanwhile, and the server can listen on it.
    free = socket.socket()
    free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
    process = serving_without_a_key(tmp_path, port)
    try:
        url = f"http://127.0.0.1:{port}"
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE, trust_env=False) as client:
            async with asyncio.timeout(PATIENCE):
                while True:
                    try:
                        uploaded = await client.put("/customers/ada/runs/1", json={"text": KNOWN})
                        break
                    except httpx2.TransportError:
                        await asyncio.sleep(0.1)
            assert uploaded.status_code == 202
            async with client.stream("GET", "/customers/ada/runs/1/events") as response:
                told = (await response.aread()).decode()
            assert "event: text" in told
            assert told.rsplit("event: ", 1)[-1].startswith("state")
            assert '"code":"completed"' in told
    finally:
        process.send_signal(signal.SIGINT)
        said, _ = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
        free.close()
    assert "Traceback" not in said, said


def serving_without_a_key(folder: Path, port: int) -> subprocess.Popen[str]:
    unset = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "invoice_desk"],
        env={**unset, "PORT": str(port), "DESK_FOLDER": str(folder), "PYTHONPATH": str(ROOT)},
        cwd=ROOT / "examples",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
