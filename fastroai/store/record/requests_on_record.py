"""The requests and other spending on record, and which of them a resumed run has made again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from fastroai.places import is_in
from fastroai.records import RequestRecord, RequestUse
from fastroai.runtime import Charge, facts
from fastroai.runtime.budgets.in_flight import AgentCharges
from fastroai.runtime.fact_base import Begins, Ends, Fact, Key
from fastroai.store.record.declarations import changed_parts

FactT = TypeVar("FactT", bound=Fact)


class ChargeOnRecord(Charge):
    """The charge of a request or of other spending: unmeasured, with bounds, until the end is on record."""

    __slots__ = ("asks", "begins", "ends", "in_batch", "position", "was_taken")

    def __init__(self, begins: Begins, record: RequestRecord, position: int) -> None:
        """Charge what begins at a position in the log."""
        super().__init__(record)
        self.begins, self.position = begins, position
        self.ends: Ends | None = None
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
        self._last: dict[Key, ChargeOnRecord] = {}
        """The last charge of each thing that can end or can be settled."""

    def read(self, entry: Begins | Ends, record: RequestRecord, position: int) -> ChargeOnRecord | None:
        """Return the charge that a fact at a position begins; `None` if it belongs to one that has begun.

        A fact that is a beginning and an end is a charge of its own. Raises `KeyError` for the end of what
        never began.
        """
        key = entry.about
        known = self._last.get(key) if key[-1] else None
        if isinstance(entry, Begins) and (known is None or known.ends is not None):
            charge = begun = self._last[key] = ChargeOnRecord(entry, record, position)
        else:
            charge, begun = self._last[key], None
            charge.record = record
        if isinstance(entry, Ends):
            charge.ends = entry
        return begun

    def note_batch(self, entry: facts.RequestInBatch) -> None:
        """Note that a request is in a batch. Raises `KeyError` for one that never began."""
        self._last[entry.about].in_batch = entry


class RequestsOnRecord:
    """The requests and other spending in a log, and the agent calls that have made them.

    It gives each response only once to the process that takes the run up.
    """

    def __init__(self, about: Mapping[Key, Sequence[Fact]], given: Counter[Hashable]) -> None:
        """Begin with none. `about` has the facts of the log, and `given` counts what was given again."""
        self._about, self._given = about, given
        self._charges = ChargesOnRecord()
        self._inside: dict[Hashable, list[ChargeOnRecord]] = {}
        """Charges by the places, agent calls, tool calls and contents of requests that they belong to."""
        self._agent_calls: dict[_Call, AgentCharges] = {}
        """Agent calls that have sent a request."""
        self._followed: dict[_Call, _Call | None] = {}
        """For each call that is made again, the recorded call whose requests it takes, if any."""
        self._asks: dict[_Call, list[facts.Asks]] = {}
        """What each agent call asked for, and what it asked for when it was asked anew, in order."""
        self._at: dict[Hashable, list[_Call]] = {}
        """The agent calls that have asked for something, by place, attempt and tools."""
        self.ended_by: set[facts.FailedAgentCall] = set()
        """The calls whose failures have made the run fail."""

    def read(self, entry: Begins | Ends, record: RequestRecord, position: int) -> None:
        """Take in a fact that tells of spending. Raises `KeyError` for the end of what never began."""
        charge = self._charges.read(entry, record, position)
        if charge is not None:
            self._spend(charge)

    def note_batch(self, entry: facts.RequestInBatch) -> None:
        """Note that a request is in a batch. Raises `KeyError` for one that never began."""
        self._charges.note_batch(entry)

    def forget_calls(self) -> None:
        """Forget which calls the running process has made again."""
        self._followed.clear()

    def calls_at(self, place: str) -> list[str]:
        """Return the agent calls that an attempt at a step has made by itself, and not by tools."""
        return [call for at, call, _, tools in self._agent_calls if at == place and not tools]

    # --- calls ---

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
        ended = self._ended(place, call)
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
        ended = None if tools else self._ended(place, name)
        has_ended = ended is not None and ended.attempt == attempt and ended.failure is None
        return not sent[-1].record.tool_calls or has_ended

    def _ended(self, place: str, call: str) -> facts.AgentCallEnded | None:
        return last_of(self._about.get(agent_call_key(place, call), ()), facts.AgentCallEnded)

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
        self._given[agent_call_key(place, call)] += 1
        return known

    def mark(self, key: Key, attempt: int, use: RequestUse) -> None:
        """Mark what an attempt at a step or agent call has spent as thrown away, or as spent on a failure."""
        for charge in self.charges_of(key, attempt):
            charge.mark(use)

    def charges_of(self, key: Key, attempt: int) -> Sequence[ChargeOnRecord]:
        """Return the charges of an attempt at a step, typed function or agent call."""
        around: Hashable = (*key, attempt) if key[0] == "agent call" else f"{key[1]}@{attempt}"
        return self._inside.get(around, ())

    def take_charges_of(self, key: Key, attempt: int) -> list[ChargeOnRecord]:
        """Return the charges of an attempt, which no other call takes any more."""
        return _taken([*self.charges_of(key, attempt)])

    def in_tool(self, place: str, tool: str) -> list[ChargeOnRecord]:
        """Return the charges in a tool call whose result is on record, but none that was taken before."""
        inside = self._inside.get(("tool", tool), ())
        return _taken([one for one in inside if not one.was_taken and is_in(one.begins.where, place)])

    def in_effect(self, place: str, effect: str) -> list[ChargeOnRecord]:
        """Return the charges that an attempt at a step has in an effect of `once`, which is not repeated."""
        inside = self._inside.get(("effect", effect), ())
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


_Call: TypeAlias = tuple[str, str, int, tuple[str, ...]]


def _call_of(request: facts.RequestPlace) -> _Call:
    return request.place, request.call, request.attempt, request.tools


def _around(begins: Begins) -> Iterator[Hashable]:
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
        yield from (("effect", effect) for effect in request.effects)
        yield _call_of(request)
        yield request.place, request.attempt, request.fingerprint
        yield from _around_call(request)
    elif isinstance(begins, facts.SpendingRecorded):
        yield from (("effect", effect) for effect in begins.effects)
        if begins.tools:
            yield from _around_call(begins)


def _around_call(made: facts.RequestPlace | facts.SpendingRecorded) -> Iterator[Hashable]:
    yield from (("tool", tool) for tool in made.tools)
    names = made.call.split("/")  # `1` and `1/inner#1` for the latter, which a tool of the former makes
    for end in range(1, len(names) + 1):
        yield *agent_call_key(made.place, "/".join(names[:end])), made.attempt


def agent_call_key(place: str, call: str) -> Key:
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


def last_of(known: Sequence[Fact], kind: type[FactT]) -> FactT | None:
    """Return the last of some facts that is of a kind; `None` without any."""
    return next((one for one in reversed(known) if isinstance(one, kind)), None)
