"""Runs as HTML for notebooks: whole, escaped, bounded, and redacted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from support.agents import paid_agent

from fastroai.errors import StepExecutionError
from fastroai.functions import compute, flow, parallel
from fastroai.graphs import Edge, Graph
from fastroai.pipelines import BasePipeline, Pipeline, PipelineConfig, StepContext, step
from fastroai.records import Usage
from fastroai.store import EncryptingCodec, MemoryRunStore, RunHistory, RunTrace, trace_of
from fastroai.tracing import set_redaction
from fastroai.usage import Quote

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[31m"
KNOWN = {
    "div",
    "style",
    "h3",
    "p",
    "span",
    "pre",
    "details",
    "summary",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
}
KNOWN |= {"small", "b", "br", "svg", "title", "g", "rect", "path", "circle", "text"}


class Page(HTMLParser):
    """The elements and the text of a page. Fails if one is not of ours, or is not closed."""

    def __init__(self, bundle: dict[str, str]) -> None:
        super().__init__()
        self.open = list[str]()
        self.rows = 0
        self.said = ""
        self.size = len(bundle["text/html"])
        self.feed(bundle["text/html"])
        self.close()
        assert self.open == []
        assert not any(char in self.said for char in "\u202e\x1b")
        assert "\x1b" not in bundle["text/plain"]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in KNOWN, tag
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)
        self.rows += tag == "details"
        if tag != "br":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in KNOWN, tag

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.said += data


agent = paid_agent(100)


@step
async def evil(ctx: StepContext) -> dict[str, str]:
    return {"said": (await ctx.run(agent, EVIL)).output}


@step
async def fail(ctx: StepContext) -> str:
    raise ValueError(EVIL)


@compute
def shout(text: str) -> str:
    return text.upper()


@flow
async def shouting(text: str) -> str:
    one, _ = await parallel(shout(text), shout("b"))
    return one


class Router(BasePipeline[None, dict[str, Any], Any]):
    async def route(self, inputs: dict[str, Any], deps: None) -> str:
        return "one"


async def shown_values() -> Iterator[tuple[str, Any]]:
    pipeline = Pipeline(EVIL, {EVIL: evil})
    result = await pipeline.run()
    router = Router(EVIL)
    router.register_pipeline("one", pipeline)
    graph = Graph(EVIL, nodes={EVIL: evil, "end": evil}, edges=[Edge(EVIL, "end")])
    store = MemoryRunStore()
    await shouting.run(EVIL, run_id="f", store=store)
    failed = Pipeline(EVIL, {"a": fail, "b": evil}, {"b": ["a"]})
    with pytest.raises(StepExecutionError) as raised:
        await failed.run()
    reason = Quote.unknown(EVIL, name=EVIL)
    return iter(
        {
            "pipeline": pipeline,
            "result": result,
            "trace": result.trace,
            "usage": result.usage,
            "usage of a trace": result.trace.usage,
            "router": router,
            "result of a router": await router.run({}),
            "graph": graph,
            "result of a graph": await graph.run(),
            "flow": shouting,
            "trace of a flow": await RunHistory(store).trace("f"),
            "trace of a failure": trace_of(raised.value),
            "quote": Quote.total(EVIL, {EVIL: reason}),
        }.items()
    )


async def test_everything_that_notebooks_show_is_escaped_whole_and_has_text() -> None:
    for name, value in await shown_values():
        bundle = value._repr_mimebundle_()
        page = Page(bundle)
        assert bundle["text/plain"], name
        if name not in ("flow",):
            assert "alert(1)" in page.said, name


async def test_a_result_and_a_trace_say_what_happened() -> None:
    values = dict(await shown_values())
    result = Page(values["result"]._repr_mimebundle_())
    assert ": finished" in result.said
    assert "1 request" in result.said
    assert '"said": "answer to <script>' in result.said
    assert "$0.0001" in result.said
    failed = values["trace of a failure"]._repr_mimebundle_()
    assert "StepExecutionError: step 'a' failed: ValueError: <script>" in Page(failed).said
    assert "Skipped, because 'a' failed" in Page(failed).said
    assert "\n  b: skipped" in failed["text/plain"]
    calls = Page(values["trace of a flow"]._repr_mimebundle_())
    assert calls.said.count("function") == 2
    assert EVIL.partition("\u202e")[0].upper() in calls.said


async def test_a_trace_of_any_size_is_a_bounded_page() -> None:
    @step
    async def large(ctx: StepContext) -> str:
        return "x" * 10_000

    steps = {f"step {number} {EVIL * 20}": large for number in range(600)}
    result = await Pipeline("large", steps, output_step=next(iter(steps))).run()
    for value in (result, result.trace):
        bundle = value._repr_mimebundle_()
        page = Page(bundle)
        assert page.size < 1_000_000
        assert "and 400 more steps and calls" in page.said
        assert "600 nodes are more than one picture shows well" in page.said
        assert len(bundle["text/plain"]) < 50_000


async def test_a_page_is_redacted_as_other_texts_for_people_are() -> None:
    result = await Pipeline("desk", {"evil": evil}).run()
    set_redaction(["alert"])
    try:
        for value in (result, result.trace):
            bundle = value._repr_mimebundle_()
            assert "alert" not in bundle["text/html"] + bundle["text/plain"]
            assert "[redacted](1)" in bundle["text/html"]
    finally:
        set_redaction(None)


async def test_a_sealed_run_that_is_read_without_its_codec_has_a_page_without_its_values() -> None:
    store = MemoryRunStore()
    config = PipelineConfig(store=store, codec=EncryptingCodec({"old": EncryptingCodec.new_key()}))
    await Pipeline("desk", {"evil": evil}, config=config).run(run_id="r")
    page = Page((await RunHistory(store).trace("r"))._repr_mimebundle_())
    assert ": finished" in page.said
    assert "answer to" not in page.said


async def test_the_usage_of_a_trace_has_its_report_and_equals_that_of_the_run() -> None:
    result = await Pipeline("desk", {"evil": evil}).run()
    trace = RunTrace.from_json(result.trace.to_json())
    assert trace.usage == Usage.of(list(trace.records))
    assert Usage.of(list(trace.records)) == trace.usage != Usage()
    assert (trace.usage.cost_usd, trace.usage.request_count) == (result.usage.cost_usd, 1)
    assert (trace.usage == 5) is False
    assert trace.usage.records == trace.records
    assert trace.usage.report().to_json() == trace.report().to_json()
    assert json.loads(trace.usage.report().to_json())["total"]["cost_usd"] == "0.0001"
