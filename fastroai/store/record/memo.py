"""The record of a run for a process that takes it up, read from the log."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, TypeAlias, TypeVar

from pydantic import JsonValue

from fastroai.errors import ConfigurationError, RunCorrupt
from fastroai.places import attempt_around, is_in, outwards, step_name
from fastroai.records import RequestRecord, RequestUse
from fastroai.runtime import NO_RETRIES_USED, Charge, RetriesUsed, facts
from fastroai.runtime.budgets.in_flight import AgentCharges
from fastroai.store.record.declarations import changed_parts
from fastroai.store.record.definitions import definition_at, kind_of, steps_in

_TAKEN_OVER: Final = (
    facts.StepFinished,
    facts.StepRetried,
    facts.OnceStarted,
    facts.OnceDone,
    facts.OnceFailed,
)
"""Facts that the fork of a pipeline takes over. The first fact of its own is of another type."""


class ChargeOnRecord(Charge):
    """The charge of a request or of other spending: unmeasured, with bounds, until the end is on record."""

    __slots__ = ("asks", "begins", "ends", "in_batch", "position", "was_taken")

    def __init__(self, begins: facts.Begins, record: RequestRecord, position: int) -> None:
        """Charge what begins at a position in the log."""
        super().__init__(record)
        self.begins, self.position = begins, position
        self.ends: facts.Ends | None = None
        self.asks: facts.Asks | None = None
        """What the agent call asked for that sent this request; `None` if that is not on record."""
        self.in_batch: facts.RequestInBatch | None = None
        """What says in which batch the answer of the request will be; `None` without one."""
        self.was_taken = False
        """Whether the resumed run has made this request again."""

    @property
    def request(self) -> facts.RequestPlace:
        """The request. Only for charges of requests."""
        assert isinstance(self.begins, facts.RequestSent)
        return self.begins.request

    @property
    def response(self) -> Any:
        """The response to the request; `None` without any."""
        return self.ends.response if isinstance(self.ends, facts.RequestEnded) else None


class ChargesOnRecord:
    """The charges in a log, which is read fact by fact."""

    def __init__(self) -> None:
        """Begin with no charges."""
        self._last: dict[facts.Key, ChargeOnRecord] = {}
        """The last charge of each thing that can end or can be settled."""

    def read(
        self, entry: facts.Begins | facts.Ends, record: RequestRecord, position: int
    ) -> ChargeOnRecord | None:
        """Return the charge that a fact at a position begins; `None` if it belongs to one that has begun.

        A fact that is a beginning and an end is a charge of its own. Raises `KeyError` for the end of what
        never began.
        """
        key = entry.about
        known = self._last.get(key) if key[-1] else None
        if isinstance(entry, facts.Begins) and (known is None or known.ends is not None):
            charge = begun = self._last[key] = ChargeOnRecord(entry, record, position)
        else:
            charge, begun = self._last[key], None
            charge.record = record
        if isinstance(entry, facts.Ends):
            charge.ends = entry
        return begun

    def note_batch(self, entry: facts.RequestInBatch) -> None:
        """Note that a request is in a batch. Raises `KeyError` for one that never began."""
        self._last[entry.about].in_batch = entry


class Memo:
    """The record of a run, by what its facts are about. It gives each response and tool result only once."""

    def __init__(
        self, run_id: str, entries: Sequence[facts.Fact], positions: Sequence[int] | None = None
    ) -> None:
        """Read the entries of a log, in order: all of them, or those at the given `positions`.

        Raises:
            RunCorrupt: the first entry is not `run_started`.
        """
        if not entries or not isinstance(entries[0], facts.RunStarted):
            raise RunCorrupt(run_id, 1, "a log begins with run_started, and this one does not")
        self.entries: list[facts.Fact] = []
        self._placed = [] if positions is None else [*positions]
        """Positions in the log of the first entries, if entries between them were left out."""
        self.ended: facts.RunFinished | None = None
        self.resumptions: list[tuple[int, facts.RunResumed]] = []
        """Where processes took the run up, with the positions in the log. A fork of a pipeline is taken up
        after the facts that it took over."""
        self.ended_by: set[facts.FailedAgentCall] = set()
        """The calls whose failures have made the run fail."""
        self.outputs_made: dict[str, tuple[facts.StepFinished, object]] = {}
        """Outputs that were converted already, by place."""
        self._about: dict[facts.Key, list[facts.Fact]] = defaultdict(list)
        self._charges = ChargesOnRecord()
        self._inside: dict[Hashable, list[ChargeOnRecord]] = {}
        """Charges by the places, agent calls, tool calls and contents of requests that they belong to."""
        self._agent_calls: dict[_Call, AgentCharges] = {}
        """Agent calls that have sent a request."""
        self._used: dict[facts.Key, RetriesUsed] = {}
        """Retries that unfinished steps and agent calls have used."""
        self._given: Counter[Hashable] = Counter()
        """How many ends of each tool call, and which agent calls, the resumed run has asked for."""
        self._followed: dict[_Call, _Call | None] = {}
        """For each call that is made again, the recorded call whose requests it takes, if any."""
        self._asks: dict[_Call, list[facts.Asks]] = {}
        """What each agent call asked for, and what it asked for when it was asked anew, in order."""
        self._at: dict[Hashable, list[_Call]] = {}
        """The agent calls that have asked for something, by place, attempt and tools."""
        self.asked_anew: list[tuple[int, str]] = []
        """Where answers were asked anew because of changes, with the positions in the log."""
        self._anew_in: set[str] = set()
        """These places, and all places around them."""
        self._parts: dict[str, list[int]] | None = None
        """The positions of the facts of each pipeline and graph, by place, once they were asked for."""
        if entries[0].forked_from is not None and kind_of(entries[0].definition) == "pipeline":
            copied = sum(1 for _ in takewhile(lambda one: isinstance(one, _TAKEN_OVER), entries[1:]))
            self.resumptions.append((1 + copied, facts.RunResumed(part=entries[0].part)))
        self.add(entries)

    def add(self, entries: Iterable[facts.Fact]) -> None:
        """Read more entries. Raises `RunCorrupt` for an entry that does not fit those before."""
        self._parts = None
        for entry in entries:
            self.entries.append(entry)
            try:
                self._read(entry)
            except (KeyError, TypeError, ConfigurationError) as error:
                reason = f"it does not fit the entries before it: {type(error).__name__}: {error}"
                raise RunCorrupt(self.opened.run_id, len(self.entries), reason) from error

    def _read(self, entry: facts.Fact) -> None:
        about = entry.about
        self._about[about].append(entry)
        match entry:
            case facts.StepFinished(conversation="incomplete"):
                if not self._runs_pipeline(entry.place):
                    self._used[about] = RetriesUsed(attempt=entry.attempt + 1)
            case facts.StepFinished():
                self._used.pop(about, None)
            case facts.StepRetried():
                self._used[about] = entry.used
                self.mark(about, entry.attempt, "retried")
            case facts.StepFailed():
                # A step that a budget stopped goes on with the same attempt, and pays for nothing again.
                if entry.budget is None and not self._goes_on(entry):
                    self._ask_anew(about, entry.attempt)
            case facts.RunResumed():
                self.resumptions.append((len(self.entries), entry))
                self.ended = None
            case facts.RunFinished():
                self.ended = entry
                if entry.status == "failed":
                    self.ended_by.update(entry.failed_calls)
                for failed in entry.agent_calls if entry.status == "failed" else ():
                    self._ask_anew(agent_call_key(failed.place, failed.call), failed.attempt)
            case facts.RunFact() if entry.reopens:
                self.ended = None
            case facts.Begins() | facts.Ends() if entry.spending is not None:
                charge = self._charges.read(entry, entry.spending, len(self.entries))
                if charge is not None:
                    self._spend(charge)
            case facts.RequestInBatch():
                self._charges.note_batch(entry)
            case facts.StepStarted() if entry.part.place:
                self._about["in", attempt_around(entry.part.place) or ""].append(entry)
            case facts.CallEnded():
                self._about["in", attempt_around(entry.place) or ""].append(entry)
            case facts.CallChanged(answer="asked_anew"):
                self._ask_changed(entry, len(self.entries))
            case facts.CallLeftOver():
                self._given[about] += 1
            case _:
                pass

    def _ask_anew(self, key: facts.Key, attempt: int) -> None:
        """Give a step or an agent call that has failed another attempt."""
        self._used[key] = RetriesUsed(attempt=attempt + 1)
        self.mark(key, attempt, "failed")

    def _goes_on(self, entry: facts.StepFailed) -> bool:
        """Return whether a failed attempt goes on; if nothing in it is on record, another one begins.

        It goes on, too, if a call in it was not declared as before: its answers are still wanted.
        """
        if entry.call_changed:
            return True
        attempt = f"{entry.place}@{entry.attempt}"
        has_parts = bool(self.within(attempt) or self.charges(attempt))
        return (entry.goes_on and has_parts) or self._runs_pipeline(entry.place)

    def _runs_pipeline(self, place: str) -> bool:
        """Return whether a step runs a pipeline or router, so that its last attempt can go on.

        The steps that have finished inside of that attempt are on record under it.
        """
        step = steps_in(definition_at(self.definition, place)).get(step_name(place))
        return isinstance(step, dict) and step.get("runs") is not None

    # --- the run ---

    @property
    def opened(self) -> facts.RunStarted:
        """The first entry."""
        opened = self.entries[0]
        assert isinstance(opened, facts.RunStarted)
        return opened

    @property
    def inputs(self) -> dict[str, JsonValue]:
        """The inputs of the run, with those that were replaced when it was resumed."""
        inputs = dict(self.opened.inputs)
        for _, resumed in self.resumptions:
            inputs.update(resumed.inputs)
        return inputs

    @property
    def definition(self) -> JsonValue:
        """The definition with which the run was last taken up."""
        changed = (one.definition for _, one in reversed(self.resumptions) if one.definition)
        return next(changed, self.opened.definition)

    @property
    def budgets(self) -> list[JsonValue] | None:
        """The budgets that the last call which gave some has given the run, as plain data."""
        given = (resumed.budgets for _, resumed in reversed(self.resumptions))
        return next((one for one in given if one is not None), self.opened.budgets)

    @property
    def taken_over(self) -> int:
        """The position of the last fact that the fork of a pipeline took over; 0 for other runs."""
        first = self.resumptions[0] if self.resumptions else None
        return 0 if first is None or self.entries[first[0] - 1] is first[1] else first[0]

    @property
    def seconds(self) -> float:
        """Seconds for which the run has been running, in all its processes, as far as their facts show."""
        spent, began, is_fork = 0.0, self.opened.timestamp, self.opened.forked_from is not None
        last = began
        for entry in self.entries:
            if isinstance(entry, facts.AnswerGiven) or (is_fork and entry.timestamp < self.opened.timestamp):
                continue  # given while no process had the run; or of the run that it is a fork of
            if isinstance(entry, facts.RunResumed):
                spent, began = spent + max(last - began, 0.0), entry.timestamp
            last = entry.timestamp
        return spent + max(last - began, 0.0)

    def history(self, place: str) -> Iterator[tuple[int, facts.PlanFact | facts.RunResumed]]:
        """Yield the facts of the pipeline or graph at a place, and all resumptions, with their positions.

        The place of the outermost is empty. The first call sorts the whole log, so that later ones are fast.
        """
        if self._parts is None:
            self._parts = defaultdict(list)
            for position, entry in enumerate(self.entries, 1):
                if isinstance(entry, facts.PlanFact):
                    self._parts[entry.part.place].append(position)
        resumptions = deque(self.resumptions)
        for position in self._parts.get(place, ()):
            while resumptions and resumptions[0][0] < position:
                yield resumptions.popleft()
            entry = self.entries[position - 1]
            assert isinstance(entry, facts.PlanFact)
            yield position, entry
        yield from resumptions

    @property
    def positions(self) -> Iterator[int]:
        """The position in the log of each entry, from 1."""
        known = self._placed
        last = known[-1] if known else 0
        yield from known
        yield from range(last + 1, last + 1 + len(self.entries) - len(known))

    def position_of(self, entry: facts.Fact) -> int:
        """Return the position of an entry in the log, from 1."""
        return next(at for at, one in zip(self.positions, self.entries, strict=True) if one is entry)

    # --- what is on record ---

    def about(self, key: facts.Key) -> Sequence[facts.Fact]:
        """Return the facts about something, in order."""
        return self._about.get(key, ())

    def within(self, attempt: str) -> Sequence[facts.Fact]:
        """Return the ends of calls, and the starts of steps of nested runs, in the code of an attempt."""
        return self._about.get(("in", attempt), ())

    def first(self, key: facts.Key, kind: type[FactT]) -> FactT | None:
        """Return the first fact of a kind about something; `None` without any."""
        return next((one for one in self.about(key) if isinstance(one, kind)), None)

    def last(self, key: facts.Key, kind: type[FactT]) -> FactT | None:
        """Return the last fact of a kind about something; `None` without any."""
        return next((one for one in reversed(self.about(key)) if isinstance(one, kind)), None)

    def take(self, key: facts.Key) -> facts.Begins | facts.Ends | None:
        """Return the next end of something since it began, each once; or its beginning without an end."""
        known = self.about(key)
        begun = next((at for at in range(len(known), 0, -1) if isinstance(known[at - 1], facts.Begins)), 0)
        at = max(self._given[key], begun if begun < len(known) else begun - 1)
        if at >= len(known):
            return None
        self._given[key] = at + 1
        taken = known[at]
        assert isinstance(taken, facts.Begins | facts.Ends)
        return taken

    @property
    def outputs(self) -> dict[str, facts.StepFinished]:
        """The last outputs of finished steps, by place, in the order in which the steps finished."""
        return {
            one.place: one
            for one in self.entries
            if isinstance(one, facts.StepFinished) and one.conversation != "incomplete"
        }

    def used(self, key: facts.Key) -> RetriesUsed:
        """Return the retries that an unfinished step or an agent call has used."""
        return self._used.get(key, NO_RETRIES_USED)

    def was_retried(self, key: facts.Key) -> bool:
        """Return whether a failed attempt at an agent call, or a rejected answer of it, is on record."""
        return key in self._used

    # --- calls that have changed ---

    def has_asked_anew(self, attempt: str) -> bool:
        """Return whether an answer in the code of an attempt at a step, at any depth, was asked anew."""
        return attempt in self._anew_in

    def note_change(self, changed: facts.CallChanged) -> bool:
        """Note whether a call that is declared differently now keeps its answer or is asked anew.

        Return False if that was noted before.
        """
        same = (changed.attempt, changed.answer, changed.changed)
        for one in self.about(changed.about):
            if isinstance(one, facts.CallChanged) and (one.attempt, one.answer, one.changed) == same:
                return False
        self._about[changed.about].append(changed)
        if changed.answer == "asked_anew":
            self._ask_changed(changed, len(self.entries) + 1)
        return True

    def _ask_changed(self, changed: facts.CallChanged, position: int) -> None:
        """Note that an answer is asked anew. What the answer on record has cost was thrown away."""
        self.asked_anew.append((position, changed.place))
        self._anew_in.update(outwards(changed.place))
        self.mark(changed.about, changed.attempt, "retried")

    def come_again(self, key: facts.Key) -> None:
        """Note that the resumed run makes a call that may be on record."""
        self._given[key] += 1

    def forget_calls(self) -> None:
        """Forget what the running process has taken, once nothing is left on record that it could take."""
        self._given.clear()
        self._followed.clear()

    def take_left_over(self, attempt: str) -> list[tuple[str, str]]:
        """Return the calls and nested runs on record in an attempt that the resumed run has not made again.

        Each is returned once, as its place and the name of the agent call.
        """
        typed = [
            (one.place if isinstance(one, facts.CallEnded) else one.part.place, "")
            for one in self.within(attempt)
            if not isinstance(one, facts.CallEnded) or one.failure is None
        ]
        agents = [
            (place, call) for place, call, _, tools in self._agent_calls if place == attempt and not tools
        ]
        left: list[tuple[str, str]] = []
        for place, call in dict.fromkeys([*typed, *agents]):
            key = agent_call_key(place, call) if call else ("call", place)
            if not self._given[key]:
                self._given[key] += 1
                left.append((place, call))
        return left

    def find_call(self, request: facts.RequestPlace, asks: facts.Asks) -> KnownCall | None:
        """Return the call on record that has asked for the same with the same inputs; else that of the same
        name with the same inputs, which has changed.

        Calls side by side may have changed their order. Each recorded call is found once.
        """
        own = _call_of(request)
        at = self._at.get((request.place, request.attempt, request.tools), ())
        for call in (own, *at):
            for one in reversed(self._asks.get(call, ())):
                is_free = call == own or not self._given["found", call]
                if is_free and one.inputs == asks.inputs and not changed_parts(one.declared, asks.declared):
                    self._given["found", call] += 1
                    return KnownCall(call, one, (), self._has_finished(call, one))
        for one in reversed(self._asks.get(own, ())):
            is_answered = any(sent.response is not None for sent in self._sent_by(own, one))
            if one.inputs == asks.inputs and is_answered:
                self._given["found", own] += 1
                changed = changed_parts(one.declared, asks.declared)
                return KnownCall(own, one, changed, self._has_finished(own, one))
        return None

    def failed_call(
        self, place: str, call: str, attempt: int, asks: facts.Asks
    ) -> facts.AgentCallEnded | None:
        """Return how an attempt at an agent call failed, if its caller has handled that.

        `None` if the call returned, asked for something else, or made the run fail; then it is made again.
        """
        ended = self.last(agent_call_key(place, call), facts.AgentCallEnded)
        if ended is None or ended.attempt != attempt or ended.failure is None:
            return None
        known = self._asks.get((place, call, attempt, ()), ())
        if not known or known[-1].inputs != asks.inputs or changed_parts(known[-1].declared, asks.declared):
            return None
        return None if facts.FailedAgentCall(place, call, attempt) in self.ended_by else ended

    def call_of(self, sent: ChargeOnRecord) -> KnownCall | None:
        """Return the call that sent a request, if it is on record what it asked for."""
        if sent.asks is None:
            return None
        call = _call_of(sent.request)
        return KnownCall(call, sent.asks, (), self._has_finished(call, sent.asks))

    def was_asked_otherwise(self, request: facts.RequestPlace, asks: facts.Asks) -> bool:
        """Return whether this call with these inputs was declared differently when it was asked first."""
        first = next(
            (one for one in self._asks.get(_call_of(request), ()) if one.inputs == asks.inputs), None
        )
        return first is not None and bool(changed_parts(first.declared, asks.declared))

    def _sent_by(self, call: _Call, asks: facts.Asks) -> list[ChargeOnRecord]:
        return [one for one in self._inside.get(call, ()) if one.asks is asks]

    def _has_finished(self, call: _Call, asks: facts.Asks) -> bool:
        """Return whether the last answer of a call is on record."""
        sent = self._sent_by(call, asks)
        if not sent or sent[-1].response is None:
            return False
        place, name, attempt, tools = call
        ended = self.last(agent_call_key(place, name), facts.AgentCallEnded) if not tools else None
        has_ended = ended is not None and ended.attempt == attempt and ended.failure is None
        return not sent[-1].record.tool_calls or has_ended

    # --- spending ---

    def _spend(self, charge: ChargeOnRecord) -> None:
        """Count a charge in the whole run, and in everything that it is inside of."""
        begins = charge.begins
        if isinstance(begins, facts.RequestSent):
            call = _call_of(begins.request)
            if (before := self._inside.get(call)) and _is_repeated(before[-1], begins):
                before[-1].mark("retried")
            if begins.asks is not None:
                self._note_asked(call, begins.asks)
            charge.asks = self._asks[call][-1] if call in self._asks else None
            if begins.request.is_of_agent_call:
                of_call = self._agent_calls.setdefault(call, AgentCharges(charge.record.agent or ""))
                of_call.add((charge,))
        for around in _around(begins):
            self._inside.setdefault(around, []).append(charge)

    def _note_asked(self, call: _Call, asks: facts.Asks) -> None:
        known = self._asks.setdefault(call, [])
        if asks in known:  # the last one is what later requests of the call ask for
            known.append(known.pop(known.index(asks)))
            return
        if not known:
            place, _, attempt, tools = call
            self._at.setdefault((place, attempt, tools), []).append(call)
        known.append(asks)

    def charges(self, place: str = "") -> Sequence[ChargeOnRecord]:
        """Return the charges in a step or a nested pipeline, at any depth; by default, in the whole run."""
        return self._inside.get(place, ())

    def agent_calls(self, charges: Iterable[ChargeOnRecord]) -> list[AgentCharges]:
        """Return the agent calls that made these charges, in the order of their first requests."""
        calls = dict.fromkeys(
            _call_of(one.request) for one in charges if isinstance(one.begins, facts.RequestSent)
        )
        return [self._agent_calls[call] for call in calls if call in self._agent_calls]

    def take_agent_call(
        self, place: str, call: str, attempt: int, tools: tuple[str, ...]
    ) -> AgentCharges | None:
        """Return an attempt at an agent call, in some calls of tools, if it is on record: once for each."""
        key: _Call = place, call, attempt, tools
        known = None if self._given[key] else self._agent_calls.get(key)
        self._given[key] += known is not None
        self.come_again(agent_call_key(place, call))
        return known

    def mark(self, key: facts.Key, attempt: int, use: RequestUse) -> None:
        """Mark what an attempt at a step or agent call has spent as thrown away, or as spent on a failure."""
        for charge in self.charges_of(key, attempt):
            charge.mark(use)

    def charges_of(self, key: facts.Key, attempt: int) -> Sequence[ChargeOnRecord]:
        """Return the charges of an attempt at a step, typed function or agent call."""
        around: Hashable = (*key, attempt) if key[0] == "agent call" else f"{key[1]}@{attempt}"
        return self._inside.get(around, ())

    def take_charges_of(self, key: facts.Key, attempt: int) -> list[ChargeOnRecord]:
        """Return the charges of an attempt, which no other call takes any more."""
        return _taken([*self.charges_of(key, attempt)])

    def in_tool(self, place: str, tool: str) -> list[ChargeOnRecord]:
        """Return the charges in a tool call whose result is on record, but none that was taken before."""
        inside = self._inside.get(("tool", tool), ())
        return _taken([one for one in inside if not one.was_taken and is_in(one.begins.where, place)])

    def bought_in_tool(self, place: str, tool: str) -> list[ChargeOnRecord]:
        """Return what a tool call that is made again has bought by itself, but nothing that was taken before.

        Requests are taken when they are made again, and what nested runs have bought counts with these.
        """
        return _taken(
            [
                one
                for one in self._inside.get(("tool", tool), ())
                if not one.was_taken
                and isinstance(one.begins, facts.SpendingRecorded)
                and (one.begins.where, one.begins.tools[-1]) == (place, tool)
            ]
        )

    # --- requests ---

    def take_requests(
        self, request: facts.RequestPlace, asks: facts.Asks | None = None
    ) -> list[ChargeOnRecord]:
        """Return what is on record for a request: failed attempts and, as the last one, its response.

        Requests of calls that were declared differently than `asks` are not taken.

        They are those of the same call, with any model: a fallback may have answered. Calls side by side may
        have changed their order. Then they are those of another call that sent the same request to the same
        model.
        """
        call = _call_of(request)
        known = self._inside.get((request.place, request.attempt, request.fingerprint), ())
        left = [one for one in known if not one.was_taken and _asks_for(one, asks)]
        found = self._answered(request, [one for one in left if _call_of(one.request) == call])
        if not found:
            left = [one for one in left if one.request.model == request.model]
            other = next((_call_of(one.request) for one in left if one.response is not None), None)
            found = self._answered(request, [one for one in left if _call_of(one.request) == other])
        if found:
            self._followed[call] = _call_of(found[-1].request)
        return _taken(found)

    def take_next(self, known: KnownCall, request: facts.RequestPlace) -> list[ChargeOnRecord]:
        """Return the next requests that a call has sent, up to a response, whatever they ask."""
        left = [one for one in self._sent_by(known.call, known.asks) if not one.was_taken]
        for number, one in enumerate(left, 1):
            if one.response is not None:
                self._followed[_call_of(request)] = known.call
                return _taken(left[:number])
        return []

    def _answered(self, request: facts.RequestPlace, sent: list[ChargeOnRecord]) -> list[ChargeOnRecord]:
        """Return what one call has sent: up to the response, or else to the request's model."""
        for number, one in enumerate(sent, 1):
            if one.response is not None:
                return sent[:number]
        own = [one for one in sent if one.request.model == request.model]
        if not own:
            return []
        # A fallback gets messages that are prepared for it, so its request may have another fingerprint.
        of_call = self._inside[_call_of(own[-1].request)]
        for number, one in enumerate(after := of_call[of_call.index(own[-1]) + 1 :], 1):
            if one.was_taken or one.request.model == request.model:
                break
            if one.response is not None:
                return own + after[:number]
        return own

    def left_over(
        self, request: facts.RequestPlace, asks: facts.Asks | None = None
    ) -> tuple[list[ChargeOnRecord], bool]:
        """Return what a call has sent in place of a request not on record, and whether that is sure.

        Requests of a call that was declared differently than `asks` are in place of nothing.

        It is not sure for a call without any request on record: the call may have changed places with another
        one, which then takes the entries here.
        """
        call = _call_of(request)
        is_sure = call in self._followed
        followed = self._followed.setdefault(call, call)
        self._followed[call] = None
        of_call = self._inside.get(followed, ()) if followed else ()
        left = [one for one in of_call if not one.was_taken and _asks_for(one, asks)]
        return (_taken(left) if is_sure else left), is_sure


