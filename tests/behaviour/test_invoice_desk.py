"""The service of the FastAPI guide: two worker processes of uvicorn on loopback, and the model server."""

from __future__ import annotations

import asyncio
import json
import os
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
        options = ["--fd", str(listener.fileno()), "--timeout-graceful-shutdown", "1"]
        with listener, (folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "uvicorn", "--app-dir", "examples", "invoice_desk.app:app", *options],
                env={**os.environ, **settings, **provider.environment()},
                cwd=ROOT,
                pass_fds=[listener.fileno()],
                stdout=log,
                stderr=log,
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
        return [one async for one in self.news(path, after)]


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
        elif one.data.get("step") == "draft" and one.data["status"] == "finished":
            text = one.data["output"]
    return text


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
        while not (seen and seen[-1].data["status"] in ("finished", "failed", "cancelled")):
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
    uploaded = await here.put("ada/invoices/1")
    assert (uploaded.status_code, uploaded.json()["status"]) == (202, "running")
    news, elsewhere = await asyncio.gather(here.all_news("ada/invoices/1"), there.all_news("ada/invoices/1"))

    draft = "Dear Acme Paper, thank you for your invoice over 120 EUR. We pay it. Your accounts department"
    steps = [(one.data["step"], one.data["status"]) for one in news if one.event == "step"]
    assert steps == [
        (step, status) for step in ("read", "approve", "draft") for status in ("started", "finished")
    ]
    assert news[-1].data == {"status": "finished", "code": "completed"}
    for told in (news, elsewhere):
        assert text_in(told) == draft
        assert ids_of(told) == ids_of(news)
        assert draft.startswith(pieces_of(told))
    state = await there.get("ada/invoices/1")
    assert Decimal(state.pop("cost_usd")) == billed_usd(provider)
    assert state == {"number": "1", "status": "finished", "code": "completed", "draft": draft}


async def test_a_repeated_upload_is_the_same_invoice_and_another_text_is_refused(
    desk: tuple[Worker, Worker], provider: ModelServer
) -> None:
    here, there = desk
    await here.put("bea/invoices/1")
    await here.all_news("bea/invoices/1")
    assert sent(provider) == (2, 1)
    (line,) = await there.get("bea/invoices")
    assert (line["number"], line["status"]) == ("1", "finished")
    again = await there.put("bea/invoices/1")
    assert (again.status_code, again.json()["status"]) == (200, "finished")
    other = await there.put("bea/invoices/1", DOUBTFUL)
    assert (other.status_code, other.json()["detail"]) == (409, "there is another invoice with this number")
    assert sent(provider) == (2, 1)


async def test_a_long_invoice_is_read_by_the_larger_model(
    desk: tuple[Worker, Worker], provider: ModelServer
) -> None:
    for number, text in (("1", KNOWN), ("2", KNOWN + " paper" * 400)):
        provider.ledger.clear()
        assert (await desk[0].put(f"cleo/invoices/{number}", text)).status_code == 202
        await desk[0].all_news(f"cleo/invoices/{number}")
        reader = {entry.model for entry in provider.ledger.entries if "tools" in entry.body}
        assert reader == {"gpt-5-nano" if number == "1" else "gpt-5-mini"}


async def test_a_browser_that_reconnects_misses_nothing_and_hears_nothing_twice(
    desk: tuple[Worker, Worker], provider: ModelServer
) -> None:
    here, there = desk
    hanging_draft(provider)
    await here.put("dora/invoices/1")
    first = await until_text(here, "dora/invoices/1")
    second = await until_text(there, "dora/invoices/1", last_id(first))
    assert (text_in(first), text_in(first + second)) == ("Dear Acm", "Dear Acm"), (
        "the other worker has the text"
    )
    await there.post("dora/invoices/1/cancel")
    third = await there.all_news("dora/invoices/1", last_id(first + second))
    assert (await there.post("dora/invoices/1/resume")).status_code == 202
    fourth = await until_ended(here, "dora/invoices/1", last_id(third))
    whole = await there.all_news("dora/invoices/1")
    assert ids_of(first + second + third + fourth) == ids_of(whole)
    assert text_in(first + second + third + fourth) == text_in(whole)

    last = {"Last-Event-ID": ids_of(whole)[-1]}
    ended = await here.client.get("/customers/dora/invoices/1/events", headers=last)
    assert ended.status_code == 204, "or the browser would reconnect for ever"


