"""Runs that are driven from outside, call by call. Between two calls no process holds the run or a lease."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import time
from typing import Any, Final, Protocol, TypeAlias, assert_never, get_args

from fastroai.contracts.accepted import Accepted
from fastroai.errors import (
    ConfigurationError,
    RevisionConflict,
    RunConflict,
    nearest_hint,
)
from fastroai.runs.inputs import check_mapping, checked_inputs
from fastroai.runs.machine import Decided, Unit, unit_of
from fastroai.runs.openings import RunKeeper
from fastroai.runs.replay import Replay
from fastroai.runtime import FailureClass, classify
from fastroai.runtime.facts import (
    AnswerGiven,
    AnyFact,
    FailureFacts,
    Part,
    PauseRequested,
    QuestionAsked,
    RunFinished,
    RunResumed,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepStarted,
    StopRequested,
    Wait,
)
from fastroai.runtime.labels import labels_of
from fastroai.steps.durability import failure_facts
from fastroai.store.entries import RunHeader
from fastroai.store.entry_sizes import entry_for
from fastroai.store.headers import FoundHeader, check_run_id, log_key, read_header
from fastroai.store.open_questions import positions_of
from fastroai.store.payloads import PayloadCodec, seal_text
from fastroai.store.recorded import PartEntry, RecordedRun
from fastroai.store.run_store import largest_value
from fastroai.store.runs import append_own, begin_record, change_header, halted_no_longer, new_header

Outcome: TypeAlias = StepFinished | StepFailed | StepCancelled | QuestionAsked
"""What can be reported of a step or a visit that is due."""

Reported: TypeAlias = Outcome | AnswerGiven | PauseRequested | StopRequested
"""What can be reported of a run."""

_TRIES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A step, or a visit to a node, that has started. The caller runs it and reports the outcome."""

    step_id: str
    visit: int
    cause: str
    """The reason for which it started."""
    inputs: Mapping[str, object]
    """The inputs of the run; in a graph, the memory of the branch."""
    needs: Mapping[str, object]
    """The outputs of the steps that it depends on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrivenState:
    """The state of a driven run."""

    run_id: str
    revision: int
    """Position of the last fact in the log. Pass it to the next report as `expecting=`."""
    due: tuple[Due, ...]
    """Steps and visits that have started and not ended, in the order in which they started."""
    questions: Mapping[Unit, object]
    """Questions that wait for an answer, by node and visit, in the order in which they were asked."""
    decided: tuple[AnyFact, ...]
    """Decisions that the call has put on record, in order; empty if the call only reads."""
    finish: RunFinished | None
    """The fact that says how the run ended, or why it is paused; `None` while something is due."""


class Driven(Protocol):
    """A run, told from its log to a new state machine."""

    @property
    def replay(self) -> Replay:
        """What the machine has decided, and what is due."""
        ...

    @property
    def decisions(self) -> Sequence[Decided]:
        """What the machine has decided that is not on record, as the log stores it."""
        ...

    @property
    def questions(self) -> Mapping[Unit, object]:
        """Questions of pause nodes that wait for an answer, in the order in which they were asked."""
        ...

    @property
    def waits(self) -> tuple[Wait, ...]:
        """What the run waits for, if it is paused."""
        ...

    def known_to(self, started: StepStarted) -> tuple[Mapping[str, object], Mapping[str, object]]:
        """Return what a due step or visit is given: the inputs, and the outputs that it needs."""
        ...

    def stored(self, fact: Reported) -> Sequence[PartEntry]:
        """Return the facts that a report adds to the log, itself last. Raises an error if it is invalid."""
        ...


Retell: TypeAlias = Callable[[RecordedRun, Mapping[str, object], PayloadCodec | None], Driven]
"""Builds the state of a run from its log and its inputs."""


class DrivenRuns:
    """Runs of a pipeline or graph whose steps you run yourself. You report the outcome of each step.

        runs = pipeline.driven(store=store)
        state = await runs.begin({"text": "..."}, run_id="r1")
        for due in state.due:
            output = ...  # run it, wherever
            state = await runs.report("r1", StepFinished(due.step_id, output), expecting=state.revision)

    Each call reads the log, replays it in a new state machine, and appends the new facts at the revision that
    was read, or nothing. Nothing runs between two calls, so they can come from any process. FastroAI applies
    no budgets, retries or time limits to the steps; that is up to the code that runs them.
    """

    def __init__(self, keeper: RunKeeper, accepts: Accepted | None, retell: Retell) -> None:
        """Use `Pipeline.driven` or `Graph.driven` instead of calling this."""
        self._keeper, self._accepts, self._retell = keeper, accepts, retell

    def __repr__(self) -> str:
        return f"DrivenRuns({self._keeper.definition['name']!r}, {self._keeper.store!r})"

    async def begin(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        tags: Collection[str] = (),
        tenant: str | None = None,
    ) -> DrivenState:
        """Put a new run on record, with the first steps that are due.

        `tags` and `tenant` are names by which the run is found, as in `execute`.

        Raises:
            ConfigurationError: a tag or the tenant is no name.
            RunExists: the store has a run of this id.
            ContractViolation: the inputs are not what the pipeline or graph accepts.
            ValueNotStorable: an input cannot be stored.
            RunStoreUnavailable: the store fails. The run was put on record as a whole, or not at all.
        """
        check_mapping(inputs)
        run_id = uuid.uuid4().hex if run_id is None else run_id
        check_run_id(run_id)
        keeper = self._keeper
        given = checked_inputs(self._accepts, dict(inputs or {}), str(keeper.definition["name"]))
        opened = keeper.opened(run_id, given)
        retold = self._retold(RecordedRun(run_id, [opened]))
        decided = _as_facts(retold.decisions, opened.part)
        labels = labels_of(tags, tenant)
        header, _ = await new_header(keeper.store, opened, tags=labels.tags, tenant=labels.tenant)
        await begin_record(keeper.store, header, [opened, *decided], keeper.codec)
        return _state(run_id, 1 + len(decided), retold, decided)

    async def state(self, run_id: str) -> DrivenState:
        """Return the state of a run.

        Raises:
            RunNotFound: the store has no such run.
            RunInProgress: a process is running it.
            RunDefinitionChanged: the pipeline or graph has changed since the run was started.
            RunCorrupt: its record cannot be read.
        """
        recorded, found = await self._read(run_id)
        retold = self._retold(recorded)
        await self._see_header(recorded, found, retold)
        return _state(run_id, len(recorded.entries), retold, ())

    async def report(self, run_id: str, fact: Reported, *, expecting: int) -> DrivenState:
        """Put the outcome of a due step on record, or an answer, or a request to pause or to stop.

        An answer takes up a run that waits for it. If a run is to stop, or a branch is cancelled, report each
        step that is still due in it as `StepCancelled`; nothing else can be reported so.

        Args:
            run_id: The run.
            fact: The fact to report. Its values are checked against the declared types.
            expecting: The revision that you read last.

        Raises:
            RunConflict: the run has gone on since then. Read it again.
            RunInProgress: a process runs it.
            ConfigurationError: the run does not wait for this report, or it is no fact that can be reported.
            ContractViolation: an output is not what the node writes.
            ValueNotStorable: a value cannot be stored.
            RunStoreUnavailable: the store fails. The report was put on record as a whole, or not at all.
        """
        _check_fact(fact)
        recorded, found = await self._read_at(run_id, expecting)
        before: list[AnyFact] = []
        retold = self._retold(recorded)
        if isinstance(fact, AnswerGiven) and recorded.ended is not None:
            before = [RunResumed(part=recorded.opened.part)]
            recorded.add(before)
            retold = self._retold(recorded)
            retold.replay.finish = None
            before += _as_facts(retold.decisions, recorded.opened.part)
        _check_due(run_id, retold, fact)
        part = recorded.opened.part
        stored = [replace(one, part=part, timestamp=time()) for one in retold.stored(fact)]
        retold.replay.decided.clear()
        for position, one in enumerate(stored, len(recorded.entries) + 1):
            recorded.add([one])
            retold.replay.read(position, one)
        return await self._append(found, recorded.entries[:expecting], [*before, *stored], retold)

    async def resume(
        self, run_id: str, inputs: Mapping[str, Any] | None = None, *, expecting: int
    ) -> DrivenState:
        """Go on with a run that has failed, was cancelled, or is paused; due steps start anew.

        `inputs` replace those of the same names. A run that has finished stays as it is. Raises the same
        errors as `report`.
        """
        check_mapping(inputs)
        recorded, found = await self._read_at(run_id, expecting)
        if recorded.ended is not None and recorded.ended.status == "finished":
            return _state(run_id, expecting, self._retold(recorded), ())
        resumed = RunResumed(part=recorded.opened.part, inputs=self._keeper.stored(dict(inputs or {})))
        recorded.add([resumed])
        return await self._append(found, recorded.entries[:-1], [resumed], self._retold(recorded))

    async def _read(self, run_id: str) -> tuple[RecordedRun, FoundHeader]:
        recorded, found = await self._keeper.read(run_id, running_too=False)
        self._keeper.check_definition(recorded, None)
        return recorded, found

    async def _read_at(self, run_id: str, revision: int) -> tuple[RecordedRun, FoundHeader]:
        if not isinstance(revision, int) or isinstance(revision, bool) or revision < 1:
            expected = "the revision of the state that was read last, as a whole number: state.revision"
            raise ConfigurationError("expecting", revision, expected)
        recorded, found = await self._read(run_id)
        if len(recorded.entries) != revision:
            raise RunConflict(run_id, revision)
        return recorded, found

    def _retold(self, recorded: RecordedRun) -> Driven:
        inputs = self._keeper.restored(recorded.opened.run_id, recorded.inputs)
        retold = self._retell(recorded, inputs, self._keeper.codec)
        if recorded.ended is not None:
            retold.replay.finish = recorded.ended  # the machine is not told of time limits
        return retold

    async def _append(
        self, found: FoundHeader, before: list[AnyFact], entries: list[AnyFact], retold: Driven
    ) -> DrivenState:
        """Add a report, and the decisions after it, to the log that was read."""
        run_id, store, revision = found.header.run_id, self._keeper.store, len(before)
        decided = _as_facts(retold.decisions, entries[0].part)
        entries = [*entries, *decided]
        largest = largest_value(self._keeper.store)
        stored = [entry_for(largest, one, self._keeper.codec) for one in entries]
        questions = positions_of(retold.waits, enumerate([*before, *entries], 1))
        announced = await self._announced(found, questions)
        try:
            await append_own(store, log_key(found.header), stored, revision)
        except RevisionConflict:
            if announced is not found:
                await self._settle_header(run_id)
            raise RunConflict(run_id, revision) from None
        ended = next((one for one in decided if isinstance(one, RunFinished)), None)
        await self._write_header(announced, ended, questions)
        return _state(run_id, revision + len(entries), retold, decided)

    async def _announced(self, found: FoundHeader, questions: Sequence[int]) -> FoundHeader:
        """Write new questions into the header before the log has them, so that none is ever missing."""
        owner = found.header.owner
        for _ in range(_TRIES):
            header = found.header
            if header.owner != owner or set(questions) <= set(header.questions):
                break
            header = replace(header, questions=tuple(sorted({*header.questions, *questions})))
            with suppress(RevisionConflict):
                await change_header(self._keeper.store, found, header)
                return replace(found, header=header, revision=found.revision + 1)
            found = await read_header(self._keeper.store, header.run_id)
        return found

    async def _see_header(self, recorded: RecordedRun, found: FoundHeader, retold: Driven) -> None:
        """Bring a header up to date if its driver or process died before it could.

        The header of a run whose process died in the middle says so until somebody goes on with the run.
        """
        questions = positions_of(retold.waits, enumerate(recorded.entries, 1))
        held, header = found.header, self._header(found, recorded.ended, questions)
        if held.status != header.status or (held.owner is None and held.questions != header.questions):
            await self._write_header(found, recorded.ended, questions)

    async def _write_header(
        self, found: FoundHeader, ended: RunFinished | None, questions: tuple[int, ...]
    ) -> None:
        """Bring the header up to date. If this fails, the next `state` repairs it from the log."""
        try:
            await change_header(self._keeper.store, found, self._header(found, ended, questions))
        except RevisionConflict:
            await self._settle_header(found.header.run_id)

    async def _settle_header(self, run_id: str) -> None:
        """Several drivers have reported one after the other, and their headers overtake each other."""
        for _ in range(_TRIES):
            recorded, found = await self._keeper.read(run_id, running_too=True)
            if found.header.owner is not None:
                return  # a process has taken it up
            questions = positions_of(self._retold(recorded).waits, enumerate(recorded.entries, 1))
            with suppress(RevisionConflict):
                header = self._header(found, recorded.ended, questions)
                await change_header(self._keeper.store, found, header)
                return

    def _header(self, found: FoundHeader, ended: RunFinished | None, questions: tuple[int, ...]) -> RunHeader:
        why = None if ended is None else ended.failure
        is_paused = ended is not None and ended.status == "paused"
        return replace(
            found.header if is_paused else halted_no_longer(found.header),
            status="running" if ended is None else ended.status,
            owner=None,
            lease_until=None,
            error=None if why is None else f"{why.error_type}: {seal_text(why.message, self._keeper.codec)}",
            questions=questions if ended is None or ended.status == "paused" else (),
            updated_at=found.now,
        )


def _check_fact(fact: Reported) -> None:
    """Refuse what is no fact, before anything is read. Raises `ConfigurationError`."""
    if not isinstance(fact, get_args(Reported)):
        known = ", ".join(kind.__name__ for kind in get_args(Reported))
        raise ConfigurationError("fact", fact, f"one of {known}: StepFinished('read', output)")
    if not isinstance(fact, StepFailed):
        return
    failure = fact.failure
    if not isinstance(failure, FailureFacts):
        example = "FailureFacts(error_type='ValueError', message='...', failure_class='ambiguous')"
        raise ConfigurationError("failure", failure, f"what is written down of an exception: {example}")
    for field in ("error_type", "message"):
        if not isinstance(value := getattr(failure, field), str):
            raise ConfigurationError(f"failure.{field}", value, "text")
    if failure.failure_class not in (classes := [one.value for one in FailureClass]):
        raise ConfigurationError("failure.failure_class", failure.failure_class, f"one of {classes}")


def _check_due(run_id: str, retold: Driven, fact: Reported) -> None:
    """Raise `ConfigurationError` if the run does not wait for what is reported."""
    replay = retold.replay
    if replay.finish is not None and not isinstance(fact, AnswerGiven):
        raise ConfigurationError("fact", fact.kind, _nothing_due(run_id, retold, replay.finish))
    match fact:
        case AnswerGiven():
            known = list(retold.questions)
            if unit_of(fact) not in known:
                raise _not_due(run_id, fact, "the answer to a question that waits for one", known)
        case StepFinished() | StepFailed() | StepCancelled() | QuestionAsked():
            known = [*replay.due]
            if unit_of(fact) not in known:
                raise _not_due(run_id, fact, "the outcome of something that is due", known)
            if isinstance(fact, StepCancelled) and unit_of(fact) not in replay.cancelled:
                expected = (
                    f"StepFinished or StepFailed: nothing has cancelled {fact.step_id!r} in run {run_id!r}. "
                    "To end the run, report StopRequested before"
                )
                raise ConfigurationError("fact", fact.kind, expected)
        case PauseRequested() | StopRequested():
            pass
        case _:
            assert_never(fact)


def _nothing_due(run_id: str, retold: Driven, finish: RunFinished) -> str:
    if retold.questions:
        return f"an AnswerGiven: run {run_id!r} waits for answers to {_names(list(retold.questions))}"
    hint = "" if finish.status == "finished" else ". To go on with it, resume it"
    return f"none: run {run_id!r} is {finish.status}{hint}"


def _names(units: Sequence[Unit]) -> str:
    return ", ".join(f"{step!r} (visit {visit})" for step, visit in units) or "nothing"


def _not_due(
    run_id: str, fact: Outcome | AnswerGiven, expected: str, known: Sequence[Unit]
) -> ConfigurationError:
    given = f"{fact.kind} of {fact.step_id!r}, visit {fact.visit}"
    hint = "" if any(fact.step_id == step for step, _ in known) else nearest_hint(fact.step_id, dict(known))
    return ConfigurationError("fact", given, f"{expected}; in run {run_id!r}, that is {_names(known)}.{hint}")


def _as_facts(decided: Sequence[Decided], part: Part) -> list[AnyFact]:
    """Return decisions as facts for the log, with the current time."""
    at = time()
    return [_with_failure(replace(one, part=part, timestamp=at)) for one in decided]


def _with_failure(fact: AnyFact) -> AnyFact:
    """Return the end of a run with its error in the form that the log stores."""
    if isinstance(fact, RunFinished) and fact.failure is None and fact.raised is not None:
        return replace(fact, failure=failure_facts(fact.raised, classify(fact.raised)))
    return fact


def _state(run_id: str, revision: int, retold: Driven, decided: Sequence[AnyFact]) -> DrivenState:
    due: list[Due] = []
    finish = retold.replay.finish
    for started in () if finish is not None else retold.replay.due.values():
        inputs, needs = retold.known_to(started)
        due.append(
            Due(
                step_id=started.step_id,
                visit=started.visit,
                cause=started.cause,
                inputs=inputs,
                needs=needs,
            )
        )
    return DrivenState(
        run_id=run_id,
        revision=revision,
        due=tuple(due),
        questions=dict(retold.questions),
        decided=tuple(decided),
        finish=finish,
    )
