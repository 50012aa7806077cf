"""Runs that are driven from outside, call by call. Between two calls no process holds the run or a lease."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, get_args

from fastroai.contracts.accepted import Accepted
from fastroai.errors import ConfigurationError, RunConflict, nearest_hint
from fastroai.runs.inputs import check_mapping, checked_inputs
from fastroai.runs.machine import Unit, unit_of
from fastroai.runs.openings import RunKeeper
from fastroai.runs.told import Rebuild, ToldRun, ToldRuns, ToldState
from fastroai.runtime import FailureClass
from fastroai.runtime.facts import (
    AnswerGiven,
    Fact,
    FailureFacts,
    PauseRequested,
    PlanFact,
    QuestionAsked,
    RunFact,
    RunFinished,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepStarted,
    StopRequested,
)
from fastroai.runtime.labels import labels_of
from fastroai.store.headers import check_run_id

Outcome: TypeAlias = StepFinished | StepFailed | StepCancelled | QuestionAsked
"""Facts that can be reported about a step or a visit that is due."""

Reported: TypeAlias = Outcome | AnswerGiven | PauseRequested | StopRequested
"""Facts that can be reported about a run."""


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
    """The outputs of the steps on which it depends."""


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
    decided: tuple[Fact, ...]
    """Decisions that the call has put on record, in order; empty if the call only reads."""
    finish: RunFinished | None
    """The fact that says how the run ended, or why it is paused; `None` while something is due."""


class Driven(ToldState, Protocol):
    """A pipeline or graph whose machine was told the log of a run."""

    @property
    def questions(self) -> Mapping[Unit, object]:
        """Questions of pause nodes that wait for an answer, in the order in which they were asked."""
        ...

    def known_to(self, started: StepStarted) -> tuple[Mapping[str, object], Mapping[str, object]]:
        """Return the inputs of a due step or visit, and the outputs that it needs."""
        ...

    def stored(self, fact: Reported) -> Sequence[PlanFact]:
        """Return the facts that a report adds to the log, the report last. Raises if it is invalid."""
        ...


class DrivenRuns:
    """Runs of a pipeline or graph whose steps you run yourself. You report the outcome of each step.

        runs = pipeline.driven(store=store)
        state = await runs.begin({"text": "..."}, run_id="r1")
        for due in state.due:
            output = ...  # run it, wherever
            state = await runs.report("r1", StepFinished(due.step_id, output), expecting=state.revision)

    Each call reads the new facts in the log, tells them to a state machine, and appends further facts at the
    revision that it has read, all of them or none. Nothing runs between two calls, so they can come from any
    process. FastroAI applies no budgets, retries or time limits to the steps: the code that runs them may.
    """

    def __init__(self, keeper: RunKeeper, accepts: Accepted | None, rebuild: Rebuild[Driven]) -> None:
        """Use `Pipeline.driven` or `Graph.driven` instead of calling this."""
        self._keeper, self._accepts = keeper, accepts
        self._runs = ToldRuns(keeper, rebuild)

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
            ConfigurationError: an invalid tag or tenant.
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
        told = self._runs.begun(keeper.opened(run_id, given))
        await self._runs.put_on_record(told, labels_of(tags, tenant))
        return _state(told)

    async def state(self, run_id: str) -> DrivenState:
        """Return the state of a run.

        Raises:
            RunNotFound: the store has no such run.
            RunInProgress: a process is running it.
            RunDefinitionChanged: the pipeline or graph has changed since the run was started.
            RunCorrupt: its record cannot be read.
        """
        async with self._opened(run_id) as told:
            await self._runs.see_header(told)
            return _state(told)

    async def report(self, run_id: str, fact: Reported, *, expecting: int) -> DrivenState:
        """Put the outcome of a due step on record, or an answer, or a request to pause or to stop.

        An answer takes up a run that waits for it. After a request to stop, or if a branch is cancelled,
        report each step that is still due there as `StepCancelled`. Other steps cannot be reported so.

        Args:
            run_id: The run.
            fact: The fact to report. Its values are checked against the declared types.
            expecting: The revision that you read last.

        Raises:
            RunConflict: the run has gone on since that revision. Read its state again.
            RunInProgress: a process runs it.
            ConfigurationError: the run does not wait for this report, or the fact cannot be reported.
            ContractViolation: an output does not have what the node writes.
            ValueNotStorable: a value cannot be stored.
            RunStoreUnavailable: the store fails. The report was put on record as a whole, or not at all.
        """
        _check_fact(fact)
        async with self._opened(run_id, _revision(expecting)) as told:
            if isinstance(fact, AnswerGiven) and told.recorded.ended is not None:
                self._runs.resume(told)
                told.decided.clear()
            _check_due(run_id, told.driven, fact)
            told.add(told.driven.stored(fact))
            await self._runs.save(told)
            return _state(told)

    async def resume(
        self, run_id: str, inputs: Mapping[str, Any] | None = None, *, expecting: int
    ) -> DrivenState:
        """Resume a run that has failed, was cancelled, or is paused. Due steps start anew.

        `inputs` replace those of the same names. A run that has finished stays as it is. Raises the same
        errors as `report`.
        """
        check_mapping(inputs)
        async with self._opened(run_id, _revision(expecting)) as told:
            if told.recorded.ended is None or told.recorded.ended.status != "finished":
                self._runs.resume(told, inputs)
                await self._runs.save(told)
            return _state(told)

    @asynccontextmanager
    async def _opened(self, run_id: str, expecting: int | None = None) -> AsyncIterator[ToldRun[Driven]]:
        """Open a run for one call. With `expecting`, raise `RunConflict` if it is at another revision."""
        check_run_id(run_id)
        async with self._runs.opened(run_id) as told:
            self._keeper.check_definition(told.recorded, None)
            if expecting is not None and told.revision != expecting:
                raise RunConflict(run_id, expecting)
            yield told


def _check_fact(fact: Reported) -> None:
    """Check that a fact can be reported, before anything is read. Raises `ConfigurationError`."""
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


def _revision(given: int) -> int:
    """Check a revision and return it. Raises `ConfigurationError`."""
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        expected = "the revision of the state that was read last, as a whole number: state.revision"
        raise ConfigurationError("expecting", given, expected)
    return given


def _check_due(run_id: str, driven: Driven, fact: Reported) -> None:
    """Raise `ConfigurationError` if the run does not wait for the reported fact."""
    replay = driven.replay
    if replay.finish is not None and not isinstance(fact, AnswerGiven):
        raise ConfigurationError("fact", fact.kind, _nothing_due(run_id, driven, replay.finish))
    if isinstance(fact, RunFact):
        return
    if isinstance(fact, AnswerGiven):
        known, expected = [*driven.questions], "the answer to a question that waits for one"
    else:
        known, expected = [*replay.due], "the outcome of something that is due"
    if unit_of(fact) not in known:
        raise _not_due(run_id, fact, expected, known)
    if isinstance(fact, StepCancelled) and unit_of(fact) not in replay.cancelled:
        expected = (
            f"StepFinished or StepFailed: nothing has cancelled {fact.step_id!r} in run {run_id!r}. "
            "To end the run, report StopRequested before"
        )
        raise ConfigurationError("fact", fact.kind, expected)


def _nothing_due(run_id: str, driven: Driven, finish: RunFinished) -> str:
    if driven.questions:
        return f"an AnswerGiven: run {run_id!r} waits for answers to {_names(list(driven.questions))}"
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


def _state(told: ToldRun[Driven]) -> DrivenState:
    driven, due = told.driven, list[Due]()
    finish = told.finish
    for started in () if finish is not None else driven.replay.due.values():
        inputs, needs = driven.known_to(started)
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
        run_id=told.recorded.opened.run_id,
        revision=told.revision,
        due=tuple(due),
        questions=dict(driven.questions),
        decided=tuple(told.decided),
        finish=finish,
    )
