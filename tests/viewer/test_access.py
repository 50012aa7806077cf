"""Who gets in: the token and its cookie, hosts and origins, forms, and functions of other apps."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount
from support.viewing import TOKEN, client, csrf_of, signed_in

import fastroai.viewer
from fastroai import Inbox, MemoryRunStore, Pipeline, StepContext, step
from fastroai.errors import ConfigurationError
from fastroai.store.record.headers import header_key
from fastroai.viewer import Visitor, viewer

FORM = {"answer": "true", "reviewer": "Mia"}


@step
async def agree(ctx: StepContext) -> bool:
    return await ctx.ask("Refund 120 dollars?", bool)


@pytest.fixture
async def store() -> MemoryRunStore:
    kept = MemoryRunStore()
    for tenant in ("acme", "globex", None):
        await Pipeline("desk", {"agree": agree}).execute(run_id=f"of-{tenant}", store=kept, tenant=tenant)
    return kept


async def test_without_the_token_no_page_tells_anything(store: MemoryRunStore) -> None:
    async with client(viewer(store, token=TOKEN)) as browser:
        for path in ("/", "/runs", "/runs/of-acme", "/people", "/spending", "/stream/runs", "/stream/people"):
            answer = await browser.get(path)
            assert answer.status_code == 401
            assert "of-acme" not in answer.text
        assert (await browser.post("/runs/of-acme/cancel")).status_code == 401
        assert (await browser.get("/", params={"token": "wrong-" + TOKEN})).status_code == 401


async def test_the_link_gives_a_cookie_that_scripts_and_other_sites_cannot_use(store: MemoryRunStore) -> None:
    async with client(viewer(store, token=TOKEN)) as browser:
        answer = await browser.get("/", params={"token": TOKEN})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert TOKEN not in cookie
        assert (await browser.get("/runs")).status_code == 200


async def test_a_cookie_of_another_viewer_opens_nothing(store: MemoryRunStore) -> None:
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        kept = dict(browser.cookies)
    async with client(viewer(store, token="another-" + TOKEN)) as other:
        other.cookies.update(kept)
        assert (await other.get("/runs")).status_code == 401


@pytest.mark.parametrize(
    "host", ["evil.example:8642", "127.0.0.1.evil.example", "localhost.evil.example", "[127.0.0.1"]
)
async def test_a_name_that_is_not_this_machine_is_refused(store: MemoryRunStore, host: str) -> None:
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        answer = await browser.get("/runs", headers={"host": host})
        assert answer.status_code == 400
        assert "of-acme" not in answer.text
        refused = await browser.get("/", params={"token": TOKEN}, headers={"host": host})
        assert refused.status_code == 400


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://[127.0.0.1"},
        {"origin": "null"},
        {"origin": "http://evil.example", "sec-fetch-site": "same-origin"},
        {"origin": "null", "sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
async def test_actions_of_other_sites_are_refused(store: MemoryRunStore, headers: dict[str, str]) -> None:
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        data = {"csrf": await csrf_of(browser)}
        assert (await browser.post("/runs/of-acme/cancel", data=data, headers=headers)).status_code == 403
        assert (await browser.post("/runs/of-acme/cancel", data=data)).status_code == 303


async def test_a_form_of_too_many_fields_is_told(store: MemoryRunStore) -> None:
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        data = {"csrf": await csrf_of(browser)} | {f"field{number}": "" for number in range(1_001)}
        refused = await browser.post("/runs/of-acme/cancel", data=data)
        assert (refused.status_code, "The form cannot be read" in refused.text) == (400, True)


async def test_an_action_needs_the_secret_of_its_form(store: MemoryRunStore) -> None:
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        for data in ({}, {"csrf": ""}, {"csrf": "guessed"}):
            assert (await browser.post("/runs/of-acme/cancel", data=data)).status_code == 403
        csrf = await csrf_of(browser)
        del browser.cookies["fastroai_csrf"]
        assert (await browser.post("/runs/of-acme/cancel", data={"csrf": csrf})).status_code == 403
        assert (await browser.get("/runs/of-acme/cancel")).status_code == 405


@pytest.mark.parametrize("path", ["/runs", "/nope", "/runs/nope", "/static/viewer.css", "/stream/nope"])
async def test_every_answer_has_the_headers_that_keep_scripts_and_frames_out(
    store: MemoryRunStore, path: str
) -> None:
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        headers = (await browser.get(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert ("no-store" in headers["cache-control"]) == (not path.startswith("/static"))


async def test_each_page_has_another_nonce_and_no_script_of_its_own(store: MemoryRunStore) -> None:
    nonces = set[str]()
    async with signed_in(viewer(store, token=TOKEN)) as browser:
        for path in ("/runs", "/spending", "/people", "/runs/of-acme"):
            answer = await browser.get(path)
            (nonce,) = set(re.findall(r'nonce="([^"]+)"', answer.text))
            assert f"'nonce-{nonce}'" in answer.headers["content-security-policy"]
            nonces.add(nonce)
            assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|<style|\sstyle=", answer.text)
    assert len(nonces) == 4


async def test_a_mounted_viewer_asks_the_app_and_links_under_its_path(store: MemoryRunStore) -> None:
    asked = list[str]()

    async def authorize(request: Request) -> Visitor | None:
        asked.append(request.url.path)
        return Visitor(name="Mia", tenants={"acme"}, actions={"answer"}) if "key" in request.headers else None

    app = Starlette(routes=[Mount("/static/runs", viewer(store, authorize=authorize))])
    async with client(app, host="shop.example") as browser:
        assert (await browser.get("/static/runs/runs")).status_code == 403
        browser.headers["key"] = "of Mia"
        answer = await browser.get("/static/runs/")
        assert answer.headers["location"] == "/static/runs/runs"
        for path in ("/runs", "/people", "/spending", "/runs/of-acme"):
            answer = await browser.get(f"/static/runs{path}")
            assert answer.headers["cache-control"] == "no-store"
            page = answer.text
            links = re.findall(r'(?:href|src|action|hx-sse:connect)="([^"#]+)"', page)
            assert links
            assert all(link.startswith("/static/runs/") for link in links)
            for link in set(links):
                if "/stream/" not in link and "answer" not in link:
                    assert (await browser.get(link)).status_code in (200, 303)
    assert len(asked) > 4


async def test_a_visitor_sees_and_does_no_more_than_the_app_says(store: MemoryRunStore) -> None:
    app = viewer(
        store, authorize=lambda request: Visitor(name="Mia", tenants={"acme", "umbrella"}, actions={"pause"})
    )
    (asked,) = await Inbox(store).list(tenant="acme")
    (other,) = await Inbox(store).list(tenant="globex")
    async with client(app) as browser:
        csrf = {"csrf": await csrf_of(browser)}
        for path in ("/runs", "/people", "/spending?by=tenant&period=all"):
            page = (await browser.get(path)).text
            assert "globex" not in page
            assert "of-None" not in page
        after = {"after": "started down 0 0 of-globex"}
        assert other.id not in (await browser.get("/people", params=after)).text
        assert "of-acme" in (await browser.get("/runs")).text
        assert "of-acme" not in (await browser.get("/runs", params={"tenant": "globex"})).text
        for path in ("/runs/of-globex", "/runs/of-None", f"/people/{other.id}"):
            assert (await browser.get(path)).status_code == 404
        for path in ("/runs/of-globex/cancel", "/runs/of-globex/pause", f"/people/{other.id}/answer"):
            assert (await browser.post(path, data={**csrf, **FORM})).status_code in (403, 404)
        assert "/cancel" not in (await browser.get("/runs/of-acme")).text
        assert (await browser.post("/runs/of-acme/cancel", data=csrf)).status_code == 403
        page = (await browser.get(f"/people/{asked.id}")).text
        assert "<form" not in page
        refused = await browser.post(f"/people/{asked.id}/answer", data={**csrf, **FORM})
        assert refused.status_code == 403
    assert len(await Inbox(store).list()) == 3


async def test_a_run_that_cannot_be_read_is_for_those_who_see_all_tenants(store: MemoryRunStore) -> None:
    found = await store.read(header_key("of-globex"))
    await store.compare_and_set(header_key("of-globex"), b"{nonsense", revision=found.revision)
    app = viewer(store, authorize=lambda request: Visitor(tenants={"acme"}))
    (asked,) = await Inbox(store).list(tenant="acme")
    paths = ("/runs", "/runs?search=refund", "/people", "/spending", "/runs/of-acme/diff")
    async with client(app) as browser:
        for path in paths:
            page = await browser.get(path)
            assert "globex" not in page.text, path
        for path in ("/runs/of-globex", "/people/of-globex:x", "/runs/of-acme/diff?with=of-globex"):
            assert (await browser.get(path)).status_code == 404
        assert "of-acme" in (await browser.get(f"/people/{asked.id}")).text
    async with client(viewer(store, authorize=lambda request: Visitor())) as browser:
        assert "of-globex" in (await browser.get("/runs")).text
        for path in ("/runs/of-globex", "/spending"):
            assert "of-globex" in (await browser.get(path)).text


async def test_a_stream_ends_when_its_visitor_may_see_no_more(
    store: MemoryRunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastroai.viewer.streams.HEARTBEAT", 0.01)
    may_see = [True, True, True]
    app = viewer(store, authorize=lambda request: Visitor() if may_see and may_see.pop() else None)
    async with client(app) as browser, browser.stream("GET", "/stream/runs") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-accel-buffering"] == "no"
        text = "".join([chunk async for chunk in answer.aiter_text()])
    assert "of-acme" in text
    assert text.rstrip().endswith("</div>")
    assert "Not for you" in text


async def test_a_stream_of_a_run_ends_when_its_visitor_may_not_see_its_tenant_any_more(
    store: MemoryRunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastroai.viewer.streams.HEARTBEAT", 0.01)
    seen = [None, *[Visitor(tenants={"globex"})] * 100, Visitor(tenants={"acme"})]
    app = viewer(store, authorize=lambda request: seen.pop())
    async with client(app) as browser, browser.stream("GET", "/stream/runs/of-acme") as answer:
        text = "".join([chunk async for chunk in answer.aiter_text()])
    assert "Refund" not in text
    assert "There is no such run" in text


def test_a_viewer_says_who_may_come_in() -> None:
    store = MemoryRunStore()
    with pytest.raises(ConfigurationError, match="either authorize="):
        viewer(store)
    with pytest.raises(ConfigurationError, match="either authorize="):
        viewer(store, token=TOKEN, authorize=lambda request: Visitor())
    with pytest.raises(ConfigurationError, match="16 characters"):
        viewer(store, token="short")
    with pytest.raises(ConfigurationError, match="tenants='acme'"):
        Visitor(tenants="acme")
    with pytest.raises(ConfigurationError, match="actions='delete'"):
        Visitor(actions={"delete"})  # type: ignore[arg-type]


def test_vendored_files_are_the_ones_of_the_manifest() -> None:
    folder = Path(fastroai.viewer.__file__).parent / "static" / "vendor"
    manifest = json.loads((folder / "manifest.json").read_text())
    there = {file.name: sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}
    del there["manifest.json"]
    assert there == manifest["sha256"]
    assert "Zero-Clause BSD" in (folder / "LICENSE-htmx").read_text()
