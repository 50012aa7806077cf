"""The trace of a run: what happened in it, read from its log."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.places import is_in, quoted, step_name, without_attempts
from fastroai.records import CallRecord, RequestRecord
from fastroai.runtime import facts
from fastroai.runtime.fact_base import Begins, Ends, Fact, FailureFacts, RunFact
from fastroai.store.reading.explanation import explain
from fastroai.store.reading.run_quality import Quality, QualityOnRecord
from fastroai.store.reading.step_summaries import StepSummary, summarize
from fastroai.store.reading.trace_diff import Difference, TraceFacts, differences
from fastroai.store.record.attempts import Attempts, StepAttempt
from fastroai.store.record.call_records import call_record
from fastroai.store.record.conversations import AgentConversation, conversations_in
from fastroai.store.record.definitions import MachineKind, kind_of, version_of
from fastroai.store.record.entries import decode_entry, encode_entry, located
from fastroai.store.record.formats import check_format
from fastroai.store.record.memo import Memo
from fastroai.store.record.unsealing import redact_entry
from fastroai.tracing.redaction import is_redacting
from fastroai.usage.recorded import RecordedUsage

if TYPE_CHECKING:  # these are read with what few who read a trace need
    from fastroai.drawing import Drawing
    from fastroai.store.reading.run_pages import ShownRun
    from fastroai.store.reading.timeline_rows import TimelineRow
    from fastroai.usage import UsageReport

_SHOWN: Final = 60
"""Most characters of an invalid text in the error about it."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference between a replay and the run on record."""

    position: int
    """Position of the entry, from 1; one more than the last position, if the log ends too early."""
    expected: str
    """The decision of the replay."""
    got: str
    """The entry on record."""

    def __str__(self) -> str:
        return f"at entry {self.position} the replay has {self.expected}; on record is {self.got}"


class Replayable(Protocol):
    """A pipeline, graph or workflow that can replay the trace of one of its runs."""

    def replay(self, trace: RunTrace) -> Divergence | None:
        """Repeat the decisions of that run. Return the first difference, if there is one."""
        ...