async def test_a_browser_that_leaves_does_not_end_the_run(
    desk: tuple[Worker, Worker], provider: ModelServer
) -> None:
    await desk[0].put("emma/invoices/1")
    async with aclosing(desk[0].news("emma/invoices/1")) as news:
        await anext(news)
    await until_ended(desk[1], "emma/invoices/1")
    assert (await desk[1].get("emma/invoices/1"))["status"] == "finished"
    assert sent(provider) == (2, 1)


async def test_a_run_is_cancelled_through_any_worker_and_goes_on_later(
    desk: tuple[Worker, Worker], provider: ModelServer
) -> None:
    here, there = desk
    hanging_draft(provider)
    await here.put("fay/invoices/1")
    before = await until_text(here, "fay/invoices/1")
    assert (await there.post("fay/invoices/1/cancel")).status_code == 202
    after = await here.all_news("fay/invoices/1", last_id(before))
    assert after[-1].data["status"] == "cancelled"
    (*_, draft) = await provider.ledger.wait_for(3, state="finished", timeout=PATIENCE)
    assert draft.client_disconnected, "the provider need not write the rest"

    assert (await there.post("fay/invoices/1/resume")).status_code == 202
    news = await until_ended(there, "fay/invoices/1", last_id(after))
    assert news[-1].data["status"] == "finished"
    assert sent(provider) == (2, 2), "what was read before is not read again"
    refused = await here.post("fay/invoices/1/cancel")
    assert refused.status_code == 409
    assert refused.json()["detail"].startswith("run 'fay.1' is finished")
    assert (await here.post("fay/invoices/1/resume")).status_code == 409


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
    uploads = await asyncio.gather(*(desk[number % 2].put(f"gil/invoices/{number}") for number in range(16)))
    accepted = [number for number, upload in enumerate(uploads) if upload.status_code == 202]
    stories = await asyncio.gather(
        *(until_ended(desk[1 - number % 2], f"gil/invoices/{number}") for number in accepted)
    )
    ends = [story[-1].data for story in stories]
    assert {(end["status"], end["code"]) for end in ends} == {("finished", "completed")}, "each is paid for"
    await until_free(desk[0], "gil")
    refused = [upload for upload in uploads if upload.status_code != 202]
    assert {upload.status_code for upload in refused} == {429}
    assert {upload.headers["Retry-After"] for upload in refused} == {"5"}, "others have reserved what is left"

    number = 0
    while (await desk[number % 2].put(f"gil/invoices/next-{number}")).status_code == 202:
        await until_ended(desk[number % 2], f"gil/invoices/next-{number}")
        await until_free(desk[0], "gil")
        number += 1
    for worker in desk:
        last = await worker.put("gil/invoices/one-more")
        assert last.status_code == 429
        said = "of $0.01 is spent today and $0 is reserved, and an invoice may cost up to $0.004"
        assert said in last.json()["detail"]
        assert 0 < int(last.headers["Retry-After"]) <= 24 * 3600

    spent = Decimal((await desk[0].get("gil/spending"))["spent_usd"])
    assert spent == billed_usd(provider), "to the last digit, by the ledger of the provider"
    assert DAILY_USD - Decimal("0.004") < spent <= DAILY_USD
    assert (await desk[1].put("hal/invoices/1")).status_code == 202, "others have their own"
    await until_ended(desk[1], "hal/invoices/1")


