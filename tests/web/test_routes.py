"""Runs over HTTP: what clients start, read, answer and stop, and how they are refused."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import httpx2
import jsonschema
import pytest
from fastapi import FastAPI
from openapi_spec_validator import validate
from web.conftest import Build, Desk, fastapi_app, letters, serving

from fastroai import Budget, FastroAgent, SpendLimit, budget_scope
from fastroai.errors import ConfigurationError, CostBudgetExceeded, RunStoreUnavailable
from fastroai.pipelines import Pipeline, PipelineConfig, StepContext, step
from fastroai.store import MemoryRunStore, MemorySpendStore, SQLiteRunStore
from fastroai.testing import ModelServer
from fastroai.web import Caller, RunOperations, RunsHost, api_schema, runs_router, runs_routes
from fastroai.web.problems import problem_of

PROBLEM = "application/problem+json"


def problem(response: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    assert (response.status_code, response.headers["content-type"]) == (status, PROBLEM), response.text
    told: dict[str, Any] = response.json()
    assert (told["status"], told["code"], told["type"]) == (status, code, f"urn:fastroai:problem:{code}")
    return told


async def test_a_run_is_started_and_its_result_is_waited_for(client: httpx2.AsyncClient) -> None:
    started = await client.post("/letters/runs?wait=30", json={"text": "hello", "copies": 2})
    assert started.status_code == 200
    assert started.json()["status"] == "finished"
    assert started.json()["output"] == "HELLO x2"

    read = await client.get(f"/letters/runs/{started.json()['id']}")
    assert read.json() == started.json()


async def test_a_run_goes_on_without_its_client(client: httpx2.AsyncClient, desk: Desk) -> None:
    desk.may_write.clear()
    started = await client.put("/letters/runs/l1", json={"text": "hello"})
    assert (started.status_code, started.json()["status"]) == (202, "running")
    desk.may_write.set()
    assert (await client.get("/letters/runs/l1?wait=30")).json()["output"] == "HELLO x1"


async def test_a_run_is_no_part_of_what_its_endpoint_counts(tmp_path: Path) -> None:
    written = FastroAgent("test").as_step("Hello")
    host = RunsHost(Pipeline("written", {"write": written}), store=SQLiteRunStore(tmp_path / "runs.db"))
    async with host.lifespan():
        async with budget_scope(Budget(requests=1)) as scope:
            await RunOperations(host).start(Caller(), {}, run_id="r1")
        state = await RunOperations(host).read(Caller(), "r1", wait=30)
    assert (state.status, state.requests, scope.usage.request_count) == ("finished", 1, 0)


async def test_a_client_that_repeats_itself_begins_one_run(client: httpx2.AsyncClient, desk: Desk) -> None:
    asked = [client.put("/letters/runs/l1?wait=30", json={"text": "hello"}) for _ in range(5)]
    answers = await asyncio.gather(*asked)
    assert {one.json()["output"] for one in answers} == {"HELLO x1"}
    assert desk.calls.count("read") == 1

    again = await client.put("/letters/runs/l1", json={"text": "hello", "copies": 1})
    assert again.status_code == 200
    problem(await client.put("/letters/runs/l1", json={"text": "bye"}), 409, "other-inputs")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [({"txt": "hello"}, "/text"), ({"text": 7}, "/text"), ({"text": "a", "copies": "many"}, "/copies")],
)
async def test_an_input_that_does_not_fit_is_named(
    client: httpx2.AsyncClient, body: dict[str, Any], pointer: str
) -> None:
    told = problem(await client.post("/letters/runs", json=body), 422, "invalid-input")
    assert told["errors"][0]["pointer"] == pointer
    assert told["errors"][0]["detail"]


async def test_bodies_that_cannot_be_read_are_refused(client: httpx2.AsyncClient) -> None:
    as_json = {"content-type": "application/json"}
    for body in (b"{nope", b'{"text": "\xff"}', b'{"text": ' + b"[" * 100_000, b"9" * 5_000):
        problem(await client.post("/letters/runs", content=body, headers=as_json), 400, "not-json")
    problem(await client.post("/letters/runs", json=["text"]), 422, "invalid-input")
    large = json.dumps({"text": "x" * 1_000_000})
    problem(await client.post("/letters/runs", content=large, headers=as_json), 413, "too-large")


@pytest.mark.parametrize(
    "value", ["9" * 5_000, "[" * 100_000 + "]" * 100_000, r'"\ud83d"', "[" * 195 + "]" * 195]
)
async def test_values_that_no_run_can_have_are_refused(client: httpx2.AsyncClient, value: str) -> None:
    as_json = {"content-type": "application/json"}
    for path in ("runs", "runs/l1/answers"):
        body = f'{{"text": "a", "question": "x", "value": {value}}}'
        refused = await client.post(f"/letters/{path}", content=body, headers=as_json)
        assert (refused.status_code // 100, refused.headers["content-type"]) == (4, PROBLEM), refused.text


async def test_a_tenant_sees_nothing_of_another(client: httpx2.AsyncClient) -> None:
    ada, bob = {"x-tenant": "ada"}, {"x-tenant": "bob"}
    for who in (ada, bob):
        mine = await client.put("/letters/runs/l1?wait=30", json={"text": who["x-tenant"]}, headers=who)
        assert mine.json()["id"] == "l1"
        assert mine.json()["output"] == f"{who['x-tenant'].upper()} x1"
    await client.put("/letters/runs/l2?wait=30", json={"text": "doubtful"}, headers=ada)

    assert [run["id"] for run in (await client.get("/letters/runs", headers=ada)).json()["runs"]] == [
        "l2",
        "l1",
    ]
    assert [run["id"] for run in (await client.get("/letters/runs", headers=bob)).json()["runs"]] == ["l1"]
    for query in ({}, {"after": "started down 0 0 ada.l2"}):
        asked = await client.get("/letters/questions", params=query, headers=bob)
        assert asked.json()["questions"] == []
    for method, path in [
        ("GET", "/l2"),
        ("GET", "/l2/events"),
        ("POST", "/l2/cancel"),
        ("POST", "/l2/pause"),
        ("POST", "/l2/resume"),
        ("GET", "/ada.l1"),
    ]:
        problem(await client.request(method, f"/letters/runs{path}", headers=bob), 404, "run-not-found")
    answer = {"question": "x", "value": True}
    problem(await client.post("/letters/runs/l2/answers", json=answer, headers=bob), 404, "run-not-found")
    told = await client.put("/letters/runs/b.l1", json={"text": "a"}, headers=ada)
    assert problem(told, 422, "invalid-input")["errors"][0]["pointer"] == "/run_id"


async def test_a_caller_may_do_what_it_says(client: httpx2.AsyncClient) -> None:
    reads = {"x-may": "read"}
    problem(await client.post("/letters/runs", json={"text": "a"}, headers=reads), 403, "not-allowed")
    await client.put("/letters/runs/l1?wait=30", json={"text": "a"})
    assert (await client.get("/letters/runs/l1", headers=reads)).status_code == 200
    for action in ("cancel", "pause", "resume"):
        problem(await client.post(f"/letters/runs/l1/{action}", headers=reads), 403, "not-allowed")


async def test_who_is_not_known_gets_problem_details_too(client: httpx2.AsyncClient) -> None:
    response = await client.get("/letters/runs", headers={"x-tenant": "nobody"})
    assert problem(response, 401, "unauthorized")["detail"] == "sign in first"
    assert response.headers["www-authenticate"] == "Bearer"
    response = await client.get("/letters/runs", headers={"x-tenant": "away"})
    assert problem(response, 499, "status-499")["detail"] == "gone"


async def test_a_person_answers_and_the_run_goes_on(client: httpx2.AsyncClient) -> None:
    asked = (await client.put("/letters/runs/l1?wait=30", json={"text": "doubtful"})).json()
    assert (asked["status"], asked["code"]) == ("paused", "question")
    (question,) = asked["questions"]
    assert (await client.get("/letters/questions")).json()["questions"] == [question]

    wrong = {"question": question["key"], "value": "perhaps"}
    problem(await client.post("/letters/runs/l1/answers", json=wrong), 422, "answer-rejected")
    right = {"question": question["key"], "value": True, "reviewer": "Mia"}
    assert (await client.post("/letters/runs/l1/answers", json=right)).status_code == 202
    assert (await client.get("/letters/runs/l1?wait=30")).json()["output"] == "DOUBTFUL x1"
    assert (await client.post("/letters/runs/l1/answers", json=right)).status_code == 202
    for value in (False, 1):
        other = right | {"value": value}
        problem(await client.post("/letters/runs/l1/answers", json=other), 409, "question-closed")
    never = right | {"question": "0123456789ab"}
    problem(await client.post("/letters/runs/l1/answers", json=never), 404, "question-not-found")


async def test_who_is_known_cannot_answer_as_another(
    client: httpx2.AsyncClient, host: RunsHost[None]
) -> None:
    asked = (await client.put("/letters/runs/l1?wait=30", json={"text": "doubtful"})).json()
    answer = {"question": asked["questions"][0]["key"], "value": True, "reviewer": "Mia"}
    await client.post("/letters/runs/l1/answers", json=answer, headers={"x-name": "Zoe"})
    given = (await host.inbox.get(f"l1:{answer['question']}")).answer
    assert given is not None
    assert given.reviewer == "Zoe"


async def test_a_run_is_paused_cancelled_and_resumed(client: httpx2.AsyncClient, desk: Desk) -> None:
    desk.may_write.clear()
    await client.put("/letters/runs/l1", json={"text": "hello"})
    assert (await client.post("/letters/runs/l1/cancel")).status_code == 202
    assert (await client.get("/letters/runs/l1?wait=30")).json()["status"] == "cancelled"
    told = problem(await client.post("/letters/runs/l1/cancel"), 409, "run-status")
    assert told["run_status"] == "cancelled"

    desk.may_write.set()
    assert (await client.post("/letters/runs/l1/resume")).status_code == 202
    assert (await client.get("/letters/runs/l1?wait=30")).json()["output"] == "HELLO x1"
    problem(await client.post("/letters/runs/l1/resume"), 409, "run-status")
    problem(await client.post("/letters/runs/l1/pause"), 409, "run-status")


async def test_an_answer_does_not_continue_a_run_that_somebody_has_paused(tmp_path: Path) -> None:
    may_end = asyncio.Event()

    @step
    async def asks(ctx: StepContext) -> bool:
        return await ctx.ask("Send it?", bool)

    @step
    async def works(ctx: StepContext) -> str:
        await may_end.wait()
        return "done"

    config = PipelineConfig(store=SQLiteRunStore(tmp_path / "runs.db"))
    host = RunsHost(
        Pipeline[Any, Any]("both", {"asks": asks, "works": works}, config=config, output_step="works")
    )
    async with serving(fastapi_app(host)) as client:
        await client.put("/letters/runs/l1", json={})
        while (await client.get("/letters/runs/l1")).json()["status"] != "running":
            await asyncio.sleep(0.01)
        assert (await client.post("/letters/runs/l1/pause")).status_code == 202
        may_end.set()
        paused = (await client.get("/letters/runs/l1?wait=30")).json()
        assert (paused["status"], paused["code"]) == ("paused", "pause_requested")
        (question,) = (await client.get("/letters/questions")).json()["questions"]
        right = {"question": question["key"], "value": True}
        assert (await client.post("/letters/runs/l1/answers", json=right)).json()["status"] == "paused"
        assert (await client.post("/letters/runs/l1/resume")).status_code == 202
        assert (await client.get("/letters/runs/l1?wait=30")).json()["output"] == "done"


async def test_what_failed_says_where_and_nothing_secret(client: httpx2.AsyncClient) -> None:
    failed = (await client.put("/letters/runs/l1?wait=30", json={"text": "broken"})).json()
    assert (failed["status"], failed["step"], failed["output"]) == ("failed", "write", None)
    async with client.stream("GET", "/letters/runs/l1/events") as events:
        told = "".join([text async for text in events.aiter_text()])
    assert "secret" not in told + json.dumps(failed)
    assert '"kind":"step_failed"' in told


async def test_runs_are_listed_by_pages(client: httpx2.AsyncClient) -> None:
    for number in range(5):
        await client.put(f"/letters/runs/l{number}?wait=30", json={"text": "hello"})
    seen: list[str] = []
    after: str | None = None
    while True:
        query: dict[str, Any] = {"limit": 2, "ascending": True} | ({} if after is None else {"after": after})
        page = (await client.get("/letters/runs", params=query)).json()
        seen += [run["id"] for run in page["runs"]]
        if (after := page["next"]) is None:
            break
    assert seen == [f"l{number}" for number in range(5)]
    assert {run["cost_complete"] for run in (await client.get("/letters/runs")).json()["runs"]} == {True}
    assert (await client.get("/letters/runs?status=failed")).json()["runs"] == []
    assert len((await client.get("/letters/runs?search=L3")).json()["runs"]) == 1
    for never in ({"started_since": "2999-01-01T00:00:00Z"}, {"started_until": "1999-01-01T00:00:00Z"}):
        assert (await client.get("/letters/runs", params=never)).json()["runs"] == []
    problem(await client.get("/letters/runs?status=lost"), 422, "invalid-input")
    problem(await client.get("/letters/runs?after=nonsense"), 422, "invalid-input")


@pytest.mark.parametrize(("first", "second"), [(1, True), ([0], [False]), (1, 1.5)])
async def test_an_id_with_other_inputs_is_refused(tmp_path: Path, first: Any, second: Any) -> None:
    @step
    async def echo(ctx: StepContext) -> Any:
        return ctx.get_input("value")

    config = PipelineConfig(store=SQLiteRunStore(tmp_path / "runs.db"))
    async with serving(fastapi_app(RunsHost(Pipeline("echo", {"echo": echo}, config=config)))) as client:
        for _ in range(2):
            run = await client.put("/letters/runs/l1?wait=30", json={"value": first, "again": 1.0})
            assert run.json()["output"] == first
        told = await client.put("/letters/runs/l1", json={"value": second, "again": 1.0})
        problem(told, 409, "other-inputs")


async def test_an_output_that_json_has_not_is_null(build: Build, tmp_path: Path) -> None:
    @step
    async def mean(ctx: StepContext) -> list[float]:
        return [1.5, float("nan"), float("inf")]

    config = PipelineConfig(store=SQLiteRunStore(tmp_path / "runs.db"))
    async with serving(build(RunsHost(Pipeline("mean", {"mean": mean}, config=config)))) as client:
        assert (await client.put("/letters/runs/l1?wait=30", json={})).json()["output"] == [1.5, None, None]


async def test_an_answer_reaches_no_run_but_its_own(client: httpx2.AsyncClient, host: RunsHost[None]) -> None:
    @step
    async def ask(ctx: StepContext) -> bool:
        return await ctx.ask("Pay it?", bool)

    await client.put("/letters/runs/l1?wait=30", json={"text": "doubtful"})
    config = PipelineConfig(store=host.store)
    (asked,) = (await Pipeline("bills", {"ask": ask}, config=config).execute(run_id="l1:b")).questions
    answer = {"question": asked.id.removeprefix("l1:"), "value": True}
    problem(await client.post("/letters/runs/l1/answers", json=answer), 404, "question-not-found")
    assert (await host.inbox.get(asked.id)).answer is None


async def test_runs_of_another_pipeline_are_not_there(
    client: httpx2.AsyncClient, host: RunsHost[None]
) -> None:
    @step
    async def other(ctx: StepContext) -> str:
        return "other"

    await Pipeline("other", {"other": other}).run(run_id="o1", store=host.store)
    problem(await client.get("/letters/runs/o1"), 404, "run-not-found")
    problem(await client.put("/letters/runs/o1", json={"text": "a"}), 409, "other-inputs")


async def test_a_process_says_whether_it_is_ready(host: RunsHost[None]) -> None:
    app = fastapi_app(host)
    transport = httpx2.ASGITransport(app=app)  # which opens no lifespan
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        assert problem(await client.get("/letters/ready"), 503, "not-ready")
        assert (await client.get("/letters/live")).status_code == 204
    async with serving(app) as client:
        assert (await client.get("/letters/ready")).status_code == 204


class Away(MemoryRunStore):
    """A store that can be away."""

    is_away = False

    async def read(self, key: str, *, after: int = 0) -> Any:
        if self.is_away:
            raise RunStoreUnavailable("the safe at 10.0.0.7", "no answer")
        return await super().read(key, after=after)


async def test_a_store_that_is_away_is_told_and_back_again(desk: Desk, tmp_path: Path) -> None:
    store = Away()
    host = RunsHost(letters(desk, tmp_path / "unused.db"), store=store, every=0.05)
    async with serving(fastapi_app(host)) as client:
        store.is_away = True
        response = await client.put("/letters/runs/l1", json={"text": "hello"})
        told = problem(response, 503, "store-unavailable")
        assert "10.0.0.7" not in json.dumps(told)
        assert int(response.headers["retry-after"]) > 0
        store.is_away = False
        again = await client.put("/letters/runs/l1?wait=30", json={"text": "hello"})
        assert again.json()["output"] == "HELLO x1"


async def test_more_runs_than_a_process_takes_are_for_later(desk: Desk, host: RunsHost[None]) -> None:
    desk.may_write.clear()
    host = RunsHost(host.door, max_concurrency=1, every=0.05)
    async with serving(fastapi_app(host)) as client:
        await client.put("/letters/runs/l1", json={"text": "hello"})
        response = await client.put("/letters/runs/l2", json={"text": "hello"})
        problem(response, 503, "too-busy")
        desk.may_write.set()


def test_a_caller_has_no_spend_limit_because_a_run_that_continues_would_escape_it() -> None:
    limit = SpendLimit(usd=1, window="day", key="ada", store=MemorySpendStore())
    with pytest.raises(ConfigurationError, match="a run that continues would escape it"):
        Caller(budget=[Budget(usd=1), limit])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("window", "key", "status"), [("day", "tenant", 429), ("total", "tenant", 402), ("day", "house", 429)]
)
async def test_a_run_that_the_limit_of_its_caller_cannot_pay_for_does_not_begin(
    model_server: ModelServer, tmp_path: Path, window: Literal["day", "total"], key: str, status: int
) -> None:
    agent = FastroAgent(model_server.model("openai:gpt-5-mini"), model_settings={"max_tokens": 1000})
    ask = agent.as_step(lambda ctx: ctx.get_input("text", str))
    limit = SpendLimit(usd="0.0001", window=window, key=key, store=MemorySpendStore())
    config = PipelineConfig(store=SQLiteRunStore(tmp_path / "runs.db"), budget=limit)
    pipeline = Pipeline("ask", {"ask": ask}, config=config)
    app = FastAPI()
    host = RunsHost(pipeline, reserve="quote")
    app.include_router(runs_router(host, caller=lambda: Caller(tenant="ada")))
    async with serving(app) as client:
        response = await client.put("/runs/r1", json={"text": "hello"})
        told = problem(response, status, "limit-reached")
        of_all = (None, None)  # what other tenants have spent of a limit is not for a tenant
        expected = of_all if key == "house" else ("0.0001", "0")
        assert (told.get("limit_usd"), told.get("spent_usd")) == expected
        assert Decimal(told["requested_usd"]) > Decimal("0.0001")
        assert ("retry-after" in response.headers) == ("resets_at" in told) == (window == "day")
        problem(await client.get("/runs/r1"), 404, "run-not-found")
    assert model_server.ledger.entries == ()


async def test_a_budget_that_cannot_pay_is_a_problem_that_names_the_amounts(
    model_server: ModelServer,
) -> None:
    agent = FastroAgent(model_server.model("openai:gpt-5-mini"), max_tokens=1000)
    with pytest.raises(CostBudgetExceeded) as stopped:
        await agent.run("hello", budget=Budget(microcents=100))
    told = problem_of(stopped.value)
    assert told is not None
    assert (told.status, told.code) == (402, "budget")
    assert (told.more["limit_usd"], told.more["spent_usd"]) == ("0.0001", "0")
    assert Decimal(str(told.more["requested_usd"])) > Decimal("0.0001")


async def test_a_caller_without_the_tenant_by_which_a_limit_counts_is_told_so(tmp_path: Path) -> None:
    @step
    async def write(ctx: StepContext[Any]) -> str:
        return "done"

    limit = SpendLimit(usd=1, window="day", key="tenant", store=MemorySpendStore())
    config = PipelineConfig(store=SQLiteRunStore(tmp_path / "runs.db"), budget=limit)
    app = FastAPI()
    app.include_router(runs_router(RunsHost(Pipeline("write", {"write": write}, config=config))))
    async with serving(app) as client:
        told = problem(await client.put("/runs/r1", json={}), 403, "tenant-needed")
        assert told["detail"] == "a spend limit of this service counts by tenant, and you have none"


async def test_an_id_that_could_be_that_of_a_tenant_is_refused(client: httpx2.AsyncClient) -> None:
    told = problem(await client.put("/letters/runs/ada.l1", json={"text": "hello"}), 422, "invalid-input")
    assert told["errors"] == [{"pointer": "/run_id", "detail": "an id must have no dot"}]


async def test_a_run_that_has_finished_cannot_be_resumed_and_the_answer_says_what_can(
    client: httpx2.AsyncClient,
) -> None:
    await client.put("/letters/runs/l1?wait=30", json={"text": "hello"})
    told = problem(await client.post("/letters/runs/l1/resume"), 409, "run-status")
    assert told["detail"] == "the run is finished; this needs a run that can continue"


async def test_what_is_sent_fits_the_schema(client: httpx2.AsyncClient) -> None:
    api_schema()["$defs"].clear()  # a caller's copy
    schema = api_schema()
    jsonschema.Draft202012Validator.check_schema(schema)

    def check(name: str, value: Any) -> None:
        jsonschema.Draft202012Validator({**schema, "$ref": f"#/$defs/{name}"}).validate(value)

    asked = (await client.put("/letters/runs/l1?wait=30", json={"text": "doubtful"})).json()
    check("RunState", asked)
    check("QuestionPage", (await client.get("/letters/questions")).json())
    answer = {"question": asked["questions"][0]["key"], "value": True}
    check("RunState", (await client.post("/letters/runs/l1/answers", json=answer)).json())
    check("RunState", (await client.get("/letters/runs/l1?wait=30")).json())
    check("Report", (await client.get("/letters/runs/l1/report")).json())
    check("RunPage", (await client.get("/letters/runs")).json())
    check("ProblemDetails", (await client.get("/letters/runs/l9")).json())
    async with client.stream("GET", "/letters/runs/l1/events") as events:
        lines = [line async for line in events.aiter_lines()]
    facts = [json.loads(line[6:]) for line in lines if line.startswith("data: ")][:-1]
    assert {"run_started", "question_asked", "answer_given", "run_finished"} <= {
        fact["kind"] for fact in facts
    }
    for fact in facts:
        check("Fact", fact)
    served = await client.get("/letters/schema.json")
    assert served.json() == json.loads(json.dumps(schema))


async def test_routes_are_in_the_openapi_of_the_application(host: RunsHost[None]) -> None:
    schema = fastapi_app(host).openapi()
    validate(schema)
    body = schema["paths"]["/letters/runs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["$ref"].endswith("/Letter")
    assert "/letters/runs/{run_id}/events" in schema["paths"]


async def test_routes_without_their_lifespan_say_so(host: RunsHost[None]) -> None:
    app = FastAPI()
    app.mount("/inner", fastapi_app(host))  # the lifespan of a mounted application never runs
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=True)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        with pytest.raises(ValueError, match="lifespan"):
            await client.put("/inner/letters/runs/l1", json={"text": "hello"})


def test_a_caller_with_an_unknown_action_is_refused() -> None:
    with pytest.raises(ValueError, match="actions='delete': expected some of answer, cancel"):
        Caller(actions=["delete"])  # type: ignore[list-item]


@pytest.mark.parametrize("options", [{"tenant": ""}, {"tenant": "a\nb"}, {"tags": "one"}, {"tags": [""]}])
def test_a_caller_whose_runs_could_not_be_labelled_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="expected printable text|expected several tags"):
        Caller(**options)


def test_a_router_needs_a_store() -> None:
    @step
    async def alone(ctx: StepContext) -> str:
        return "alone"

    with pytest.raises(ValueError, match="store needs|store=None"):
        runs_router(Pipeline("alone", {"alone": alone}))


def test_routes_need_a_host_whose_lifespan_the_application_can_open(host: RunsHost[None]) -> None:
    with pytest.raises(ConfigurationError, match="runs=.*: expected a RunsHost, whose lifespan"):
        runs_routes(host.door)  # type: ignore[arg-type]


async def test_a_misspelt_option_is_told(client: httpx2.AsyncClient) -> None:
    told = problem(await client.post("/letters/runs?wiat=30", json={"text": "a"}), 422, "invalid-input")
    assert told["errors"] == [{"pointer": "/query/wiat", "detail": "did you mean wait?"}]
    problem(await client.get("/letters/runs?serch=a"), 422, "invalid-input")
    assert (await client.get("/letters/runs?of_the_application=1")).status_code == 200


async def test_the_report_of_a_run_is_that_of_its_trace(model_server: ModelServer, tmp_path: Path) -> None:
    ask = FastroAgent(model_server.model("openai:gpt-5-mini"), name="writer").as_step(lambda ctx: "hello")
    config = PipelineConfig(store=SQLiteRunStore(tmp_path / "runs.db"))
    host = RunsHost(Pipeline("ask", {"ask": ask}, config=config))
    app = FastAPI()
    app.include_router(runs_router(host))
    async with serving(app) as client:
        await client.put("/runs/r1?wait=30", json={})
        report = (await client.get("/runs/r1/report")).json()
    assert report == json.loads((await host.history.trace("r1")).report().to_json())
    assert [row["name"] for row in report["by_agent"]] == ["writer"]
    assert report["total"]["cost_usd"] == report["by_model"][0]["cost_usd"] != "0"
