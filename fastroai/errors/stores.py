"""Stores and the runs in them."""

from __future__ import annotations

from datetime import datetime

from fastroai.errors.base import FastroAIError
from fastroai.version import DISTRIBUTION


class FlowStopped(FastroAIError):
    """A run of a flow has no output yet: it waits for a person, or was paused or cancelled.

    `status` is the status of the run, `reason` explains it, and `questions` are its open questions.
    `waits_until` is the time at which `wake` continues it, if it waits for one.
    `await flow.resume(run_id)` continues the run.

    What to do: Answer the `questions`, if there are any. Then resume the run; or call `flow.wake()`, which
    resumes all runs that can go on.
    """

    def __init__(
        self,
        flow: str,
        run_id: str,
        status: str,
        reason: str,
        questions: tuple[object, ...] = (),
        waits_until: datetime | None = None,
    ) -> None:
        super().__init__(flow, run_id, status, reason, questions, waits_until)
        self.flow, self.status, self.reason, self.questions = flow, status, reason, questions
        self.run_id, self.waits_until = run_id, waits_until

    def __str__(self) -> str:
        asked = ", ".join(str(getattr(one, "id", one)) for one in self.questions)
        why = f"it waits for the answer to {asked}" if asked else self.reason
        return (
            f"flow {self.flow!r} is {self.status}: {why}. "
            f"To continue it: await {self.flow}.resume({self.run_id!r})"
        )


class StoreUnavailable(FastroAIError):
    """A store could not be reached, did not answer, or cannot write. `advice` says what to do.

    What to do: Do as `advice` says, then try again.
    """

    retryable = True

    def __init__(
        self, store: str, reason: str, advice: str = "check its address, and whether it is running"
    ) -> None:
        super().__init__(store, reason, advice)
        self.store, self.reason, self.advice = store, reason, advice

    def __str__(self) -> str:
        return f"store {self.store} is unavailable: {self.reason}; {self.advice}"


class SpendStoreUnavailable(StoreUnavailable):
    """The store of a `SpendLimit` could not be reached or did not answer, so the limit cannot be kept.

    What to do: See that the store is there and answers, or say what to do meanwhile:
    `SpendLimit(on_unavailable=...)`.
    """

    def __str__(self) -> str:
        return (
            f"spend {super().__str__()}; SpendLimit(on_unavailable='allow') would send requests without "
            "counting them"
        )


class RunStoreUnavailable(StoreUnavailable):
    """A store of runs could not be reached, did not answer, or cannot write.

    No write is half done. If the answer of the store was lost, the whole write may have been done.

    What to do: See that the store is there and answers, then resume the run: nothing that it had on record is
    lost.
    """

    retryable = False  # writing is retried by itself; the work to be written must not be done again

    def __str__(self) -> str:
        return (
            f"run {super().__str__()}. No write is half done. When the store works again, resume the run if "
            "this error stopped one; a call that only reads can be repeated"
        )


class RevisionConflict(FastroAIError):
    """Another write to a key came first, after it was read; nothing was written now.

    After an operation whose connection dropped, that write can be the caller's own.

    What to do: Read the key again, and write what follows from its new value.
    """

    def __init__(self, key: str, expected: int, actual: int) -> None:
        super().__init__(key, expected, actual)
        self.key, self.expected, self.actual = key, expected, actual

    def __str__(self) -> str:
        return (
            f"key {self.key!r} is at revision {self.actual}, not {self.expected}: another process, or an "
            "earlier attempt at the same write, has changed it; read the key again, then write"
        )


class RunExists(FastroAIError):
    """A run with this id is in the store already.

    What to do: Resume that run, or choose another id. A run `of` something else cannot be resumed here.
    """

    def __init__(self, run_id: str, status: str, of: str = "") -> None:
        super().__init__(run_id, status, of)
        self.run_id, self.status, self.of = run_id, status, of

    def __str__(self) -> str:
        if self.of:
            return (
                f"run {self.run_id!r} is in the store already ({self.status}), and it is a run of {self.of}; "
                "choose another run_id"
            )
        return (
            f"run {self.run_id!r} is in the store already ({self.status}); continue it with "
            "resume(run_id) or execute(..., on_existing='resume'), or choose another run_id"
        )