@dataclass(frozen=True)
class RunTrace:
    """What happened in a run: every attempt at every step, why it was made, and how it ended.

        trace = await store.trace("invoice-42")
        print(trace.explain())
        for failure in trace.failures():
            print(failure.place, failure.failure.message)

    A trace never changes. The trace of a running run shows how far it was when the trace was read. Values in
    it are JSON. `entries` is the whole log of the run, in order, from which everything else is computed.

    Raises:
        ConfigurationError: the first entry is not a `RunStarted`.
    """

    entries: tuple[Fact, ...]
    """The log of the run, from which everything else is computed."""

    def __init__(self, entries: Iterable[Fact]) -> None:
        """Make a trace of all entries of a log, in order.

        Raises:
            ConfigurationError: the first entry is not a `RunStarted`.
        """
        object.__setattr__(self, "entries", tuple(entries))
        if not self.entries or not isinstance(self.entries[0], facts.RunStarted):
            first = type(self.entries[0]).__name__ if self.entries else None
            raise ConfigurationError(
                "entries",
                first,
                "all entries of a run, from RunStarted on, as RunHistory(store).trace(run_id)",
            )

    def __repr__(self) -> str:
        return f"<trace of run {self.run_id!r}: {len(self.entries)} entries, {self.status}>"

    # --- the run ---

    @property
    def opened(self) -> facts.RunStarted:
        """The first entry of the log: the `RunStarted` fact, with the run's inputs and definition."""
        first = self.entries[0]
        assert isinstance(first, facts.RunStarted)
        return first

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.opened.run_id

    @property
    def was_resumed(self) -> bool:
        """Whether the run was resumed at least once, after a pause, an end or the death of its process."""
        return any(isinstance(entry, facts.RunResumed) for entry in self.entries)

    @property
    def changed_calls(self) -> tuple[facts.CallChanged, ...]:
        """The calls of a resumed run whose declarations had changed since their answers were recorded.

        Each says what has changed, and whether the answer on record was kept or the model was asked again.
        They are in the order of the log.
        """
        return tuple([entry for entry in self.entries if isinstance(entry, facts.CallChanged)])

    @property
    def left_over_calls(self) -> tuple[facts.CallLeftOver, ...]:
        """The calls and nested runs on record that the resumed run did not make again. They stay charged.

        An earlier call in the same step had changed and asked its model again, so other calls can follow it.
        They are in the order of the log.
        """
        return tuple([entry for entry in self.entries if isinstance(entry, facts.CallLeftOver)])

    @property
    def pipeline(self) -> str:
        """The name of the pipeline, graph, flow or workflow. For a `map` over rows, `.map` comes after it."""
        return self.opened.pipeline

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The records of the calls of typed functions that have ended, in the order in which they ended.

        Typed functions are those of `@infer` and `@compute`. The records include calls that failed. Calls of
        agents in steps are not here.

        Raises:
            ConfigurationError: a codec encoded their records, and the trace was read without it.
        """
        return tuple(call_record(one) for one in self.entries if isinstance(one, facts.CallEnded))

    @property
    def kind(self) -> MachineKind:
        """The kind of the run: `pipeline`, `graph`, `workflow`, or `rows` for a `map` over rows.

        The run of a flow has the kind `pipeline`.
        """
        return kind_of(self.opened.definition)

    @property
    def version(self) -> str | None:
        """The version that the author gave the pipeline or graph; `None` if there is none.

        It is that of the last definition on record.
        """
        return version_of(self.definition)

    @property
    def started_at(self) -> datetime:
        """The time in UTC at which the run began.

        For a run that workers carry, it is the time at which it was put into the queue. Resuming does not
        change it.
        """
        return self.opened.at

    @cached_property
    def ended(self) -> facts.RunFinished | None:
        """The fact with which the run ended; `None` if it is still running, or if its process died."""
        for entry in reversed(self.entries):
            if isinstance(entry, facts.RunFinished):
                return entry
            if isinstance(entry, RunFact) and entry.reopens:
                return None
        return None

    @property
    def status(self) -> facts.RunStatus:
        """The status on record: `finished`, `paused`, `failed`, `cancelled`, or `running` without an end.

        It is also `running` after the death of the process, and once a run that had paused or failed is
        resumed.
        """
        return "running" if self.ended is None else self.ended.status

    @property
    def quality(self) -> Quality | None:
        """`clean`; or `degraded` if something failed or was answered in part, but the run went on.

        `None` if the status of the run is not `finished`.
        """
        if self.status != "finished":
            return None
        return QualityOnRecord(self.entries).quality(self.records)

    @property
    def failure(self) -> FailureFacts | None:
        """The type, message and class of the error that ended the run; `None` if no failure ended it."""
        return None if self.ended is None else self.ended.failure

    @property
    def inputs(self) -> dict[str, JsonValue]:
        """The inputs of the run by name, as JSON, with the values that were replaced when it was resumed."""
        return dict(self._attempts.inputs)

    @property
    def definition(self) -> JsonValue:
        """The shape of the pipeline, graph or workflow as plain data: its name, its steps and their settings.

        It is that of the start, or of the last resume that was forced although the shape had changed.
        """
        return self._attempts.definition

    @property
    def output(self) -> JsonValue:
        """The output of the run as JSON; `None` if it has none.

        For a pipeline or flow, it is the latest output of the output step, also if the run has not finished.
        For a graph that has finished, it is the output of its terminal; for a workflow that has finished,
        that of its last step. If a codec encoded the run, read the trace with it: otherwise the output is
        `None` or stays encoded.
        """
        shape = self.definition if isinstance(self.definition, dict) else {}
        if self.kind == "graph":
            ends = shape.get("terminals")
            named = [*ends] if self.status == "finished" and isinstance(ends, list) else []
        elif self.kind == "workflow":
            named = [] if self.ended is None or self.status != "finished" else [self.ended.step_id]
        else:
            named = [shape.get("output_step")]
        outputs = self.outputs
        return next((outputs[str(step)] for step in named if step in outputs), None)

    @property
    def outputs(self) -> dict[str, JsonValue]:
        """The latest output, as JSON, of each step or node of the run itself that has given one, by id.

        Steps of nested pipelines and graphs are not here. A step that asks the user for more has its question
        or state as its output.
        """
        return {one.step: one.output for one in self.steps if one.depth == 0 and _has_output(one)}

    # --- steps ---

    @cached_property
    def _attempts(self) -> Attempts:
        return Attempts(self.entries)

    @cached_property
    def attempts(self) -> tuple[StepAttempt, ...]:
        """Every attempt at every step, in the order in which they started."""
        return self._attempts.finished()

    @cached_property
    def steps(self) -> tuple[StepSummary, ...]:
        """A summary of every step: each after those that it needs, nested ones after the step around them."""
        skips = [entry for entry in self.entries if isinstance(entry, facts.StepSkipped)]
        return summarize(self.definition, self.attempts, skips)

    @cached_property
    def timeline(self) -> tuple[TimelineRow, ...]:
        """The steps, agent calls and calls of functions, with the times of their attempts and waits.

        Each row follows the row around it. Rows inside the same row are in the order of their start.
        """
        from fastroai.store.reading.timeline import timeline

        return timeline(self.entries, self.definition, self.steps, self.attempts)

    @property
    def critical_path(self) -> tuple[str, ...]:
        """The places of the steps and functions that decided how long the run took: a chain, first to last.

        Each began after the one before it had ended, and the last is the one that ended last, or is still
        running. The steps inside of a step follow it, as a chain of their own. Agent calls are left out. The
        tuple is empty if nothing has started.
        """
        return tuple(row.place for row in self.timeline if row.is_critical and row.kind != "agent")

    @cached_property
    def records(self) -> tuple[RequestRecord, ...]:
        """Every request and other spending, in order; requests that never ended are unmeasured.

        Their `use` says what followed: `retried`, for example, if there was another attempt.
        """
        begun = {entry.about for entry in self.entries if isinstance(entry, Begins)}
        # A trace can come from a file, with the end of something that never began.
        entries = [one for one in self.entries if not isinstance(one, Ends) or one.about in begun]
        return tuple(charge.record for charge in Memo(self.run_id, entries).requests.charges())

    @property
    def usage(self) -> RecordedUsage:
        """The spending of the run, in all its processes: sums of cost and tokens, and `records` of requests.

        Requests whose end is not on record count as unmeasured.
        """
        return RecordedUsage.of(self.records)

    def report(self) -> UsageReport:
        """Return the cost of the run as a report by step, agent, model and so on, to print or pass on."""
        return self.usage.report()

    def failures(self) -> tuple[StepAttempt, ...]:
        """Return the attempts that failed, at any depth, in the order of their start.

        They include failed attempts that were retried, and those of steps whose failure the run survived.
        """
        return tuple(attempt for attempt in self.attempts if attempt.failure is not None)

    def events_for(self, step: str) -> tuple[Fact, ...]:
        """Return the entries about a step, and about everything nested in it, in order.

        `step` is a place, as in `write`, `write@2` (its second attempt) or `write@1/inner/check` (a step of
        the pipeline `inner` in it); or one without attempts, which means all of them, as in
        `write/inner/check`; or the id of a step. An id that the outermost pipeline does not have is searched
        in nested ones.

        Raises:
            ConfigurationError: there is no such step.
        """
        if not isinstance(step, str):
            raise ConfigurationError("step", step, self._expected_step)
        begun = {entry.about: entry.where for entry in self.entries if isinstance(entry, Begins)}
        located = [(entry, entry.where or begun.get(entry.about, "")) for entry in self.entries]
        wanted = self._places_of(step, {place for _, place in located if place})
        return tuple(entry for entry, place in located if any(is_in(place, outer) for outer in wanted))

    def _places_of(self, step: str, places: set[str]) -> set[str]:
        known = {summary.place for summary in self.steps} | places
        for place in (step, quoted(step)):
            attempts = {one for one in known if without_attempts(one) == place}
            if attempts or any(is_in(one, place) for one in known):
                return {place, *attempts}
        nested = {place for place in known if step_name(place) == step}
        if not nested:
            names = sorted(known | {step_name(place) for place in known})
            hint = nearest_hint(step, names)
            raise ConfigurationError("step", step, f"{self._expected_step}.{hint}")
        return nested

    @property
    def _expected_step(self) -> str:
        return f"the id of a step of run {self.run_id!r}, or its path"

    # --- reading ---

    def explain(self, step: str | None = None) -> str:
        """Explain why each step started, waited, was retried or skipped, and how the run ended, line by line.

        The causes were recorded when the decisions were made. Times are seconds from the start. Texts are
        redacted if the process redacts them (`fastroai.tracing.set_redaction`). `step` is the id or place of
        a step, as in `events_for`; without it, everything is explained.

        Raises:
            ConfigurationError: there is no such step.
        """
        shown = self.redacted()
        told = None if step is None else frozenset(map(id, shown.events_for(step)))
        return explain(shown.entries, shown.attempts, told)

    def conversations(self, step: str | None = None) -> tuple[AgentConversation, ...]:
        """Return what agents and models said to each other, in one conversation for each attempt at a call.

        The calls are those of agents, in the order in which they began. A conversation has no messages if
        they are not on record, or if a codec encoded them and the trace was read without it. Texts are not
        redacted here, but in `transcript`. `step` is the id or place of a step, as in `events_for`; without
        it, they are those of the whole run.

        Raises:
            ConfigurationError: there is no such step.
        """
        return conversations_in(self.entries if step is None else self.events_for(step))

    def transcript(self, step: str | None = None) -> str:
        """Return as text what agents and models said to each other, for people; empty if no agent was called.

        Texts are redacted if the process redacts them (`fastroai.tracing.set_redaction`). `step` is the id or
        place of a step, as in `events_for`; without it, the text is that of the whole run.

        Raises:
            ConfigurationError: there is no such step.
        """
        return "\n\n".join(map(str, self.redacted().conversations(step)))

    def diff(self, other: RunTrace) -> tuple[Difference, ...]:
        """Compare the run with another one: the result is an empty tuple if they do not differ.

        Each `Difference` has the value in this run as `first`, and that in `other` as `second`. Definitions,
        inputs, the steps that ran, their attempts, failures, outputs and requests, and the ends of the runs
        are compared. Ids, times, tokens and costs are not.

        Raises:
            ConfigurationError: `other` is not a trace.
        """
        if not isinstance(other, RunTrace):
            expected = "the trace of another run; of a result, that is result.trace"
            raise ConfigurationError("other", type(other).__name__, expected)
        return differences(self._facts, other._facts)

    @property
    def _facts(self) -> TraceFacts:
        return TraceFacts(
            run_id=self.run_id,
            pipeline=self.pipeline,
            definition=self.definition,
            inputs=self.inputs,
            status=self.status,
            failure=self.failure,
            steps={without_attempts(step.place): step for step in self.steps},
            attempts=self.attempts,
        )

    def replay(self, pipeline: Replayable) -> Divergence | None:
        """Let a pipeline, graph, router, flow or workflow repeat this run's decisions, on recorded outcomes.

        No step runs, and no request is sent. Nor does the body of a flow run, so its calls are not compared.
        The result is `None` if all decisions are the same. Otherwise it is the first different one, because
        the pipeline has changed, another one has written the log, or `pipeline` has another name.

        Raises:
            ConfigurationError: `pipeline` is none of these, or not of the kind of this run. Here, flows and
                routers count as pipelines.
            RunCorrupt: the inputs on record are not what a graph accepts.
        """
        # A trace has a method `replay`, too: two traces would call each other without end.
        if isinstance(pipeline, type | RunTrace) or not callable(getattr(pipeline, "replay", None)):
            expected = f"the pipeline, graph or workflow that this is a run of, {self.pipeline!r}"
            raise ConfigurationError("pipeline", type(pipeline).__name__, expected)
        return pipeline.replay(self)

    def redacted(self) -> RunTrace:
        """Return the trace with redacted texts and values if the process redacts; otherwise the trace itself.

        Redaction is set with `fastroai.tracing.set_redaction`.
        """
        return RunTrace(map(redact_entry, self.entries)) if is_redacting() else self

    # --- as a picture and as text ---

    def drawing(self, opened: Collection[str] = ()) -> Drawing:
        """Return the drawing of the run, for `svg` or `mermaid`: its shape, and the path that the run took.

        It needs no code of the run. A flow has no shape: its calls are drawn in their order. Texts are
        redacted if the process redacts them.

        Args:
            opened: The nodes that are drawn with what is inside of them, such as `review`; or
                `review@1/inner/check`, the node `check` of the pipeline `inner` in attempt 1 at `review`: its
                place in `timeline`, without the visit at the end (`#2`). By default none; nodes that do not
                exist are ignored.
        """
        from fastroai.store.reading.run_drawing import RunDrawing

        shown = self.redacted()
        ended = self.ended
        waiting = () if ended is None or ended.status != "paused" else map(quoted, ended.resume_at)
        return RunDrawing(
            shown.definition, shown.timeline, shown.entries, frozenset(waiting), frozenset(opened)
        ).of_run()

    def to_svg(self, opened: Collection[str] = ()) -> str:
        """Return the drawing of the run as the text of an SVG image. `opened` is as in `drawing`."""
        from fastroai.drawing import svg

        return svg(self.drawing(opened))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from fastroai.store.reading.run_pages import trace_page

        return trace_page(self.for_pages())

    def for_pages(self) -> ShownRun:
        """Return the data of the run that HTML pages show: status, usage, steps, timeline, log and drawing.

        Texts and values are redacted if the process redacts them.
        """
        from fastroai.store.reading.run_pages import ShownRun

        shown = self.redacted()
        return ShownRun(
            run_id=shown.run_id,
            pipeline=shown.pipeline,
            definition=shown.definition,
            status=shown.status,
            failure=shown.failure,
            usage=shown.usage,
            entries=shown.entries,
            steps=shown.steps,
            timeline=shown.timeline,
            drawing=self.drawing(),
        )

    def to_json(self) -> str:
        """Return the trace as JSON text, `{"format": 3, "entries": [...]}`, for `from_json`.

        Texts and values are redacted if the process redacts them (`fastroai.tracing.set_redaction`): then
        they are lost in the text.
        """
        entries = b",".join(map(encode_entry, self.redacted().entries))
        return f'{{"format":{facts.FORMAT},"entries":[{entries.decode()}]}}'

    @classmethod
    def from_json(cls, text: str | bytes) -> RunTrace:
        """Return the trace that `to_json` wrote.

        Raises:
            ConfigurationError: the text is not JSON of the form that `to_json` writes, or does not begin with
                the start of a run.
            RunFromNewerVersion: a later version of FastroAI has written it.
            RunFromOlderVersion: an earlier version of FastroAI has written it.
            RunCorrupt: one of its entries cannot be read.
        """
        expected = "the text that RunTrace.to_json returned"
        if not isinstance(text, str | bytes):
            raise ConfigurationError("text", type(text).__name__, expected)
        try:
            known = from_json(text)
        except ValueError as error:
            raise ConfigurationError("text", text[:_SHOWN], f"{expected}; it is not JSON: {error}") from None
        entries = known.get("entries") if isinstance(known, dict) else None
        if not isinstance(entries, list):
            raise ConfigurationError("text", text[:_SHOWN], expected)
        first = entries[0] if entries else None
        part = first.get("part") if isinstance(first, dict) else None
        run_id = str(part.get("run_id", "?")) if isinstance(part, dict) else "?"
        if isinstance(version := known.get("format"), int):
            check_format(run_id, version)
        return cls(
            located(
                [
                    decode_entry(run_id, position, to_json(entry, inf_nan_mode="constants"))
                    for position, entry in enumerate(entries, 1)
                ]
            )
        )


def _has_output(step: StepSummary) -> bool:
    if step.status == "incomplete":  # it asks for more, which is its output, or it waits in its midst
        return step.output is not None
    return step.status in ("succeeded", "reused")
