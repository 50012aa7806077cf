"""Runs in a store: beginning one, taking one up, and its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from fastroai.errors import (
    QuestionClosed,
    RevisionConflict,
    RunExists,
    RunInProgress,
    RunNotFound,
)
from fastroai.records import Usage
from fastroai.runtime import Scope
from fastroai.runtime.fact_base import Fact
from fastroai.runtime.facts import AnswerGiven, RunFinished, RunResumed, RunStarted, WaitStarted, first_until
from fastroai.runtime.labels import NO_LABELS, Labels
from fastroai.runtime.owner import new_owner, release_owner, steady_seconds
from fastroai.store.lease import DEFAULT_TERMS, Lease, LeaseTerms
from fastroai.store.mailbox import Message, messages_in
from fastroai.store.open_questions import positions_of
from fastroai.store.reading.as_json import as_told
from fastroai.store.reading.index import add_to_index, in_any_order, leave_index, remove_from_index
from fastroai.store.reading.run_index import Begun, IndexesRuns, indexes_runs
from fastroai.store.record.declarations import OnChanged
from fastroai.store.record.definitions import fingerprint
from fastroai.store.record.entries import (
    Routing,
    RowCounts,
    RunHeader,
    entry_to_store,
)
from fastroai.store.record.entry_sizes import entry_for
from fastroai.store.record.headers import (
    FoundHeader,
    check_whole,
    encode_header,
    first_due,
    header_in,
    header_key,
    keys_of,
    log_key,
    mail_key,
    new_epoch,
    read_header,
    read_log,
    replace_header,
    spending_of,
    totals_of,
)
from fastroai.store.record.journal import Durability, Journal, patiently
from fastroai.store.record.memo import Memo
from fastroai.store.record.payloads import PayloadCodec, seal_text
from fastroai.store.record.unsealing import unseal_payloads, unseal_texts
from fastroai.store.run_store import RunStore, largest_value

T = TypeVar("T")

_FORESEEN: Final = timedelta(seconds=10)
"""Time after the announcement of an answer or message at which its run is due in any case."""
_TRIES: Final = 10
_PAUSES: Final = (0.1, 0.5, None)
"""Seconds between tries to write a header. After the last try, only the log says how the run ended."""
_MOST_APPENDS: Final = 1_000
"""The most entries that a process may append while another one takes its run."""

logger = logging.getLogger("fastroai.store")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """How runs are put on record: in which store, through which codec, and what else their callers say."""

    store: RunStore
    codec: PayloadCodec | None
    durability: Durability = "sync"
    terms: LeaseTerms = DEFAULT_TERMS
    labels: Labels = NO_LABELS
    """Tags and tenant of the runs that begin."""
    on_changed: OnChanged = "ask"
    """What a run that goes on does with answers on record whose calls are declared differently now."""
    routing: Routing | None = None
    """Which workers carry the runs that begin; `None` for this process."""


class DurableRun:
    """A run that is on record, while this process has it. Ended with `end`, once."""

    def __init__(self, options: RecordOptions, header: RunHeader, recorded: Memo) -> None:
        """Called by `begin` and `take_up`."""
        self.run_id, self.store = header.run_id, options.store
        self.recorded, self.codec = recorded, options.codec
        self.journal = Journal(
            options.store,
            header.run_id,
            log_key(header),
            revision=recorded.length,
            durability=options.durability,
            codec=options.codec,
            before=recorded.entries,
        )
        self.on_changed = options.on_changed
        """What to do with answers on record whose calls are declared differently now."""
        self.counts: Callable[[], dict[str, RowCounts]] = dict
        """Returns further fields of the header that say how far the run is."""
        self._scope: Scope | None = None
        assert header.owner is not None
        self._owner = header.owner
        self.lease = Lease(options.store, header, options.terms, was_taken_up=bool(recorded.resumptions))

    @property
    def now(self) -> float:
        """Seconds since 1970 by the store's clock, by which deadlines are on record."""
        return self.lease.now.timestamp()

    @property
    def elapsed(self) -> float:
        """Seconds since the run began, perhaps in another process."""
        return max(0.0, self.now - self.header.started_at.timestamp())

    @property
    def header(self) -> RunHeader:
        """The header with which this process took the run."""
        return self.lease.header

    def open_in(self, scope: Scope) -> None:
        """Set the scope of the whole run, which is open now."""
        self._scope, self.lease.progress = scope, lambda: self._progress(scope.spent())

    def _progress(self, usage: Usage) -> dict[str, Any]:
        """Return the fields of the header that say how far the run is."""
        return {**spending_of(usage), **self.counts(), "log_revision": self.journal.revision}

    async def check_held(self) -> None:
        """Make sure that this process still has the run, before anything happens outside of it.

        This costs a look at a clock. The store is asked only if the lease has ended since it was renewed.

        Raises:
            RunTakenOver: another process has the run, or the run was deleted.
            RunStoreUnavailable: the store has failed each time, so nobody knows who has the run.
        """
        if self.lease.has_ended:
            await self._patiently(self.lease.renew)

    async def mail(self, *, after: int) -> Sequence[tuple[int, Message]]:
        """Return the messages to the run after one, with their numbers.

        Raises:
            RunStoreUnavailable: the store has failed each time. The run stops, and can be resumed.
            RunCorrupt: a message cannot be read, or is lost.
        """
        key = mail_key(self.header)
        found = await self._patiently(lambda: self.store.read(key, after=after))
        check_whole(self.run_id, "messages", found, after=after, least=self.header.mail_revision)
        return messages_in(found, self.run_id)

    async def _patiently(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Perform an operation of the store. If it fails for good, nothing more of the run gets on record."""
        try:
            return await patiently(self.run_id, operation)
        except Exception as error:  # a store can be the user's, and raise anything
            raise self.journal.give_up(error) from None

    def entries(self) -> list[Fact]:
        """Return the whole log so far, as traces show it. Payloads that went through a codec stay sealed."""
        before = map(as_told, self.recorded.entries)
        entries = (*before, *self.journal.entries.told(self.recorded.opened.part))
        return [unseal_payloads(entry, None) for entry in entries]

    def place(self, scope: Scope) -> str:
        """Return the place of a scope of this run."""
        return scope.place_within(self._scope)

    @classmethod
    async def begin(
        cls, options: RecordOptions, entries: Sequence[Fact], *, replacing: FoundHeader | None = None
    ) -> DurableRun:
        """Put a new run on record: `RunStarted` and, for a fork, the facts that it takes over.

        A run given as `replacing` is gone afterwards. One write of the header decides both, so each process
        sees exactly one of the two runs.

        Raises:
            RunExists: the id is taken, or the run to be replaced has gone on since its header was found.
        """
        recorded, began = Memo("", entries), steady_seconds()
        header, now = await new_header(options, recorded.opened, replacing=replacing)
        with _owned(options.terms.lease(header, now, began)) as header:
            await begin_record(options, header, entries, replacing=replacing)
            return cls(options, header, recorded)

    @classmethod
    async def take_up(
        cls,
        options: RecordOptions,
        recorded: Memo,
        resumed: RunResumed,
        *,
        found: FoundHeader,
        also: Sequence[Fact] = (),
    ) -> DurableRun:
        """Take up a run that no process has.

        `found` is its header, and `recorded` its log, read after the header. `resumed` and `also` are stored
        together or not at all; afterwards `recorded` has them too, and the answers that were given meanwhile.

        Raises:
            RunInProgress: another process has the run, or has had it since the header was found.
            RunNotFound: the run was deleted since then.
            QuestionClosed: a question that `also` answers was answered since then.
        """
        store, new = options.store, (resumed, *also)
        held = found
        for _ in range(_TRIES):
            began = steady_seconds()
            held = await read_header(store, found.header.run_id)
            if held.header.epoch != found.header.epoch:
                raise _deleted(store, found.header)
            held.check_not_running()
            if held.revision != found.revision:
                await _read_answers(options, held.header, recorded, also)
            taken = options.terms.lease(_going_on(held.header, resumed), held.now, began)
            with suppress(RevisionConflict), _owned(taken) as header:
                stored = [entry_for(largest_value(store), entry, options.codec) for entry in new]
                await add_to_index(store, header, before=held.header)
                await replace_header(store, header, held.revision)
                for _ in range(_TRIES):
                    with suppress(RevisionConflict):
                        await append_own(store, log_key(header), stored, recorded.length)
                        break
                    # Somebody looked at the header before it was ours, and has answered since then.
                    await _read_answers(options, header, recorded, new)
                else:
                    raise await _taken(store, header)
                await leave_index(store, held.header, header)
                recorded.add(new)
                return cls(options, header, recorded)
        raise held.in_progress()

    async def end(self, ended: RunFinished, usage: Usage) -> None:
        """Put the end of the run on record, and give up the lease.

        Raises:
            RunStoreUnavailable: the end could not be written; the run can be resumed.
            RunTakenOver: another process has the run.
        """
        waits: dict[str, Any] = {}
        try:
            if ended.waits:
                waits = self._waits(ended)
                # Before the log says that the run waits, so that no question is missing if the process dies,
                # and before messages are looked for, so that a sender from now on makes the run due.
                await self._write_header(**waits)
                if await self._has_mail(waits["receives"]):
                    waits["due_at"] = self.header.updated_at  # at once
            await self.journal.commit(ended)
            await self.journal.aclose()
            await self.lease.stop()
            why = ended.failure
            await self._write_header(
                status=ended.status,
                owner=None,
                lease_until=None,
                **self._progress(usage),
                **totals_of(self.header, ended, self.journal.spending, self.journal.quality),
                error=None if why is None else f"{why.error_type}: {seal_text(why.message, self.codec)}",
                **waits,
            )
        finally:
            await self.release()

    async def let_go(self, usage: Usage) -> None:
        """Give up the lease before the run has ended: it is interrupted from here on.

        Raises:
            RunStoreUnavailable: some facts could not be written.
            RunTakenOver: another process has the run.
        """
        try:
            await self.journal.aclose()
            await self.lease.stop()
            await self._write_header(lease_until=None, **self._progress(usage))
        finally:
            await self.release()

    async def _write_header(self, **changes: Any) -> None:
        """Write changes to the header, if possible. A resume needs only the log, which has them too."""
        for pause in _PAUSES:
            try:
                return await self.lease.write(**changes)
            except Exception as failure:  # a store can be the user's, and raise anything
                if pause is None:
                    message = (
                        "run %r: its new status could not be written, so lists of runs may show an old one; "
                        "nothing else is lost: %s"
                    )
                    logger.warning(message, self.run_id, failure)
                    return
            await asyncio.sleep(pause)

    async def release(self) -> None:
        """Give up the run in this process: its lease, and what it was writing. The record stays as it is."""
        try:
            await self.lease.stop()
        finally:
            await self.journal.abandon()
            release_owner(self._owner)
            self.counts = dict  # what counts rows refers to this object

    def _halting(self) -> dict[int, Fact]:
        """Return facts by position in the log, among them all questions and waits of steps."""
        recorded = self.recorded
        before = dict[int, Fact](zip(recorded.positions, recorded.entries, strict=True))
        new = self.journal.halting.items()
        return before | {recorded.length + number: entry for number, entry in new}

    def _waits(self, ended: RunFinished) -> dict[str, Any]:
        """Return the fields of the header that say what a paused run waits for."""
        entries = self._halting()
        questions = positions_of(ended.waits, entries.items())
        if not ended.is_waiting:
            return {"questions": questions, "receives": (), "due_at": None}
        names = {one.id: one.name for one in ended.waits if one.what == "message"}
        started = {
            entry.wait.id: position
            for position, entry in entries.items()
            if isinstance(entry, WaitStarted) and entry.wait.id in names
        }
        return {
            "questions": questions,
            "receives": tuple((started[one], name) for one, name in names.items()),
            "due_at": first_until(ended.waits),
        }

    async def _has_mail(self, receives: Sequence[tuple[int, str]]) -> bool:
        """Return whether a message has come that a step waits for, since the step looked."""
        entries = self._halting()
        for position, name in receives:
            started = entries[position]
            assert isinstance(started, WaitStarted)
            mail = await self.mail(after=started.seen)
            if any(message.name == name for _, message in mail):
                return True
        return False


async def seize(store: RunStore, run_id: str) -> None:
    """Take a run from the process that has it, if any, even before its lease ends.

    Afterwards nobody has the run, as if that process had died after it was resumed once more.

    Raises:
        RunNotFound: there is no such run.
        RunInProgress: it changes faster than it can be taken.
    """
    found = await read_header(store, run_id)
    for _ in range(_TRIES):
        if not found.is_running:
            return
        nobody = new_owner()
        release_owner(nobody)
        header = replace(found.header, owner=nobody, lease_until=None, steady_until=None)
        with suppress(RevisionConflict):
            await replace_header(store, header, found.revision)
            await _close_log(store, header)
            return
        found = await read_header(store, run_id)
    raise found.in_progress()


async def _close_log(store: RunStore, header: RunHeader) -> None:
    """Move the log on, so that the process that had the run appends nothing more to it."""
    position = 1
    for _ in range(_MOST_APPENDS):
        try:
            return await store.append(log_key(header), [entry_to_store(RunResumed())], revision=position)
        except RevisionConflict as conflict:  # the process has appended
            if not conflict.actual:
                raise _deleted(store, header) from None
            position = conflict.actual
    raise await _taken(store, header)


async def new_header(
    options: RecordOptions, opened: RunStarted, *, replacing: FoundHeader | None = None
) -> tuple[RunHeader, datetime]:
    """Return a header for a new run, which no process has yet, and the time of the store's own clock.

    Raises:
        RunExists: the id is taken, unless by the run to be replaced.
    """
    found = await options.store.read(header_key(opened.run_id))
    if found.revision and (replacing is None or found.revision != replacing.revision):
        raise RunExists(opened.run_id, header_in(opened.run_id, found).status)
    header = RunHeader(
        run_id=opened.run_id,
        epoch=new_epoch(),
        pipeline=opened.pipeline,
        status="running",
        started_at=found.now,
        updated_at=found.now,
        forked_from=opened.forked_from,
        tags=options.labels.tags,
        tenant=options.labels.tenant,
        routing=options.routing,
    )
    return header, found.now


async def begin_record(
    options: RecordOptions,
    header: RunHeader,
    entries: Sequence[Fact],
    *,
    replacing: FoundHeader | None = None,
) -> None:
    """Put a new run on record, as a whole or not at all. The payloads of `entries` are sealed.

    Raises:
        ValueNotStorable: an entry is larger than the store takes.
        RunExists: the id was taken meanwhile, or the run to be replaced has gone on.
    """
    # The header comes last, because nobody sees the other keys before it.
    store = options.store
    stored = [entry_for(largest_value(store), entry, options.codec) for entry in entries]
    revision = 0 if replacing is None else replacing.revision
    own = indexes_runs(store)
    try:
        if own is not None and own is store:
            await _begin(own, header, stored, revision)
        else:
            await in_any_order([append_own(store, log_key(header), stored, 0), add_to_index(store, header)])
            await replace_header(store, header, revision)
    except RevisionConflict:
        with suppress(Exception):  # a purge would remove them, too
            await store.delete(log_key(header))
            await remove_from_index(store, header)
        raise RunExists(header.run_id, "running") from None
    if replacing is not None:
        await _forget(store, replacing.header)


async def _begin(store: IndexesRuns, header: RunHeader, entries: Sequence[bytes], revision: int) -> None:
    """Write a new run in one transaction, even if the answer to an earlier attempt was lost."""
    key, value = header_key(header.run_id), encode_header(header)
    begun = Begun(key=key, value=value, revision=revision, log_key=log_key(header), entries=entries)
    try:
        await store.begin_run(begun)
    except RevisionConflict:
        if (await store.read(key)).values != (value,):
            raise


async def _forget(store: RunStore, replaced: RunHeader) -> None:
    """Delete the keys of a replaced run, except its header, which another run has now. A purge would, too."""
    try:
        for key in keys_of(replaced):
            await store.delete(key)
        await remove_from_index(store, replaced)
    except Exception as error:  # a store can be the user's, and raise anything
        logger.warning("run %r: what it replaces could not be deleted: %s", replaced.run_id, error)


async def change_header(store: RunStore, found: FoundHeader, header: RunHeader) -> None:
    """Replace the header of a run, and update its index entries.

    Raises:
        RevisionConflict: another process has written the header since it was read.
    """
    await add_to_index(store, header, before=found.header)
    await replace_header(store, header, found.revision)
    await leave_index(store, found.header, header)


async def foresee(store: RunStore, found: FoundHeader) -> None:
    """Announce that an answer or a message for a run is about to be written.

    If this process dies before it says that the answer or message has come, the run is due a little later
    anyway.

    Raises:
        RevisionConflict: another process has written the header since it was read.
    """
    due = replace(found.header, due_at=first_due(found.header.due_at, found.now + _FORESEEN))
    if due != found.header:
        await change_header(store, found, due)
    await parent_due(store, due)


async def link_to_parent(store: RunStore, run_id: str, parent: str) -> FoundHeader:
    """Put on record that a run of rows waits for the run of a row, and return the header of the latter."""
    while True:
        found = await read_header(store, run_id)
        if found.header.parent == parent:
            return found
        with suppress(RevisionConflict):
            await change_header(store, found, replace(found.header, parent=parent))


async def parent_due(store: RunStore, header: RunHeader) -> None:
    """Make the run of rows due that waits for this run, when this one is due. It may be running still."""
    while header.parent and header.due_at is not None:
        try:
            found = await read_header(store, header.parent)
        except RunNotFound:
            return
        due = replace(found.header, due_at=first_due(found.header.due_at, header.due_at))
        rows = found.header.rows
        is_waiting = found.header.status == "running" or (rows is not None and rows.waiting)
        if due == found.header or not is_waiting:
            return
        with suppress(RevisionConflict):
            return await change_header(store, found, due)


def halted_no_longer(header: RunHeader) -> RunHeader:
    """Return a header without waits and without a sum, for a paused run that goes on."""
    return replace(
        header,
        status="running",
        error=None,
        questions=(),
        receives=(),
        due_at=None,
        spent=None,
        quality=None,
    )


def _going_on(header: RunHeader, resumed: RunResumed) -> RunHeader:
    """Return the header of a run that goes on, perhaps with another definition."""
    header, routing = halted_no_longer(header), header.routing
    if routing is None:
        return header
    definition = routing.definition if resumed.definition is None else fingerprint(resumed.definition)
    return replace(header, routing=replace(routing, definition=definition, failures=0, failure=None))


async def _read_answers(
    options: RecordOptions, header: RunHeader, recorded: Memo, new: Sequence[Fact]
) -> None:
    """Add to a record the answers that were given since it was read.

    Raises:
        RunInProgress: a process has had the run since then.
        LogMoved: an earlier owner has written to the log since then.
        RunNotFound: the run was deleted since then.
        QuestionClosed: one of `new` answers the same question.
    """
    entries = (await read_log(options.store, header))[recorded.length :]
    if not all(isinstance(entry, AnswerGiven) for entry in entries):
        raise await _taken(options.store, header)
    given = {entry.id for entry in new if isinstance(entry, AnswerGiven)}
    for entry in entries:
        if isinstance(entry, AnswerGiven) and entry.id in given:
            raise QuestionClosed(f"{header.run_id}:{entry.id}", "it was answered at the same time")
    recorded.add(unseal_texts(entry, options.codec) for entry in entries)


class LogMoved(RunInProgress):
    """An earlier owner of the run has written to its log since the log was read; open the run anew.

    A database can carry out a write of a process that is dead already, or cut off.
    """


async def _taken(store: RunStore, ours: RunHeader) -> RunInProgress | RunNotFound:
    """Return the error for a run that could not be taken up: its log has moved, or another process has it.

    Or somebody has deleted it.
    """
    try:
        found = await read_header(store, ours.run_id)
        if found.header.epoch == ours.epoch:
            error = found.in_progress()
            if ours.owner is not None and found.header.owner == ours.owner:
                return LogMoved(ours.run_id, error.owner, error.lease_until)
            return error
    except RunNotFound:
        pass
    await remove_from_index(store, ours)
    return _deleted(store, ours)


def _deleted(store: RunStore, header: RunHeader) -> RunNotFound:
    """Return the error for a run that was deleted, and whose id another run has now."""
    return RunNotFound(header.run_id, repr(store))


@contextmanager
def _owned(header: RunHeader) -> Iterator[RunHeader]:
    """Yield the header with this process as the owner, which it stays unless the block fails."""
    owner = new_owner()
    try:
        yield replace(header, owner=owner)
    except BaseException:
        release_owner(owner)
        raise


async def append_own(store: RunStore, key: str, values: Sequence[bytes], revision: int) -> None:
    """Append values, even if the answer to an earlier attempt was lost. Raises `RevisionConflict`."""
    try:
        await store.append(key, values, revision=revision)
    except RevisionConflict:
        if (await store.read(key, after=revision)).values != tuple(values):
            raise