class RunNotFound(FastroAIError, KeyError):
    """The store has no run with this id, or without a store, this process runs none.

    What to do: Check the id and the store, as the message names them.
    """

    def __init__(self, run_id: str, store: str | None) -> None:
        super().__init__(run_id, store)
        self.run_id, self.store = run_id, store

    def __str__(self) -> str:
        if self.store is None:
            return (
                f"this process does not run {self.run_id!r}, and no store was given in which to look for it; "
                f"check the id, and pass the store that keeps the run: store=..."
            )
        return (
            f"there is no run {self.run_id!r} in {self.store}; check the id (fastroai runs list) and the "
            f"store, or start a run with run_id={self.run_id!r}"
        )


class RunInProgress(FastroAIError):
    """The run is running in another process, or in another task of this one.

    What to do: Wait for the other process, or pass `on_busy="enqueue"` or `"interrupt"`.
    """

    retryable = True

    def __init__(self, run_id: str, owner: str, lease_until: datetime) -> None:
        super().__init__(run_id, owner, lease_until)
        self.run_id, self.owner, self.lease_until = run_id, owner, lease_until

    def __str__(self) -> str:
        return (
            f"run {self.run_id!r} is running in {self.owner.partition(' (')[0]}, which holds it until "
            f"{self.lease_until:%H:%M:%S} UTC at least; wait for it, or end that process"
        )


class RunStatusConflict(FastroAIError):
    """The status of the run does not allow the operation: a run that has finished cannot be cancelled.

    What to do: Look at the status of the run; some operations need it to run or to wait.
    """

    def __init__(self, run_id: str, status: str, expected: str) -> None:
        super().__init__(run_id, status, expected)
        self.run_id, self.status, self.expected = run_id, status, expected

    def __str__(self) -> str:
        return f"run {self.run_id!r} is {self.status}; expected {self.expected}"


class RunTakenOver(FastroAIError):
    """Another process has taken this run over, after its lease had ended or by force; or its record is gone.

    What to do: Let the other process continue, and follow the run from here. If this one was only slow, give
    runs a longer `lease=`.
    """

    def __init__(self, run_id: str, is_gone: bool = False) -> None:
        super().__init__(run_id, is_gone)
        self.run_id = run_id
        self.is_gone = is_gone
        """Whether the record of the run is gone from the store, so that nobody can resume it."""

    def __str__(self) -> str:
        if self.is_gone:
            return (
                f"run {self.run_id!r} is gone from its store. It was deleted, or the store has lost it, as "
                "Redis can when it evicts keys or restarts. The run cannot be resumed; start a new one"
            )
        return (
            f"run {self.run_id!r} was deleted, or another process has taken it over: by force, or because "
            "this process did not renew its lease in time. What this process did on the run since then is "
            "not stored. If it was only slow, give runs a longer lease: PipelineConfig(lease=...)"
        )


class RunConflict(FastroAIError):
    """The run changed after the caller read it, so this call has stored nothing.

    What to do: Read the run again, and repeat the call if it still makes sense.
    """

    def __init__(self, run_id: str, expecting: int) -> None:
        super().__init__(run_id, expecting)
        self.run_id, self.expecting = run_id, expecting

    def __str__(self) -> str:
        return (
            f"run {self.run_id!r} is no longer at revision {self.expecting}: another call has reported to "
            "it or resumed it. This call has stored nothing. Read the run again, then decide"
        )


class RunDefinitionChanged(FastroAIError):
    """The pipeline or graph has changed since the run was started.

    What to do: Resume with the definition as it was, or with `force=True` if
    the change does no harm.
    """

    def __init__(
        self,
        run_id: str,
        changes: tuple[str, ...],
        kind: str = "pipeline",
        versions: tuple[str | None, str | None] = (None, None),
    ) -> None:
        super().__init__(run_id, changes, kind, versions)
        self.run_id, self.changes, self.kind, self.versions = run_id, changes, kind, versions

    def __str__(self) -> str:
        changes = "".join(f"\n  - {change}" for change in self.changes)
        before, now = self.versions
        versions = f" (version {before or 'unnamed'}, now {now or 'unnamed'})"
        if before == now:
            versions = "" if now is None else f" (both are called version {now})"
        return (
            f"the {self.kind} has changed since run {self.run_id!r} was started{versions}:{changes}\n"
            f"Resume it with the {self.kind} as it was, or take the risk: {self.kind}.resume(..., force=True)"
        )


