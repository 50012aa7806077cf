"""Tags and tenants: they flow down from a run, a call or a scope, and are on all that is spent below."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.agents import paid_agent, streaming_agent

from fastroai import Pipeline, SpendLimit, StepContext, budget_scope, spend, step
from fastroai.errors import ConfigurationError
from fastroai.store import MemoryRunStore, MemorySpendStore, RunHistory, SQLiteRunStore
from fastroai.tracing import OpenTelemetryTracer
from fastroai.usage import SpendAccount


def labels(records: Any) -> set[tuple[tuple[str, ...], str | None]]:
    return {(record.tags, record.tenant) for record in records}


def desk(agent: Any, *, inner: Pipeline[Any, Any, Any] | None = None) -> Pipeline[Any, Any, Any]:
    @step
    async def reply(ctx: StepContext) -> str:
        ctx.record_usage(model="search", cost_usd="0.25")
        async with ctx.spend("0.5", model="gpu") as gpu:
            gpu.settle()
        if inner is not None:
            await inner.execute(tenant="globex", tags=["inside"])
        return (await ctx.run(agent, "hello")).output

    return Pipeline("desk", {"reply": reply})


async def test_all_that_a_run_spends_has_its_tags_and_its_tenant_without_a_store_too() -> None:
    result = await desk(paid_agent()).execute(tags=["paper", "eu", "paper"], tenant="acme")
    records = result.usage.records
    assert len(records) == 3
    assert labels(records) == {(("paper", "eu"), "acme")}
    report = result.usage.report()
    assert result.trace.report() == report
    assert report.by_tenant["acme"].cost_usd == report.total.cost_usd == Decimal("0.7501")
    assert list(report.by_tag) == ["paper", "eu"]
    assert {row.cost_usd for row in report.by_tag.values()} == {report.total.cost_usd}
    assert "by tenant\n  acme" in str(report)


async def test_a_run_inside_of_another_adds_its_tags_and_has_its_own_tenant() -> None:
    result = await desk(paid_agent(), inner=desk(paid_agent())).execute(tags=["outside"], tenant="acme")
    assert labels(result.usage.records) == {
        (("outside",), "acme"),
        (("outside", "inside"), "globex"),
    }
    by_tag = result.usage.report().by_tag
    assert (by_tag["outside"].cost_usd, by_tag["inside"].cost_usd) == (Decimal("1.5002"), Decimal("0.7501"))


async def test_calls_and_scopes_of_code_name_whose_spending_it_is() -> None:
    agent = paid_agent()
    async with budget_scope(tenant="acme", tags=["batch"]) as scope:
        assert labels((await agent.run("one")).records) == {(("batch",), "acme")}
        assert labels((await agent.run("two", tags=["big"], tenant="globex")).records) == {
            (("batch", "big"), "globex")
        }
        async with spend("0.1", model="gpu") as gpu:
            gpu.settle()
    assert {row.name: row.cost_usd for row in scope.report().by_tenant.values()} == {
        "acme": Decimal("0.1001"),
        "globex": Decimal("0.0001"),
    }
    assert labels((await agent.run("three")).records) == {((), None)}


async def test_a_request_that_its_scope_did_not_wait_for_counts_for_its_tenant() -> None:
    async def chunks(prompt: str) -> Any:
        yield "some"
        yield " more"

    async with budget_scope(tenant="acme") as scope:
        async for _ in streaming_agent(chunks, max_tokens=10).run_stream("tell", tags=["story"]):
            break
    assert labels(scope.records) == {(("story",), "acme")}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"tags": "paper"}, "several tags"),
        ({"tags": [""]}, "1 to 200 characters"),
        ({"tags": [1]}, "printable text"),
        ({"tenant": "a\nb"}, "printable text"),
        ({"tenant": "x" * 201}, "1 to 200 characters"),
    ],
)
async def test_names_that_are_none_are_refused_wherever_they_are_given(given: Any, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        await desk(paid_agent()).execute(**given)
    with pytest.raises(ConfigurationError, match=named):
        await paid_agent().run("hello", **given)
    with pytest.raises(ConfigurationError, match=named):
        budget_scope(**given)


async def test_a_run_that_goes_on_and_a_fork_have_the_labels_of_the_first(tmp_path: Any) -> None:
    failing = [True]

    @step
    async def reply(ctx: StepContext) -> str:
        answer = (await ctx.run(agent, "hello")).output
        if failing:
            raise ValueError("no paper")
        return (await ctx.run(agent, answer)).output

    agent = paid_agent()
    store = SQLiteRunStore(tmp_path / "runs.db")
    pipeline = Pipeline("desk", {"reply": reply})
    async with budget_scope(tags=["outside"]):
        with pytest.raises(Exception, match="no paper"):
            await pipeline.execute(run_id="r", store=store, tenant="acme")
    failing.clear()
    resumed = await pipeline.resume("r", store=store)
    forked = await pipeline.fork("r", at="reply", store=store, new_run_id="f")
    for result in (resumed, forked):
        assert labels(result.usage.records) == {(("outside",), "acme")}
    assert labels((await RunHistory(store).trace("r")).records) == {(("outside",), "acme")}
    await store.aclose()


async def test_spending_is_summed_by_the_tenant_of_each_request() -> None:
    store = MemoryRunStore()
    await desk(paid_agent(), inner=desk(paid_agent())).execute(store=store, tenant="acme", tags=["eu"])
    by_tenant = await RunHistory(store).spending(by=("tenant",))
    assert [(row.tenant, row.usage.cost_usd) for row in by_tenant] == [
        ("acme", Decimal("0.7501")),
        ("globex", Decimal("0.7501")),
    ]
    by_tag = await RunHistory(store).spending(by=("tag",))
    assert [(row.tag, row.usage.cost_usd) for row in by_tag] == [
        ("eu", Decimal("1.5002")),
        ("inside", Decimal("0.7501")),
    ]


async def test_a_spend_limit_by_tenant_counts_each_tenant_apart() -> None:
    store = MemorySpendStore()
    limit = SpendLimit(usd=1, key="tenant", store=store)
    agent = paid_agent(budget=limit)
    await agent.run("one", tenant="acme")
    await agent.run("two", tenant="acme")
    async with budget_scope(tenant="globex"):
        await agent.run("three")
    spent = {name: (await limit.status(tenant=name)).spent_usd for name in ("acme", "globex", "initech")}
    assert spent == {"acme": Decimal("0.0002"), "globex": Decimal("0.0001"), "initech": Decimal(0)}
    assert (await store.balance(SpendAccount(key="tenant:acme", window="day"))).spent_usd == spent["acme"]


async def test_a_spend_limit_by_tenant_says_what_to_do_where_there_is_no_tenant() -> None:
    limit = SpendLimit(usd=1, key="tenant", store=MemorySpendStore())
    with pytest.raises(ConfigurationError, match=r"pass tenant= to execute"):
        await paid_agent(budget=limit).run("one")
    with pytest.raises(ConfigurationError, match=r"pass tenant="):
        await limit.status()


async def test_spans_of_runs_calls_and_requests_say_whose_they_are() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = OpenTelemetryTracer(provider)
    await desk(paid_agent(name="writer")).execute(tracer=tracer, tenant="acme", tags=["eu"])
    named = {
        span.name: (span.attributes["fastroai.tenant"], span.attributes["fastroai.tags"])
        for span in exporter.get_finished_spans()
        if span.attributes is not None and "fastroai.tenant" in span.attributes
    }
    assert named == dict.fromkeys(("pipeline desk", "invoke_agent writer", "chat paid"), ("acme", ("eu",)))