async def test_operators_hear_of_spending_see_it_by_customer_and_raise_a_limit(
    own_workers: list[Worker], provider: ModelServer
) -> None:
    provider.reset()
    provider.rule(is_reading, costly(offline.read))
    provider.rule(None, costly(offline.write))
    first, second = own_workers
    number = 0
    while (upload := await own_workers[number % 2].put(f"gil/invoices/{number}")).status_code == 202:
        await until_ended(own_workers[1 - number % 2], f"gil/invoices/{number}")
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

    command = [sys.executable, "-m", "fastroai.cli", "spend", "set", "gil", "1", "--reason", "a large order"]
    place = ["--store", str(first.folder / "spend.db")]
    raised = await asyncio.to_thread(subprocess.run, [*command, *place], cwd=ROOT, capture_output=True)
    assert raised.returncode == 0, raised.stderr
    for name, worker in zip(("one-more", "another"), own_workers, strict=True):
        assert (await worker.put(f"gil/invoices/{name}")).status_code == 202
        story = await until_ended(worker, f"gil/invoices/{name}")
        assert story[-1].data["status"] == "finished"


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
    await here.put("ida/invoices/1", DOUBTFUL)
    news = await here.all_news("ida/invoices/1")
    assert news[-1].data == {"status": "paused", "code": "question"}
    assert await here.get("jon/questions") == []
    (asked,) = await there.get("ida/questions")
    assert asked["question"] == "Pay 9,000 EUR to Fly-by-Night? The vendor is new."

    path = f"ida/invoices/1/questions/{asked['id']}/answer"
    perhaps = await there.post(path, {"value": "perhaps", "reviewer": "Mia"})
    assert (perhaps.status_code, "is not what it asks for" in perhaps.json()["detail"]) == (422, True)
    assert (await there.post(path, {"value": False, "reviewer": "Mia"})).status_code == 202
    after = await until_ended(here, "ida/invoices/1", last_id(news))
    assert "We do not pay it." in text_in(after)
    assert sent(provider) == (2, 1)
    assert (await here.post(path, {"value": True, "reviewer": "Ben"})).status_code == 409


async def test_an_answer_from_the_command_line_is_found_by_the_workers(
    own_workers: list[Worker], tmp_path: Path
) -> None:
    here, there = own_workers
    await here.put("jon/invoices/1", DOUBTFUL)
    news = await here.all_news("jon/invoices/1")
    (asked,) = await there.get("jon/questions")
    command = [sys.executable, "-m", "fastroai.cli", "review", "answer", asked["id"], "true"]
    place = ["--reviewer", "Mia", "--store", str(tmp_path / "runs.db")]
    given = await asyncio.to_thread(subprocess.run, [*command, *place], cwd=ROOT, capture_output=True)
    assert given.returncode == 0, given.stderr
    after = await until_ended(there, "jon/invoices/1", last_id(news))
    assert "We pay it." in text_in(after)


# --- workers that end ---


async def test_a_worker_that_is_killed_loses_nothing_and_nothing_is_paid_for_twice(
    own_workers: list[Worker], tmp_path: Path, provider: ModelServer
) -> None:
    here, there = own_workers
    hanging_draft(provider)
    await here.put("kim/invoices/1")
    before = await until_text(there, "kim/invoices/1")
    following = asyncio.create_task(there.all_news("kim/invoices/1", last_id(before)))
    here.kill()
    own_workers.append(anew := Worker(tmp_path, provider))  # recovers at its start
    after = await following
    assert after[-1].data["status"] == "finished"
    whole = await anew.all_news("kim/invoices/1")
    assert ids_of(before) + ids_of(after) == ids_of(whole)
    assert sent(provider) == (2, 2), "the draft that nobody got is asked for again, and nothing else"
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".text")]


async def test_a_worker_that_is_stopped_hands_its_runs_over(
    own_workers: list[Worker], provider: ModelServer
) -> None:
    here, there = own_workers
    await there.put("lea/invoices/0")  # it is up
    await here.put("lea/invoices/1")
    here.process.send_signal(signal.SIGTERM)
    assert here.process.wait(PATIENCE) in (0, -signal.SIGTERM)
    news = await until_ended(there, "lea/invoices/1")
    assert news[-1].data["status"] == "finished"
    await until_ended(there, "lea/invoices/0")
    assert sent(provider) == (4, 2)


