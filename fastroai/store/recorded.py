"""The record of a run for a process that takes it up, read from the log."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from heapq import merge
from itertools import takewhile
from operator import itemgetter
from typing import Final, TypeAlias

from pydantic import JsonValue

from fastroai.errors import ConfigurationError, FlowDiverged, RunCorrupt
from fastroai.places import attempt_around, is_in, step_name
from fastroai.records import RequestUse
from fastroai.runtime import NO_RETRIES_USED, Charge, RetriesUsed, facts
from fastroai.runtime.in_flight import AgentCharges
from fastroai.store.definitions import definition_at, kind_of, steps_in

PartEntry: TypeAlias = facts.PlanFact

_TAKEN_OVER: Final = (
    facts.StepFinished,
    facts.StepRetried,
    facts.OnceStarted,
    facts.OnceDone,
    facts.OnceFailed,
)
"""Facts that the fork of a pipeline takes over. The first fact of its own is of another type."""


_DIVERGED: Final = f"{FlowDiverged.__module__}.{FlowDiverged.__qualname__}"


@dataclass(slots=True)
class Exchange:
    """A request that was sent, and the response to it."""

    request: facts.RequestPlace
    charge: Charge
    """The charge of the request: final if the end is on record; otherwise unmeasured, with bounds."""
    has_ended: bool = False
    response: JsonValue = None
    taken: bool = False
    """Whether the resumed run has made this request again."""


class RecordedRun:
    """The record of a run. It gives each response and each result of a tool only once."""

    def __init__(self, run_id: str, entries: Sequence[facts.Fact]) -> None:
        """Read all entries of a log, in order.

        Raises:
            RunCorrupt: the first entry is not `run_started`.
        """
        if not entries or not isinstance(entries[0], facts.RunStarted):
            raise RunCorrupt(run_id, 1, "a log begins with run_started, and this one does not")
        self.entries: list[facts.Fact] = []
        self.opened: facts.RunStarted = entries[0]
        self.inputs: dict[str, JsonValue] = dict(self.opened.inputs)
        """The inputs of the run, with those that were given anew when it was resumed."""
        self.definition: JsonValue = self.opened.definition
        self.budgets: list[JsonValue] | None = self.opened.budgets
        """The budgets that the last call which gave some has given the run, as plain data."""
        self.outputs: dict[str, facts.StepFinished] = {}
        """The last outputs of finished steps, by place, in the order in which the steps finished."""
        self.conversations: dict[str, facts.StepFinished] = {}
        """The last conversation state of each step that has returned one, by place."""
        self.asked: dict[str, facts.QuestionAsked] = {}
        """The questions, by id, as they were first asked."""
        self.answers: dict[str, facts.AnswerGiven] = {}
        """The last answer to each question that has one, by id."""
        self.waiting: dict[str, facts.WaitStarted] = {}
        """Waits of steps for messages and times, by id, as they first began. This process adds to them."""
        self.waited: dict[str, facts.WaitEnded] = {}
        """The waits that are over, by id. This process adds to them."""
        self.calls: dict[str, facts.CallEnded] = {}
        """The last end of each call of a typed function that has ended, by place."""
        self.calls_in: dict[str, dict[str, facts.CallEnded]] = defaultdict(dict)
        """The same ends by the attempt around the call, in the order in which they came."""
        self._charges_told: dict[str, int] = {}
        """How many charges of each such call were on record before its last end."""
        self.runs_in: dict[str, dict[str, facts.StepStarted]] = defaultdict(dict)
        """The nested runs in which a step has started, by the attempt around them, then by place."""
        self.unsure: set[str] = set()
        """Calls and nested runs that may not come again: a call before them is tried again, or
        the code that made them had diverged from the record."""
        self._since_resumed: list[str] = []
        """The calls and nested runs that are on record for the first time since the last resumption."""
        self._has_diverged = False
        """Whether the code has diverged since the last resumption. Tasks that it has left behind may go on.
        """
        self._call_attempts: dict[str, int] = {}
        self._failed_calls: list[facts.CallEnded] = []
        """Calls that have failed since the last call that returned."""
        self._runs_since: list[str] = []
        """The nested runs in which a step has started since the first of these calls failed."""
        self.values: dict[str, object] = {}
        """Outputs that were converted already, by place."""
        self.ended: facts.RunFinished | None = None
        self.taken_over = 0
        """The position of the last fact that the fork of a pipeline took over; 0 for other runs."""
        if self.opened.forked_from is not None and kind_of(self.opened.definition) == "pipeline":
            after = takewhile(lambda entry: isinstance(entry, _TAKEN_OVER), entries[1:])
            self.taken_over = 1 + sum(1 for _ in after)
        self.resumptions: list[tuple[int, facts.RunResumed]] = []
        """Where processes took the run up, with the positions in the log. A fork of a pipeline is taken up
        after what it took over."""
        if self.taken_over:
            self.resumptions.append((self.taken_over, facts.RunResumed(part=self.opened.part)))
        self._progress: dict[str, RetriesUsed] = {}
        self._calls: dict[tuple[str, str], RetriesUsed] = {}
        self._sent: dict[str, Exchange] = {}
        self._exchanges: dict[tuple[str, int, str], deque[Exchange]] = defaultdict(deque)
        self._of_call: dict[_Call, list[Exchange]] = defaultdict(list)
        self._in_agent_call: dict[tuple[str, str], list[Exchange]] = defaultdict(list)
        self._followed: dict[_Call, _Call | None] = {}
        """For each call that is made again, the recorded call whose exchanges it takes, if any."""
        self._in_tools: dict[str, list[Exchange]] = defaultdict(list)
        self._tools: dict[tuple[str, str], deque[facts.ToolEnded]] = defaultdict(deque)
        self._once: dict[tuple[str, str], facts.OnceStarted | facts.OnceDone | facts.OnceFailed] = {}
        self._reserved: dict[str, Charge] = {}
        """Spending that was reserved, by id."""
        self._spent: dict[str, list[Charge]] = defaultdict(list)
        self._agent_calls: dict[str, list[AgentCharges]] = defaultdict(list)
        self._begun: dict[_Call, AgentCharges] = {}
        """Agent calls that have sent a request."""
        self._to_come: dict[_Call, AgentCharges] = {}
        """Those that the resumed run has not made again yet."""
        self._parts: dict[str, list[tuple[int, PartEntry]]] | None = None
        self._run_id = run_id
        self.add(entries)

    def add(self, entries: Iterable[facts.Fact]) -> None:
        """Read more entries. Raises `RunCorrupt` for an entry that does not fit those before."""
        self._parts = None
        for entry in entries:
            self.entries.append(entry)
            try:
                self._read(entry)
            except (KeyError, TypeError, ConfigurationError) as error:
                reason = f"it does not fit those before: {type(error).__name__}: {error}"
                raise RunCorrupt(self._run_id, len(self.entries), reason) from error

    def _read(self, entry: facts.Fact) -> None:
        match entry:
            case facts.StepFinished():
                self._read_output(entry)
            case facts.StepRetried(unit="step"):
                self._progress[entry.place] = entry.used
                self.mark_step(entry.place, entry.attempt, "retried")
            case facts.StepRetried():
                self._calls[entry.place, entry.call] = entry.used
                self.mark_call_retried(entry.place, entry.call, entry.attempt)
            case facts.StepFailed():
                if entry.failure.error_type == _DIVERGED:
                    self._has_diverged = True
                    self.unsure.update(self._since_resumed)
                # A step that a budget stopped goes on with the same attempt, and pays for nothing again.
                if entry.budget is None and not self._goes_on(entry):
                    self._progress[entry.place] = RetriesUsed(attempt=entry.attempt + 1)
                    self.mark_step(entry.place, entry.attempt, "failed")
            case facts.RequestSent():
                self._read_sent(entry)
            case facts.RequestEnded():
                self._read_end(entry)
            case facts.SpendingRecorded():
                self._read_spending(entry)
            case facts.ToolEnded():
                self._tools[entry.place, entry.tool].append(entry)
            case facts.OnceStarted() | facts.OnceDone() | facts.OnceFailed():
                self._once[entry.place, entry.name] = entry
            case facts.RunResumed():
                self.resumptions.append((len(self.entries), entry))
                self._since_resumed.clear()
                self._has_diverged = False
                self.inputs.update(entry.inputs)
                self.definition = entry.definition or self.definition
                self.budgets = self.budgets if entry.budgets is None else entry.budgets
                self.ended = None
            case facts.RunFinished():
                self.ended = entry
                if entry.status == "failed":
                    self._ask_anew()
                    for failed in entry.agent_calls:
                        self._ask_agent_anew(failed)
            case facts.StepStarted():
                if place := entry.part.place:
                    self._comes(place, self.runs_in[attempt_around(place) or ""])
                    self.runs_in[attempt_around(place) or ""][place] = entry
                    if self._failed_calls:
                        self._runs_since.append(place)
            case facts.CallEnded():
                self._read_call(entry)
            case facts.QuestionAsked():
                self.asked.setdefault(entry.id, entry)
            case facts.AnswerGiven():
                self.answers[entry.id] = entry
            case facts.WaitStarted():
                self.waiting.setdefault(entry.wait.id, entry)
            case facts.WaitEnded():
                self.waited[entry.wait.id] = entry
            case facts.RunFact() if entry.reopens:
                self.ended = None
            case _:
                pass  # for those who read the trace

    def _read_call(self, entry: facts.CallEnded) -> None:
        inside = self.calls_in[attempt_around(entry.place) or ""]
        self._comes(entry.place, inside)
        inside.pop(entry.place, None)  # so that the order is that of the last ends
        self.calls[entry.place] = inside[entry.place] = entry
        self._charges_told[entry.place] = len(self.charges(entry.place))
        if entry.failure is None:
            self._failed_calls.clear()
            self._runs_since.clear()
        elif not entry.goes_on:
            self._failed_calls.append(entry)

    def _comes(self, place: str, known: Container[str]) -> None:
        """Note that a call or a nested run is on record, perhaps not for the first time."""
        self.unsure.discard(place)
        if place not in known:
            self._since_resumed.append(place)
            if self._has_diverged:
                self.unsure.add(place)

    def _ask_anew(self) -> None:
        """Give another attempt to each call whose failure has ended the run, because the run has failed.

        Of calls inside each other, only the innermost gets one. Code in which calls have ended goes on in its
        attempt.
        """
        for ended in self._failed_calls:
            attempt = f"{ended.place}@{ended.attempt}/"
            inner = any(other.place.startswith(attempt) for other in self._failed_calls)
            if not inner and not (ended.is_code and self.calls_in.get(attempt[:-1])):
                self._call_attempts[ended.place] = ended.attempt + 1
                self.mark_step(ended.place, ended.attempt, "failed")
        self.unsure.update(self._runs_since, (ended.place for ended in self._failed_calls))
        self._failed_calls.clear()
        self._runs_since.clear()

    def _ask_agent_anew(self, failed: facts.FailedAgentCall) -> None:
        self._calls[failed.place, failed.call] = RetriesUsed(attempt=failed.attempt + 1)
        inside = self._in_agent_call.get((failed.place, failed.call), ())
        _mark((one.charge for one in inside if one.request.attempt == failed.attempt), "failed")

    def call_attempt(self, place: str) -> int:
        """Return the number of the next attempt at a call of a typed function."""
        return self._call_attempts.get(place, 1)

    def _read_sent(self, entry: facts.RequestSent) -> None:
        request = entry.request
        of_call = self._of_call[_call_of(request)]
        before = of_call[-1] if of_call else None
        if before is not None and _is_repeated(before, entry):
            before.charge.mark("retried")
        self._sent[entry.id] = exchange = Exchange(request, Charge(entry.record))
        self._exchanges[request.place, request.attempt, request.fingerprint].append(exchange)
        of_call.append(exchange)
        for call in _calls_around(request.call):
            self._in_agent_call[request.place, call].append(exchange)
        for tool in request.tools:
            self._in_tools[tool].append(exchange)
        self._spend(request.place, exchange.charge)
        call_of = _call_of(request)
        if request.is_of_agent_call and call_of not in self._begun:
            begun = AgentCharges(entry.record.agent or "")
            self._begun[call_of] = self._to_come[call_of] = begun
            for around in _places_around(request.place):
                self._agent_calls[around].append(begun)
        if request.is_of_agent_call:
            self._begun[call_of].add((exchange.charge,))

    def _read_spending(self, entry: facts.SpendingRecorded) -> None:
        if (reserved := self._reserved.get(entry.id)) is not None:
            reserved.record = entry.record
            return
        charge = Charge(entry.record)
        self._spend(entry.place, charge)
        if entry.id:
            self._reserved[entry.id] = charge

    def _read_end(self, entry: facts.RequestEnded) -> None:
        exchange = self._sent[entry.id]
        exchange.charge.record, exchange.response, exchange.has_ended = entry.record, entry.response, True

    def _goes_on(self, entry: facts.StepFailed) -> bool:
        """Return whether a failed attempt goes on; if nothing in it is on record, another one begins."""
        attempt = f"{entry.place}@{entry.attempt}"
        has_parts = bool(self.calls_in.get(attempt) or self.runs_in.get(attempt))
        return (entry.goes_on and has_parts) or self._runs_pipeline(entry.place)

    def _read_output(self, entry: facts.StepFinished) -> None:
        if entry.conversation is not None:
            self.conversations[entry.place] = entry
        if entry.conversation != "incomplete":
            self.outputs[entry.place] = entry
            self._progress.pop(entry.place, None)
        elif not self._runs_pipeline(entry.place):
            self._progress[entry.place] = RetriesUsed(attempt=entry.attempt + 1)

    def _runs_pipeline(self, place: str) -> bool:
        """Return whether a step runs a pipeline or router, so that its last attempt can go on.

        The steps that have finished inside of that attempt are on record under it.
        """
        step = steps_in(definition_at(self.definition, place)).get(step_name(place))
        return isinstance(step, dict) and step.get("runs") is not None

    # --- pipelines and graphs ---

    def history(self, place: str) -> Iterator[tuple[int, PartEntry | facts.RunResumed]]:
        """Yield the facts of the pipeline or graph at a place, and all resumptions, with their positions.

        The place of the outermost is empty. The first call sorts the whole log, so that later ones are fast.
        """
        if self._parts is None:
            self._parts = defaultdict(list)
            for position, entry in enumerate(self.entries, 1):
                if isinstance(entry, PartEntry):
                    self._parts[entry.part.place].append((position, entry))
        return merge(self._parts.get(place, ()), self.resumptions, key=itemgetter(0))

    # --- how far it got ---

    def progress(self, place: str) -> RetriesUsed:
        """Return the retries that an unfinished step has used."""
        return self._progress.get(place, NO_RETRIES_USED)

    def call_progress(self, place: str, call: str) -> RetriesUsed:
        """Return the retries that an agent call of a step has used."""
        return self._calls.get((place, call), NO_RETRIES_USED)

    def was_retried(self, place: str, call: str) -> bool:
        """Return whether a failed attempt at an agent call, or a rejected answer of it, is on record."""
        return (place, call) in self._calls

    @property
    def seconds(self) -> float:
        """Seconds for which the run has been running, in all its processes, as far as their facts show."""
        spent, began, is_fork = timedelta(0), self.opened.at, self.opened.forked_from is not None
        last = began
        for entry in self.entries:
            if isinstance(entry, facts.AnswerGiven) or (is_fork and entry.timestamp < self.opened.timestamp):
                continue  # given while no process had the run; or of the run that it is a fork of
            if isinstance(entry, facts.RunResumed):
                spent, began = spent + max(last - began, timedelta(0)), entry.at
            last = entry.at
        return (spent + max(last - began, timedelta(0))).total_seconds()

    def position_of(self, entry: facts.Fact) -> int:
        """Return the position of an entry in the log, from 1."""
        return 1 + next(index for index, one in enumerate(self.entries) if one is entry)

    def once(self, place: str, name: str) -> facts.OnceStarted | facts.OnceDone | facts.OnceFailed | None:
        """Return the last fact about a side effect; `None` if there is none."""
        return self._once.get((place, name))

    # --- spending ---

    def _spend(self, place: str, charge: Charge) -> None:
        """Count a charge in the whole run, and in each step, attempt and nested pipeline around a place."""
        for around in _places_around(place):
            self._spent[around].append(charge)

    def charges(self, place: str = "") -> Sequence[Charge]:
        """Return the charges in a step or a nested pipeline, at any depth; by default, in the whole run."""
        return self._spent.get(place, ())

    def charges_told(self, place: str) -> int:
        """Return how many charges in a call, the first ones in `charges`, its ends on record include."""
        return self._charges_told.get(place, 0)

    def agent_calls(self, place: str = "") -> Sequence[AgentCharges]:
        """Return the agent calls in a step or nested pipeline, by default in the run, that sent a request."""
        return self._agent_calls.get(place, ())

    def count(self, taken: Sequence[Exchange]) -> tuple[list[Charge], list[AgentCharges]]:
        """Return the charges of exchanges, and the agent calls that made them."""
        calls = dict.fromkeys(_call_of(one.request) for one in taken if one.request.is_of_agent_call)
        return [one.charge for one in taken], [self._begun[call] for call in calls]

    def comes_by(self, place: str, call: str, attempt: int, tools: tuple[str, ...]) -> AgentCharges | None:
        """Return an attempt at an agent call, in some calls of tools, if it is on record: once for each."""
        return self._to_come.pop((place, call, attempt, tools), None)

    def mark_step(self, place: str, attempt: int, use: RequestUse) -> None:
        """Mark what an attempt at a step has spent as thrown away, or as spent on a failure."""
        _mark(self._spent.get(f"{place}@{attempt}", ()), use)

    def mark_call_retried(self, place: str, call: str, attempt: int) -> None:
        """Note that an attempt at an agent call has failed, and another follows."""
        inside = self._in_agent_call.get((place, call), ())
        _mark((one.charge for one in inside if one.request.attempt == attempt), "retried")

    def charges_before(self, place: str, call: str, attempt: int) -> list[Charge]:
        """Return the charges of all attempts at an agent call before this one."""
        inside = self._in_agent_call.get((place, call), ())
        return [exchange.charge for exchange in inside if exchange.request.attempt < attempt]

    # --- exchanges and tool results ---

    def take(self, request: facts.RequestPlace) -> list[Exchange]:
        """Return the exchanges on record for a request: failed attempts and, as the last one, its response.

        They are those of the same call, with any model: a fallback may have answered. Calls side by side may
        have changed their order. Then they are those of another call that sent the same request to the same
        model.
        """
        call = _call_of(request)
        known = self._exchanges.get((request.place, request.attempt, request.fingerprint), ())
        left = [exchange for exchange in known if not exchange.taken]
        found = self._answered(request, [one for one in left if _call_of(one.request) == call])
        if not found:
            left = [one for one in left if one.request.model == request.model]
            other = next((_call_of(one.request) for one in left if one.response is not None), None)
            found = self._answered(request, [one for one in left if _call_of(one.request) == other])
        if found:
            self._followed[call] = _call_of(found[-1].request)
        return _taken(found)

    def _answered(self, request: facts.RequestPlace, sent: list[Exchange]) -> list[Exchange]:
        """Return the exchanges of one call: up to the response, or else those with the request's model."""
        for number, exchange in enumerate(sent, 1):
            if exchange.response is not None:
                return sent[:number]
        own = [exchange for exchange in sent if exchange.request.model == request.model]
        if not own:
            return []
        # A fallback gets messages that are prepared for it, so its request may have another fingerprint.
        of_call = self._of_call[_call_of(own[-1].request)]
        for number, exchange in enumerate(after := of_call[of_call.index(own[-1]) + 1 :], 1):
            if exchange.taken or exchange.request.model == request.model:
                break
            if exchange.response is not None:
                return own + after[:number]
        return own

    def left_over(self, request: facts.RequestPlace) -> tuple[list[Exchange], bool]:
        """Return the exchanges that a call has in place of a request not on record, and whether that is sure.

        It is not sure for a call without any request on record: the call may have changed places with another
        one, which then takes the entries here.
        """
        call = _call_of(request)
        is_sure = call in self._followed
        followed = self._followed.setdefault(call, call)
        self._followed[call] = None
        left = [one for one in self._of_call.get(followed, ()) if not one.taken] if followed else []
        return (_taken(left) if is_sure else left), is_sure

    def take_tool(self, place: str, tool: str) -> tuple[facts.ToolEnded, list[Exchange]] | None:
        """Return the end of a tool call, and the exchanges inside of it; `None` if it has not ended."""
        ended = self._tools.get((place, tool))
        if not ended:
            return None
        inside = [
            one for one in self._in_tools.get(tool, ()) if not one.taken and is_in(one.request.place, place)
        ]
        return ended.popleft(), _taken(inside)