class CallChangedError(FastroAIError):
    """The declaration of a call has changed since its answer was stored, so the answer is not used.

    With `on_changed="fail"`, nothing was sent. With `"keep"`, the answer does not fit the new declaration.

    What to do: Resume with `on_changed="ask"` to ask again, or undo the change of the declaration.
    """

    def __init__(
        self, run_id: str, step: str, call: str, changed: tuple[str, ...], misfit: str | None = None
    ) -> None:
        super().__init__(run_id, step, call, changed, misfit)
        self.run_id, self.step, self.call, self.changed, self.misfit = run_id, step, call, changed, misfit

    def __str__(self) -> str:
        what = ", ".join(self.changed)
        changed = (
            f"step {self.step!r} of run {self.run_id!r}: the declaration of {self.call} has changed ({what})"
        )
        if self.misfit is None:
            return (
                f"{changed} since its answer was stored, and on_changed='fail'; nothing was sent. "
                "Resume the run with the earlier declaration, with on_changed='ask' to ask the model again, "
                "or with on_changed='keep' to use the stored answer"
            )
        return (
            f"{changed}, and the stored answer, which on_changed='keep' is to use, does not fit it: "
            f"{self.misfit}. Resume the run with on_changed='ask' to ask the model again, or with the "
            "earlier declaration"
        )


class RunCorrupt(FastroAIError):
    """The record of a run cannot be read: entry `position` of its log, or another part if that is 0.

    What to do: Read `reason`. If it names a codec or a declared type, use those with which the run began: its
    record is intact. Otherwise restore the store from a backup, or delete the run. Other runs are not
    affected.
    """

    def __init__(self, run_id: str, position: int, reason: str) -> None:
        super().__init__(run_id, position, reason)
        self.run_id, self.position, self.reason = run_id, position, reason

    def __str__(self) -> str:
        what = f"entry {self.position}" if self.position else "the record"
        return (
            f"{what} of run {self.run_id!r} cannot be read: {self.reason}. If that cannot be set right, "
            "restore the store from a backup, or start a new run; "
            f"RunHistory(store).delete({self.run_id!r}, force=True) deletes this one"
        )


class RunFromNewerVersion(FastroAIError):
    """A later version of FastroAI has written the record of this run.

    What to do: Update FastroAI to the version that has written it.
    """

    def __init__(self, run_id: str, format: int, known: int) -> None:
        super().__init__(run_id, format, known)
        self.run_id, self.format, self.known = run_id, format, known

    def __str__(self) -> str:
        return (
            f"run {self.run_id!r} is written in format {self.format}, and this version of fastroai reads up "
            f"to {self.known}; nothing was run. Update it (pip install -U {DISTRIBUTION}), or start a new run"
        )


class RunFromOlderVersion(FastroAIError):
    """An earlier version of FastroAI has written the record of this run.

    What to do: Resume the run with the version that has written it, start a new run, or delete it.
    """

    def __init__(self, run_id: str, format: int, known: int) -> None:
        super().__init__(run_id, format, known)
        self.run_id, self.format, self.known = run_id, format, known

    def __str__(self) -> str:
        return (
            f"run {self.run_id!r} is written in format {self.format}, and this version of fastroai reads "
            f"format {self.known} and later ones; nothing was run. Resume it with the version that wrote it, "
            "start a new run, or delete it: RunHistory(store).delete(run_id, force=True)"
        )


class UnknownFactKind(FastroAIError):
    """A run cannot continue, because no imported module declares the fact at `position` in its log.

    What to do: Import the module that declares this kind of fact, and resume the run again.
    """

    def __init__(self, run_id: str, position: int, kind: str) -> None:
        super().__init__(run_id, position, kind)
        self.run_id, self.position, self.kind = run_id, position, kind

    def __str__(self) -> str:
        return (
            f"run {self.run_id!r} cannot continue: entry {self.position} of its log is a {self.kind!r}, "
            "which no imported module declares; nothing was run. Import the module with that subclass "
            "of fastroai.pipelines.Fact, and try again; the trace of the run can be read without it"
        )


class ValueNotStorable(FastroAIError, TypeError):
    """A value cannot be stored: it could not be restored unchanged, or it is too large for the store.

    What to do: Return plain JSON, or declare the type of the value. If it is too large, keep the data
    elsewhere and return where it is, or use an `OffloadingRunStore`.
    """

    def __init__(self, what: str, field: str, type_name: str, reason: str) -> None:
        super().__init__(what, field, type_name, reason)
        self.what, self.field, self.type_name, self.reason = what, field, type_name, reason

    def __str__(self) -> str:
        where = f" at {self.field}" if self.field else ""
        return f"{self.what} cannot be stored: {self.type_name}{where}: {self.reason}"
