"""The record of a run for a process that takes it up, read from the log."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Final, TypeVar

from pydantic import JsonValue

from fastroai.errors import ConfigurationError, RunCorrupt
from fastroai.places import attempt_around, outwards, step_name
from fastroai.runtime import NO_RETRIES_USED, RetriesUsed, facts
from fastroai.runtime.fact_base import Begins, Ends, Fact, Key, PlanFact, RunFact
from fastroai.store.record.definitions import definition_at, kind_of, steps_in
from fastroai.store.record.requests_on_record import RequestsOnRecord, agent_call_key, last_of

FactT = TypeVar("FactT", bound=Fact)

_TAKEN_OVER: Final = (
    facts.StepFinished,
    facts.StepRetried,
    facts.OnceStarted,
    facts.OnceDone,
    facts.OnceFailed,
)
"""Facts that the fork of a pipeline takes over. The first fact of its own is of another type."""


class Memo:
    """The record of a run, by what its facts are about. It gives each response and tool result only once."""

    def __init__(self, run_id: str, entries: Sequence[Fact], positions: Sequence[int] | None = None) -> None:
        """Read the entries of a log, in order: all of them, or those at the given `positions`.

        Raises:
            RunCorrupt: the first entry is not `run_started`.
        """
        if not entries or not isinstance(entries[0], facts.RunStarted):
            raise RunCorrupt(run_id, 1, "a log begins with run_started, and this one does not")
        self.entries: list[Fact] = []
        self._placed = [] if positions is None else [*positions]
        """Positions in the log of the first entries, if entries between them were left out."""
        self.ended: facts.RunFinished | None = None
        self.resumptions: list[tuple[int, facts.RunResumed]] = []
        """Where processes took the run up, with the positions in the log. A fork of a pipeline is taken up
        after the facts that it took over."""
        self.outputs_made: dict[str, tuple[facts.StepFinished, object]] = {}
        """Outputs that were converted already, by place."""
        self._about: dict[Key, list[Fact]] = defaultdict(list)
        self._used: dict[Key, RetriesUsed] = {}
        """Retries that unfinished steps and agent calls have used."""
        self._given: Counter[Hashable] = Counter()
        """How many ends of each tool call, and which agent calls, the resumed run has asked for."""
        self.requests = RequestsOnRecord(self._about, self._given)
        """The requests and other spending."""
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

    def add(self, entries: Iterable[Fact]) -> None:
        """Read more entries. Raises `RunCorrupt` for an entry that does not fit those before."""
        self._parts = None
        for entry in entries:
            self.entries.append(entry)
            try:
                self._read(entry)
            except (KeyError, TypeError, ConfigurationError) as error:
                reason = f"it does not fit the entries before it: {type(error).__name__}: {error}"
                raise RunCorrupt(self.opened.run_id, len(self.entries), reason) from error

    def _read(self, entry: Fact) -> None:
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
                self.requests.mark(about, entry.attempt, "retried")
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
                    self.requests.ended_by.update(entry.failed_calls)
                for failed in entry.agent_calls if entry.status == "failed" else ():
                    self._ask_anew(agent_call_key(failed.place, failed.call), failed.attempt)
            case RunFact() if entry.reopens:
                self.ended = None
            case Begins() | Ends() if entry.spending is not None:
                self.requests.read(entry, entry.spending, len(self.entries))
            case facts.RequestInBatch():
                self.requests.note_batch(entry)
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

    def _ask_anew(self, key: Key, attempt: int) -> None:
        """Give a step or an agent call that has failed another attempt."""
        self._used[key] = RetriesUsed(attempt=attempt + 1)
        self.requests.mark(key, attempt, "failed")

    def _goes_on(self, entry: facts.StepFailed) -> bool:
        """Return whether a failed attempt goes on; if nothing in it is on record, another one begins.

        It goes on, too, if a call in it was not declared as before: its answers are still wanted.
        """
        if entry.call_changed:
            return True
        attempt = f"{entry.place}@{entry.attempt}"
        has_parts = bool(self.within(attempt) or self.requests.charges(attempt))
        return (entry.goes_on and has_parts) or self._runs_pipeline(entry.place)

    def _runs_pipeline(self, place: str) -> bool:
        """Return whether a step runs a pipeline or router, so that its last attempt can go on.

        The steps that have finished inside of that attempt are on record under it.
        """
        step = steps_in(definition_at(self.definition, place)).get(step_name(place))
        return isinstance(step, dict) and step.get("runs") is not None

    # --- the run ---

    @property
    def has_finished(self) -> bool:
        """Whether the run has finished, so that nothing in it is left to do."""
        return self.ended is not None and self.ended.status == "finished"

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

    def history(self, place: str) -> Iterator[tuple[int, PlanFact | facts.RunResumed]]:
        """Yield the facts of the pipeline or graph at a place, and all resumptions, with their positions.

        The place of the outermost is empty. The first call sorts the whole log, so that later ones are fast.
        """
        if self._parts is None:
            self._parts = defaultdict(list)
            for position, entry in enumerate(self.entries, 1):
                if isinstance(entry, PlanFact):
                    self._parts[entry.part.place].append(position)
        resumptions = deque(self.resumptions)
        for position in self._parts.get(place, ()):
            while resumptions and resumptions[0][0] < position:
                yield resumptions.popleft()
            entry = self.entries[position - 1]
            assert isinstance(entry, PlanFact)
            yield position, entry
        yield from resumptions

    @property
    def positions(self) -> Iterator[int]:
        """The position in the log of each entry, from 1."""
        known = self._placed
        last = known[-1] if known else 0
        yield from known
        yield from range(last + 1, last + 1 + len(self.entries) - len(known))

    @property
    def length(self) -> int:
        """Number of entries in the log, with those that were left out."""
        known = self._placed
        return len(self.entries) + (known[-1] - len(known) if known else 0)

    def position_of(self, entry: Fact) -> int:
        """Return the position of an entry in the log, from 1."""
        return next(at for at, one in zip(self.positions, self.entries, strict=True) if one is entry)

    # --- what is on record ---

    def about(self, key: Key) -> Sequence[Fact]:
        """Return the facts about something, in order."""
        return self._about.get(key, ())

    def within(self, attempt: str) -> Sequence[Fact]:
        """Return the ends of calls, and the starts of steps of nested runs, in the code of an attempt."""
        return self._about.get(("in", attempt), ())

    def first(self, key: Key, kind: type[FactT]) -> FactT | None:
        """Return the first fact of a kind about something; `None` without any."""
        return next((one for one in self.about(key) if isinstance(one, kind)), None)

    def last(self, key: Key, kind: type[FactT]) -> FactT | None:
        """Return the last fact of a kind about something; `None` without any."""
        return last_of(self.about(key), kind)

    def take(self, key: Key) -> Begins | Ends | None:
        """Return the next end of something since it began, each once; or its beginning without an end."""
        known = self.about(key)
        begun = next((at for at in range(len(known), 0, -1) if isinstance(known[at - 1], Begins)), 0)
        at = max(self._given[key], begun if begun < len(known) else begun - 1)
        if at >= len(known):
            return None
        self._given[key] = at + 1
        taken = known[at]
        assert isinstance(taken, Begins | Ends)
        return taken

    @property
    def outputs(self) -> dict[str, facts.StepFinished]:
        """The last outputs of finished steps, by place, in the order in which the steps finished."""
        return {
            one.place: one
            for one in self.entries
            if isinstance(one, facts.StepFinished) and one.conversation != "incomplete"
        }

    def used(self, key: Key) -> RetriesUsed:
        """Return the retries that an unfinished step or an agent call has used."""
        return self._used.get(key, NO_RETRIES_USED)

    def used_in_call(self, place: str, call: str) -> RetriesUsed:
        """Return the retries that an unfinished agent call of the attempt at a place has used."""
        return self.used(agent_call_key(place, call))

    def was_retried(self, key: Key) -> bool:
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
        self.requests.mark(changed.about, changed.attempt, "retried")

    def come_again(self, key: Key) -> None:
        """Note that the resumed run makes a call that may be on record."""
        self._given[key] += 1

    def forget_calls(self) -> None:
        """Forget what the running process has taken, once nothing is left on record that it could take."""
        self._given.clear()
        self.requests.forget_calls()

    def take_left_over(self, attempt: str) -> list[tuple[str, str]]:
        """Return the calls and nested runs on record in an attempt that the resumed run has not made again.

        Each is returned once, as its place and the name of the agent call.
        """
        typed = [
            (one.place if isinstance(one, facts.CallEnded) else one.part.place, "")
            for one in self.within(attempt)
            if not isinstance(one, facts.CallEnded) or one.failure is None
        ]
        agents = [(attempt, call) for call in self.requests.calls_at(attempt)]
        left: list[tuple[str, str]] = []
        for place, call in dict.fromkeys([*typed, *agents]):
            key = agent_call_key(place, call) if call else ("call", place)
            if not self._given[key]:
                self._given[key] += 1
                left.append((place, call))
        return left