_Call: TypeAlias = tuple[str, str, int, tuple[str, ...]]


def _call_of(request: facts.RequestPlace) -> _Call:
    return request.place, request.call, request.attempt, request.tools


def _calls_around(call: str) -> Iterator[str]:
    """Yield `1` and `1/inner#1` for the latter, an agent call that a tool of the former makes."""
    end = call.find("/")
    while end >= 0:
        yield call[:end]
        end = call.find("/", end + 1)
    yield call


def _places_around(place: str) -> Iterator[str]:
    """Yield the places around a place: the run, and each step, attempt and nested pipeline."""
    yield ""
    around = ""
    for name in place.split("/") if place else ():
        step, at, _ = name.rpartition("@")
        if at:
            yield around + step
        yield around + name
        around += f"{name}/"


def _is_repeated(before: Exchange, entry: facts.RequestSent) -> bool:
    """Return whether a request was sent because the one before it gave nothing of use."""
    if entry.rejects:
        return True
    same = before.request.fingerprint == entry.request.fingerprint
    return before.response is None and same and before.request.model == entry.request.model


def _mark(charges: Iterable[Charge], use: RequestUse) -> None:
    for charge in charges:
        if charge.record.use != "retried":  # a request that was thrown away before stays so
            charge.mark(use)


def _taken(exchanges: list[Exchange]) -> list[Exchange]:
    for exchange in exchanges:
        exchange.taken = True
    return exchanges
