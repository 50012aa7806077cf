"""Traces, results and shapes of runs as HTML for notebooks: drawings, and a timeline whose rows open."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from fastroai.drawing import Drawing
from fastroai.drawing.pages import MOST_ROWS, escaped, page, picture
from fastroai.durations import duration
from fastroai.plain_text import plain_line
from fastroai.records import Usage
from fastroai.runtime.fact_base import Fact, FailureFacts
from fastroai.runtime.facts import CallEnded
from fastroai.store.reading.run_drawing import draw_shape
from fastroai.store.reading.step_summaries import StepSummary
from fastroai.store.reading.timeline_rows import TimelineRow
from fastroai.store.reading.timeline_scale import WIDTH, Rectangle, TimelineScale
from fastroai.store.record.call_records import call_record
from fastroai.store.record.definitions import is_flow, steps_in, word_for
from fastroai.store.record.payloads import is_sealed_definition
from fastroai.tracing.redaction import redacted, redacted_json
from fastroai.usage import format_cost

_INDENT: Final = 14
_DEEPEST: Final = 8
"""Depth of rows, in pixels for each, and the depth below which they are indented no further."""


@dataclass(frozen=True, kw_only=True)
class ShownRun:
    """What pages show of a run; it is redacted already."""

    run_id: str
    pipeline: str
    """The name of the pipeline."""
    definition: JsonValue
    status: str
    failure: FailureFacts | None
    usage: Usage
    entries: Sequence[Fact]
    """The log."""
    steps: Sequence[StepSummary]
    timeline: Sequence[TimelineRow]
    drawing: Drawing


def trace_page(run: ShownRun) -> dict[str, str]:
    """Return a trace as a notebook displays it."""
    shown = _Page(run)
    return page(f"{shown.heading()}{picture(run.drawing)}{shown.timeline()}", shown.text())


def result_page(run: ShownRun, status: str, output: object, reason: str, usage: Usage) -> dict[str, str]:
    """Return the result of a run as a notebook displays it: the output first."""
    shown = _Page(replace(run, status=status, usage=usage))
    has_stopped = reason and status not in ("finished", "complete")
    why = f'<p class="faint">{escaped(redacted(reason))}</p>' if has_stopped else ""
    said, text = "", shown.text()
    if output is not None:
        said = _value(redacted_json(to_jsonable_python(output, serialize_unknown=True)))
        text += f"\n{redacted(str(output))}"
    body = (
        f"{shown.heading()}{why}{said}{shown.timeline()}"
        f"<details><summary><span>Drawing</span></summary>{picture(run.drawing)}</details>"
    )
    return page(body, text)


def shape_page(definition: JsonValue, text: str) -> dict[str, str]:
    """Return a pipeline, graph, router, flow or workflow as a notebook displays it; `text` names it."""
    shape = "" if is_flow(definition) or not steps_in(definition) else picture(draw_shape(definition))
    return page(f"<h3>{escaped(text)}</h3>{shape}", text)


@dataclass(frozen=True)
class _Page:
    run: ShownRun

    @cached_property
    def _scale(self) -> TimelineScale:
        return TimelineScale(self.run.entries[0].at, self.run.entries[-1].at)

    @cached_property
    def _steps(self) -> Mapping[str, StepSummary]:
        return {step.place: step for step in self.run.steps}

    @cached_property
    def _calls(self) -> Mapping[str, CallEnded]:
        """The ends of the calls of functions by place, unless a codec has sealed them."""
        if is_sealed_definition(self.run.definition):
            return {}
        return {one.place: one for one in self.run.entries if isinstance(one, CallEnded)}

    @property
    def _facts(self) -> tuple[str, ...]:
        """The run in words: its status, how long it took, and what it has cost."""
        run, took = self.run, duration(self._scale.took.total_seconds())
        return run.status, took, format_cost(run.usage), _requests(run.usage)

    @property
    def _failure(self) -> str | None:
        return None if self.run.failure is None else str(self.run.failure)

    def heading(self) -> str:
        """Return the title as HTML."""
        status, *others = self._facts
        kind = word_for(self.run.definition)
        return (
            f'<h3 class="{escaped(status)}">{escaped(kind)} {escaped(self.run.pipeline, 100)}: '
            f'<span class="state">{escaped(status)}</span></h3><p class="faint">'
            f"{escaped(' · '.join(others))} · run {escaped(self.run.run_id, 100)}</p>"
            + ("" if self._failure is None else f"<p>{escaped(self._failure)}</p>")
        )

    def text(self) -> str:
        """Return the run as lines of text, for programs without HTML."""
        name = f"{word_for(self.run.definition)} {self.run.pipeline}"
        lines = [plain_line(f"{name}: {', '.join(self._facts)}")]
        if self._failure is not None:
            lines.append(plain_line(self._failure))
        for row in self.run.timeline[:MOST_ROWS]:
            told = ", ".join(filter(None, (row.status, self._took(row), _cost(row.usage))))
            lines.append(plain_line(f"{'  ' * (row.depth + 1)}{row.name}: {told}"))
        return "\n".join(lines)

    def timeline(self) -> str:
        """Return the steps and calls as HTML, with their times; each opens, and says more."""
        rows = self.run.timeline
        more = len(rows) - MOST_ROWS
        said = f'<p class="faint">and {more:,} more steps and calls</p>' if more > 0 else ""
        return f'<div class="timeline">{"".join(map(self._row, rows[:MOST_ROWS]))}</div>{said}'

    def _row(self, row: TimelineRow) -> str:
        bars = "".join(map(_rectangle, self._scale.rectangles(row)))
        indent = _INDENT * min(row.depth, _DEEPEST)
        kind = "" if row.kind == "step" else f" <small>{row.kind}</small>"
        line = "\n".join(  # words stay apart where the styles of a notebook that is not trusted are left out
            (
                f'<span style="padding-left: {indent}px">{escaped(row.name, 60)}{kind}</span>',
                f'<svg viewBox="0 0 {WIDTH:.0f} 20" preserveAspectRatio="none" aria-hidden=true>{bars}</svg>',
                f'<span class="state">{escaped(row.status)}</span>',
                f'<span class="number">{self._took(row)}</span>',
                f'<span class="number">{escaped(_cost(row.usage))}</span>',
            )
        )
        inside = "".join(self._inside(row))
        return f'<details class="{row.status.split()[0]}"><summary>{line}</summary>{inside}</details>'

    def _inside(self, row: TimelineRow) -> Iterator[str]:
        step, ended = self._steps.get(row.place), self._calls.get(row.place)
        usage = row.usage
        if row.kind == "step" and step is not None:
            if step.cause:
                began = "Skipped" if step.status == "skipped" else "Started"
                yield f"<p>{began}, because {escaped(step.cause)}.</p>"
            if step.failure is not None:
                yield f"<p>Failed: {escaped(str(step.failure))}</p>"
            if step.output is not None:
                yield _value(step.output)
        elif row.kind == "function" and ended is not None:
            call = call_record(ended)
            yield _value(dict(call.inputs))
            yield f"<p>Failed: {escaped(call.error)}</p>" if call.error is not None else _value(call.output)
        if usage.request_count:
            tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
            yield f'<p class="faint">{_requests(usage)}: {tokens}</p>'
        if len(row.bars) > 1 or row.waits:
            told = "; ".join(one.told for one in self._scale.rectangles(row))
            yield f'<p class="faint">{escaped(told)}</p>'

    def _took(self, row: TimelineRow) -> str:
        took = self._scale.took_by(row)
        return "" if took is None else duration(took.total_seconds())


def _requests(usage: Usage) -> str:
    return f"{usage.request_count:,} request{'' if usage.request_count == 1 else 's'}"


def _cost(usage: Usage) -> str:
    return format_cost(usage) if usage.request_count or usage.cost_usd else ""


def _rectangle(one: Rectangle) -> str:
    y, height = (8, 4) if one.is_wait else (3, 14)
    return (
        f'<rect class="{one.kind.split()[0]}" x="{one.x}" y="{y}" width="{one.width}" height="{height}">'
        f"<title>{escaped(one.told, 300)}</title></rect>"
    )


def _value(value: JsonValue | Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    return f"<pre>{escaped(text)}</pre>"
