"""What the log of a run says, in the form in which a process that takes it up asks for it."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from fastroai.errors import RunCorrupt
from fastroai.runtime import Charge, RetriesUsed
from fastroai.store.entries import (
    AnyEntry,
    CallRetry,
    OnceDone,
    OnceStarted,
    RequestEnded,
    RequestPlace,
    RequestSent,
    RunEnded,
    RunOpened,
    RunResumed,
    SpendingRecorded,
    StepFailure,
    StepOutput,
    StepRetry,
    ToolEnded,
)


@dataclass(slots=True)
class Exchange:
    """A request that was sent, and what came back."""

    request: RequestPlace
    charge: Charge
    """As it ended; where it never did, unmeasured with its bounds."""
    has_ended: bool = False
    response: JsonValue = None
    claimed: bool = False
    """Whether the run has come by here again."""


class RecordedRun:
    """Read-only but for what is claimed: each response is given once."""

    def __init__(self, run_id: str, entries: Sequence[AnyEntry]) -> None:
        """Of all entries of a log, in order.

        Raises:
            RunCorrupt: it does not begin as every log does.
        """
        if not entries or not isinstance(entries[0], RunOpened):
            raise RunCorrupt(run_id, 1, "a log begins with run_opened")
        self.entries: Sequence[AnyEntry] = entries
        self.opened: RunOpened = entries[0]
        self.inputs: dict[str, JsonValue] = dict(self.opened.inputs)
        """Those it began with, and those given anew when it was resumed."""
        self.definition: JsonValue = self.opened.definition
        self.outputs: dict[str, StepOutput] = {}
        """Of the steps that have finished, by place, in the order in which they did."""
        self.conversations: dict[str, StepOutput] = {}
        """The last state of each step that has returned one, by place."""
        self.ended: RunEnded | None = None
        self._progress: dict[str, RetriesUsed] = {}
        self._calls: dict[tuple[str, str], RetriesUsed] = {}
        self._sent: dict[str, Exchange] = {}
        self._exchanges: dict[tuple[str, int, str], deque[Exchange]] = defaultdict(deque)
        self._of_call: dict[tuple[str, str, int, tuple[str, ...]], list[Exchange]] = defaultdict(list)
        self._in_tools: dict[tuple[str, str], list[Exchange]] = defaultdict(list)
        self._tools: dict[tuple[str, str], ToolEnded] = {}
        self._once: dict[tuple[str, str], OnceStarted | OnceDone] = {}
        self._spent: dict[str, list[Charge]] = defaultdict(list)
        for entry in entries:
            self._read(entry)

    def _read(self, entry: AnyEntry) -> None:
        match entry:
            case StepOutput():
                self._read_output(entry)
            case StepRetry():
                self._progress[entry.place] = RetriesUsed.from_json(entry.used)
            case StepFailure(stopped=False):
                self._progress[entry.place] = RetriesUsed(attempt=entry.attempt + 1)
            case CallRetry():
                self._calls[entry.place, entry.call] = RetriesUsed.from_json(entry.used)
            case RequestSent(request=request):
                self._sent[entry.id] = exchange = Exchange(request, Charge(entry.record))
                self._exchanges[request.place, request.attempt, request.fingerprint].append(exchange)
                self._of_call[_call_of(request)].append(exchange)
                for tool in request.tools:
                    self._in_tools[request.place, tool].append(exchange)
                self._spend(request.place, exchange.charge)
            case RequestEnded():
                self._read_end(entry)
            case SpendingRecorded():
                self._spend(entry.place, Charge(entry.record))
            case ToolEnded():
                self._tools[entry.place, entry.tool] = entry
            case OnceStarted() | OnceDone():
                self._once[entry.place, entry.name] = entry
            case RunResumed():
                self.inputs.update(entry.inputs)
                self.definition = entry.definition or self.definition
                self.ended = None
            case RunEnded():
                self.ended = entry
            case _:
                pass  # for those who read the trace

    def _read_end(self, entry: RequestEnded) -> None:
        exchange = self._sent[entry.id]
        exchange.charge.record, exchange.response, exchange.has_ended = entry.record, entry.response, True

    def _read_output(self, entry: StepOutput) -> None:
        if entry.conversation is not None:
            self.conversations[entry.place] = entry
        if entry.conversation == "incomplete":
            self._progress[entry.place] = RetriesUsed(attempt=entry.attempt + 1)
        else:
            self.outputs[entry.place] = entry
            self._progress.pop(entry.place, None)

    # --- how far it got ---

    def progress(self, place: str) -> RetriesUsed:
        """Of a step that has not finished."""
        return self._progress.get(place) or RetriesUsed()

    def call_progress(self, place: str, call: str) -> RetriesUsed:
        """Of an agent call that a step makes."""
        return self._calls.get((place, call)) or RetriesUsed()

    def once(self, place: str, name: str) -> OnceStarted | OnceDone | None:
        """What is known of a side effect."""
        return self._once.get((place, name))

    # --- what was spent ---

    def _spend(self, place: str, charge: Charge) -> None:
        """Count it in the whole run, and in each step and nested pipeline that it was made in."""
        self._spent[""].append(charge)
        around: list[str] = []
        for name in place.split("/") if place else ():
            self._spent["/".join([*around, name.partition("@")[0]])].append(charge)
            around.append(name)

    def charges(self, place: str = "") -> Sequence[Charge]:
        """What was spent in a step or a nested pipeline, at any depth; in the whole run by default."""
        return self._spent.get(place, ())

    # --- what came back ---

    def claim(self, request: RequestPlace) -> Iterator[Exchange]:
        """What is on record for a request: failed attempts and, as the last one, its response.

        In the same call, of whatever model: a fallback may have answered. Where calls have changed their
        order, which side by side they may, any with the same request to the same model.
        """
        known = self._exchanges.get((request.place, request.attempt, request.fingerprint), ())
        left = [exchange for exchange in known if not exchange.claimed]
        same_call = [exchange for exchange in left if exchange.request.call == request.call]
        same_model = (exchange for exchange in left if exchange.request.model == request.model)
        for exchange in same_call or same_model:
            exchange.claimed = True
            yield exchange
            if exchange.response is not None:
                return

    def expects_another(self, request: RequestPlace) -> bool:
        """Whether the call that makes this request has sent another one in its place."""
        of_call = self._of_call.get(_call_of(request), ())
        return any(not exchange.claimed and exchange.response is not None for exchange in of_call)

    def claim_tool(self, place: str, tool: str) -> tuple[ToolEnded, list[Exchange]] | None:
        """What a tool call has returned, and what was sent in it, if it has ended."""
        ended = self._tools.get((place, tool))
        if ended is None:
            return None
        inside = [exchange for exchange in self._in_tools.get((place, tool), ()) if not exchange.claimed]
        for exchange in inside:
            exchange.claimed = True
        return ended, inside


def _call_of(request: RequestPlace) -> tuple[str, str, int, tuple[str, ...]]:
    return request.place, request.call, request.attempt, request.tools