@dataclass(frozen=True, slots=True)
class KnownCall:
    """An agent call that is on record."""

    call: _Call
    asks: facts.Asks
    """What it asked for."""
    changed: tuple[str, ...]
    """What of this has changed."""
    has_finished: bool

    @property
    def name(self) -> str:
        """The name of the call in its place."""
        return self.call[1]

    @property
    def attempt(self) -> int:
        """The number of the attempt at the call."""
        return self.call[2]


FactT = TypeVar("FactT", bound=facts.Fact)
_Call: TypeAlias = tuple[str, str, int, tuple[str, ...]]


def _call_of(request: facts.RequestPlace) -> _Call:
    return request.place, request.call, request.attempt, request.tools


def _around(begins: facts.Begins) -> Iterator[Hashable]:
    """Yield everything around a charge: the run, and each step, attempt and nested pipeline.

    Around a request, they are its call, its content, and the calls of tools and agents, too; likewise around
    what a tool buys.
    """
    yield ""
    around = ""
    for name in begins.where.split("/") if begins.where else ():
        step, at, _ = name.rpartition("@")
        if at:
            yield around + step
        yield around + name
        around += f"{name}/"
    if isinstance(begins, facts.RequestSent):
        request = begins.request
        yield _call_of(request)
        yield request.place, request.attempt, request.fingerprint
        yield from _around_call(request)
    elif isinstance(begins, facts.SpendingRecorded) and begins.tools:
        yield from _around_call(begins)


def _around_call(made: facts.RequestPlace | facts.SpendingRecorded) -> Iterator[Hashable]:
    yield from (("tool", tool) for tool in made.tools)
    names = made.call.split("/")  # `1` and `1/inner#1` for the latter, which a tool of the former makes
    for end in range(1, len(names) + 1):
        yield *agent_call_key(made.place, "/".join(names[:end])), made.attempt


def agent_call_key(place: str, call: str) -> facts.Key:
    """Return the key of an agent call of the attempt at a place."""
    return "agent call", place, call


def _is_repeated(before: ChargeOnRecord, entry: facts.RequestSent) -> bool:
    """Return whether a request was sent because the one before it gave nothing of use."""
    if entry.rejects:
        return True
    same = before.request.fingerprint == entry.request.fingerprint
    return before.response is None and same and before.request.model == entry.request.model


def _asks_for(charge: ChargeOnRecord, asks: facts.Asks | None) -> bool:
    """Return whether a request on record is of a call that was declared like this one, as far as is known."""
    known = charge.asks
    return asks is None or known is None or not changed_parts(known.declared, asks.declared)


def _taken(charges: list[ChargeOnRecord]) -> list[ChargeOnRecord]:
    for charge in charges:
        charge.was_taken = True
    return charges
