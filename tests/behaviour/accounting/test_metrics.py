"""OpenTelemetry metrics: what is recorded of requests and refusals, and nothing where nobody listens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from pydantic_ai.exceptions import ModelHTTPError
from support.agents import paid_agent

from fastroai import (
    Budget,
    CostBudgetExceeded,
    FastroAgent,
    Pipeline,
    SpendLimit,
    StepContext,
    budget_scope,
    step,
)
from fastroai.errors import SpendLimitExceeded
from fastroai.store import MemorySpendStore
from fastroai.testing import Fault, ModelServer, Reply, Usage
from fastroai.tracing import OpenTelemetryTracer
from fastroai.tracing import metrics as emitted

DASHBOARD = Path(__file__).parents[3] / "examples" / "grafana" / "dashboard.json"


class Recorded:
    """A meter provider that is global, and what was recorded with it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader])
        monkeypatch.setattr(metrics._internal, "_METER_PROVIDER", self.provider)  # it can be set once only

    def points(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        """By metric: the attributes of each series, and its sum, or count and sum."""
        found: dict[str, list[tuple[dict[str, Any], Any]]] = {}
        data = self.reader.get_metrics_data()
        for resource in [] if data is None else data.resource_metrics:
            for scope in resource.scope_metrics:
                assert scope.scope.name == "fastroai"
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        value = (point.count, point.sum) if hasattr(point, "count") else point.value
                        found.setdefault(metric.name, []).append((dict(point.attributes or {}), value))
        return found


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    recorded = Recorded(monkeypatch)
    yield recorded
    recorded.provider.shutdown()


async def test_tokens_time_cost_and_number_of_requests_have_the_names_of_the_conventions(
    recorded: Recorded, server: ModelServer
) -> None:
    server.rule(None, Reply("ok", usage=Usage(1_000, 100)))
    agent = FastroAgent(server.model("openai:gpt-5-mini"), name="writer")
    await agent.run("one", tenant="acme")
    await agent.run("two", tenant="acme")
    points = recorded.points()
    what = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5-mini",
    }
    answered = what | {"gen_ai.response.model": "gpt-5-mini"}
    assert points["gen_ai.client.token.usage"] == [
        (answered | {"gen_ai.token.type": "input"}, (2, 2_000)),
        (answered | {"gen_ai.token.type": "output"}, (2, 200)),
    ]
    [(attributes, (count, seconds))] = points["gen_ai.client.operation.duration"]
    assert (attributes, count) == (answered, 2)
    assert 0 < seconds < 60
    whose = what | {"gen_ai.agent.name": "writer", "fastroai.tenant": "acme"}
    [(attributes, usd)] = points["fastroai.cost"]
    assert attributes == whose
    assert usd == pytest.approx(0.0009)
    assert points["fastroai.requests"] == [(whose | {"fastroai.request.outcome": "settled"}, 2)]
    [(attributes, (count, _))] = points["fastroai.request.wait"]
    assert (attributes, count) == (answered, 2)


async def test_a_request_that_failed_has_no_cost_and_an_error(
    recorded: Recorded, server: ModelServer
) -> None:
    server.rule(None, Reply(fault=Fault.status(429)))
    with pytest.raises(ModelHTTPError):
        await FastroAgent(server.model("openai:gpt-5-mini"), request_retries=0).run("one")
    points = recorded.points()
    assert [each["error.type"] for each, _ in points["gen_ai.client.operation.duration"]] == ["released"]
    assert [each["fastroai.request.outcome"] for each, _ in points["fastroai.requests"]] == ["released"]
    assert points.keys() & {"fastroai.cost", "gen_ai.client.token.usage"} == set()


async def test_other_spending_is_a_cost_and_no_request(recorded: Recorded) -> None:
    @step
    async def look_up(ctx: StepContext) -> None:
        ctx.record_usage(model="search", cost_usd="0.25")
        async with ctx.spend("0.5", model="gpu") as gpu:
            gpu.settle()

    await Pipeline("desk", {"look_up": look_up}).execute(tenant="acme")
    points = recorded.points()
    costs = {
        each["gen_ai.request.model"]: (each["fastroai.tenant"], usd) for each, usd in points["fastroai.cost"]
    }
    assert costs == {"search": ("acme", 0.25), "gpu": ("acme", 0.5)}
    assert [each["gen_ai.request.model"] for each, _ in points["fastroai.requests"]] == ["search"]
    assert "gen_ai.client.operation.duration" not in points


