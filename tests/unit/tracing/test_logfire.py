import itertools
import sys
from collections.abc import Iterator
from typing import Any

import logfire
import pytest
from logfire.testing import TestExporter
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import StatusCode

from fastroai.errors import MissingExtraError
from fastroai.tracing import LogfireTracer


class Recorded:
    """A tracer on a real Logfire instance of its own, which sends nothing, and what it exported."""

    def __init__(self) -> None:
        self.exporter = TestExporter()
        self.instance = logfire.configure(
            local=True,
            send_to_logfire=False,
            console=False,
            metrics=False,
            additional_span_processors=[SimpleSpanProcessor(self.exporter)],
        )
        self.tracer = LogfireTracer(self.instance)

    def span(self, name: str) -> dict[str, Any]:
        [span] = [span for span in self.exporter.exported_spans_as_dict() if span["name"] == name]
        return span

    def status(self, name: str) -> StatusCode:
        [span] = [
            span
            for span in self.exporter.exported_spans
            if span.name == name and (span.attributes or {}).get("logfire.span_type") == "span"
        ]
        return span.status.status_code


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    recorded = Recorded()
    yield recorded
    recorded.instance.shutdown(flush=False)


async def test_spans_nest_in_one_trace_whose_id_is_yielded(recorded: Recorded) -> None:
    tracer = recorded.tracer
    async with (
        tracer.span("pipeline p") as outermost,
        tracer.span("step s"),
        tracer.span("invoke_agent a"),
        tracer.span("chat m") as innermost,
    ):
        pass

    chain = [recorded.span(name) for name in ("pipeline p", "step s", "invoke_agent a", "chat m")]
    for around, within in itertools.pairwise(chain):
        assert within["parent"]["span_id"] == around["context"]["span_id"]
    assert outermost == innermost == f"{chain[0]['context']['trace_id']:032x}"


async def test_a_name_with_braces_is_text_and_attributes_may_have_any_name(recorded: Recorded) -> None:
    async with recorded.tracer.span("step {x}", x=1, _tags="free", **{"gen_ai.request.model": "m"}):
        pass

    attributes = recorded.span("step {x}")["attributes"]
    assert attributes["logfire.msg"] == "step {x}"
    assert (attributes["x"], attributes["_tags"], attributes["gen_ai.request.model"]) == (1, "free", "m")


async def test_an_exception_fails_every_span_it_leaves_and_is_recorded_once(recorded: Recorded) -> None:
    with pytest.raises(LookupError, match="no such city"):
        async with recorded.tracer.span("pipeline p"), recorded.tracer.span("step s"):
            raise LookupError("no such city")

    assert len(recorded.span("step s")["events"]) == 1
    assert "events" not in recorded.span("pipeline p")
    for name in ("pipeline p", "step s"):
        assert recorded.status(name) is StatusCode.ERROR
        assert recorded.span(name)["attributes"]["error.type"] == "LookupError"
        assert recorded.span(name)["attributes"]["logfire.level_num"] == 17


async def test_the_default_instance_is_used_when_none_is_given(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logfire, "DEFAULT_LOGFIRE_INSTANCE", recorded.instance)
    async with LogfireTracer().span("pipeline p"):
        pass

    assert recorded.status("pipeline p") is StatusCode.UNSET


def test_without_logfire_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "logfire", None)
    with pytest.raises(MissingExtraError, match=r"LogfireTracer needs logfire: .*logfire"):
        LogfireTracer()