# --- bad input, and the rest ---


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("mia/invoices/1", {"text": ""}, 422),
        ("mia/invoices/1", {"text": "x" * 50_001}, 422),
        ("mia/invoices/1", {}, 422),
        ("mia/invoices/1", "not an invoice", 422),
        ("Mia!/invoices/1", {"text": KNOWN}, 422),
        ("mia/invoices/one.two", {"text": KNOWN}, 422),
    ],
)
async def test_an_invoice_that_is_none_is_refused(
    desk: tuple[Worker, Worker], provider: ModelServer, path: str, body: object, status: int
) -> None:
    refused = await desk[0].client.put(f"/customers/{path}", json=body)
    assert refused.status_code == status, refused.text
    assert not provider.ledger.entries


async def test_what_does_not_exist_is_not_found(desk: tuple[Worker, Worker]) -> None:
    here, _ = desk
    for path in ("nia/invoices/1", "nia/invoices/1/events"):
        missing = await here.client.get(f"/customers/{path}")
        assert (missing.status_code, missing.json()) == (404, {"detail": "there is no such invoice"})
    for path in ("nia/invoices/1/cancel", "nia/invoices/1/resume"):
        assert (await here.post(path)).status_code == 404

    await here.put("nia/invoices/2", DOUBTFUL)
    await here.all_news("nia/invoices/2")
    (asked,) = await here.get("nia/questions")
    answer = {"value": True, "reviewer": "Eve"}
    await here.put("eve/invoices/2")
    await here.all_news("eve/invoices/2")
    stolen = await here.post(f"eve/invoices/2/questions/{asked['id']}/answer", answer)
    assert stolen.status_code == 404, "a question of another customer"
    unknown = await here.post("nia/invoices/2/questions/nia.2:000000000000/answer", answer)
    assert unknown.status_code == 409


@pytest.mark.parametrize(("last", "status"), [("1000", 400), ("-1", 422), ("latest", 422)])
async def test_a_last_event_that_never_was_is_refused(
    desk: tuple[Worker, Worker], last: str, status: int
) -> None:
    path = f"/customers/oda/invoices/{last.strip('-')}"
    await desk[0].client.put(path, json={"text": KNOWN})
    refused = await desk[0].client.get(f"{path}/events", headers={"Last-Event-ID": last})
    assert refused.status_code == status
    await until_ended(desk[0], path.removeprefix("/customers/"))


async def test_a_worker_that_has_enough_to_do_says_when_to_try_again(
    tmp_path: Path, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in provider.environment().items():
        monkeypatch.setenv(name, value)
    from fastapi import FastAPI
    from invoice_desk import api, dependencies, errors, settings
    from invoice_desk.desk import InvoiceDesk

    app = FastAPI()
    app.include_router(api.router)
    errors.add_error_handlers(app)
    async with InvoiceDesk.opened(settings.Settings(tmp_path, most_runs=0)) as full:
        app.dependency_overrides[dependencies.the_desk] = lambda: full
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://desk") as client:
            refused = await client.put("/customers/pia/invoices/1", json={"text": KNOWN})
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
    assert not provider.ledger.entries


async def test_the_page_and_the_schema_are_served(desk: tuple[Worker, Worker]) -> None:
    page = await desk[0].client.get("/")
    assert "new EventSource" in page.text
    schema = (await desk[0].client.get("/openapi.json")).json()
    assert "/customers/{customer}/invoices/{number}/events" in schema["paths"]


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
                        uploaded = await client.put("/customers/ada/invoices/1", json={"text": KNOWN})
                        break
                    except httpx2.TransportError:
                        await asyncio.sleep(0.1)
            assert uploaded.status_code == 202
            async with client.stream("GET", "/customers/ada/invoices/1/events") as response:
                told = (await response.aread()).decode()
            assert "event: text" in told
            assert told.rstrip().endswith('"code":"completed"}\nid: 19')
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