async def test_stops_by_budgets_and_by_spend_limits_are_told_apart(recorded: Recorded) -> None:
    agent = paid_agent()
    with pytest.raises(CostBudgetExceeded):
        async with budget_scope(Budget(microcents=50)):
            await agent.run("one")
    with pytest.raises(SpendLimitExceeded):
        await paid_agent(budget=SpendLimit(microcents=50, store=MemorySpendStore())).run("one")
    assert recorded.points()["fastroai.budget.refusals"] == [
        ({"fastroai.budget.kind": "budget", "error.type": "CostBudgetExceeded"}, 1),
        ({"fastroai.budget.kind": "spend_limit", "error.type": "SpendLimitExceeded"}, 1),
    ]


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_that_a_budget_cut_off_is_a_stop(
    recorded: Recorded, server: ModelServer, streamed: bool
) -> None:
    server.rule(None, Reply("word " * 4_000))
    agent = FastroAgent(server.model("openai:gpt-5-mini"), max_tokens=2_000)
    with pytest.raises(CostBudgetExceeded) as refused:
        await agent.run("one", cost_budget=1)
    assert refused.value.requested_microcents is not None
    enough_for_a_part = refused.value.requested_microcents * 3 // 4
    with pytest.raises(CostBudgetExceeded):
        if streamed:
            [_ async for _ in agent.run_stream("one", cost_budget=enough_for_a_part)]
        else:
            await agent.run("one", cost_budget=enough_for_a_part)
    assert recorded.points()["fastroai.budget.refusals"] == [
        ({"fastroai.budget.kind": "budget", "error.type": "CostBudgetExceeded"}, 2)
    ]


@pytest.mark.parametrize("provider", [None, NoOpMeterProvider()])
async def test_nothing_is_recorded_where_no_provider_is_set(
    provider: Any, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics._internal, "_METER_PROVIDER", provider)
    monkeypatch.setattr(emitted, "_record_sizes", lambda *_: pytest.fail("it was made ready for nobody"))
    await paid_agent().run("one")
    assert recorded.points() == {}


async def test_requests_are_spans_of_the_kind_client_and_all_others_are_internal() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    @step
    async def reply(ctx: StepContext) -> str:
        return (await ctx.run(paid_agent(name="writer"), "hello")).output

    await Pipeline("desk", {"reply": reply}).execute(tracer=OpenTelemetryTracer(provider))
    kinds = {span.name: span.kind for span in exporter.get_finished_spans()}
    assert kinds.pop("chat paid") is SpanKind.CLIENT
    assert set(kinds.values()) == {SpanKind.INTERNAL}
    assert len(kinds) == 3


# --- the dashboard ---


def prometheus_name(name: str, unit: str) -> str:
    """The name under which OpenTelemetry's exporters for Prometheus give a metric, without its suffix."""
    named = {"s": "_seconds", "{USD}": "", "{token}": "", "{request}": "", "{refusal}": ""}
    return name.replace(".", "_") + named[unit]


async def test_the_dashboard_asks_for_metrics_and_labels_that_are_emitted(
    recorded: Recorded, server: ModelServer
) -> None:
    server.rule(None, Reply("ok", usage=Usage(1_000, 100)))
    await FastroAgent(server.model("openai:gpt-5-mini"), name="writer").run("one", tenant="acme")
    with pytest.raises(CostBudgetExceeded):
        await paid_agent(cost_budget=50).run("one")
    series: dict[str, set[str]] = {}
    data = recorded.reader.get_metrics_data()
    assert data is not None
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        points = list(metric.data.data_points)
        labels = {label.replace(".", "_") for point in points for label in point.attributes or {}}
        is_histogram = hasattr(points[0], "count")
        for suffix in ("_bucket", "_sum", "_count") if is_histogram else ("_total",):
            series[prometheus_name(metric.name, metric.unit or "") + suffix] = labels | {"le"}

    dashboard = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [each["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    asked: set[str] = set()
    for query in queries:
        names = set(re.findall(r"\b(?:gen_ai|fastroai)_\w+?_(?:bucket|sum|count|total)\b", query))
        assert names, query
        assert names <= series.keys(), query
        asked |= names
        labels = set(re.findall(r"\b(?:gen_ai|fastroai|error|le)\w*\b", query)) - names
        assert labels <= set().union(*(series[name] for name in names)), query
    families = {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in series}
    assert {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in asked} == families
