"""Messages to runs, from any process that reaches their store."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

from pydantic import JsonValue

from fastroai.errors import ConfigurationError, MessageRejected, RevisionConflict, RunNotFound
from fastroai.human.answers import given_json, question_ref
from fastroai.human.schema_checks import problems_of
from fastroai.runtime.facts import WaitStarted
from fastroai.store.backends.adapter import adapt_run_store
from fastroai.store.mailbox import post
from fastroai.store.open_questions import asked_at
from fastroai.store.record.entries import RunHeader
from fastroai.store.record.headers import check_run_id, first_due, mail_key, read_header, read_log_from
from fastroai.store.record.payloads import PayloadCodec, check_codec, is_sealed, seal
from fastroai.store.record.runs import change_header, foresee, parent_due
from fastroai.store.record.unsealing import unseal_one, unseal_payloads
from fastroai.store.run_store import RunStore, RunStoreLike

_TRIES: Final = 10
_LONGEST_NAME: Final = 200


def check_name(name: object) -> None:
    """Check the name of a message. Raises `ConfigurationError`."""
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
        raise ConfigurationError("name", name, f"the name of a message, 1 to {_LONGEST_NAME} characters")


async def send_message(
    run_id: str, name: str, value: object = None, *, store: RunStoreLike, codec: PayloadCodec | None = None
) -> None:
    """Send a message to a run. A step of the run gets the message from `ctx.receive`.

        await send_message("order-1182", "paid", {"amount": 120}, store=store)

    It needs no code of the pipeline. The run may be running, in any process, or paused, and need not wait for
    the message yet: messages with one name are received in the order in which they were sent, each once.
    If the run waits for this message, `wake` resumes it from now on.

    Args:
        run_id: The run.
        name: The name of the message, 1 to 200 characters.
        value: The message, as JSON or as a value that has a form in JSON. If the run waits for it, it is
            checked against the JSON Schema of the type; the step checks it again by the type itself.
        store: The store that has the run.
        codec: The codec of the runs, if they have one.

    Raises:
        MessageRejected: the run has finished, or has had 10,000 messages; the message is not of the type that
            the run waits for, has no form in JSON, is too large for the store, or would answer a question,
            for which there is the inbox; or the run has a codec and none was given.
        ConfigurationError: `run_id`, `name`, `store` or `codec` is invalid.
        RunNotFound: the store has no such run.
        RunCorrupt: its record cannot be read.
        RunStoreUnavailable: the store fails. The message may have been sent all the same.
    """
    check_run_id(run_id)
    check_name(name)
    check_codec(codec)
    opened = adapt_run_store(store)
    try:
        given = given_json(value)
    except ValueError as error:
        raise MessageRejected(run_id, name, f"JSON cannot hold it: {error}") from error
    header = await _announced(opened, run_id, name, given, codec)
    number = await post(opened, header, name, seal(given, codec))
    await _tell(opened, header, name, number)


async def _announced(
    store: RunStore, run_id: str, name: str, value: JsonValue, codec: PayloadCodec | None
) -> RunHeader:
    """Return the header of a run. If the run waits for the message, announce that it is due soon."""
    found = await read_header(store, run_id)
    for _ in range(_TRIES):
        await _check(store, found.header, name, value, codec)
        if not _waits_for(found.header, name):
            break
        with suppress(RevisionConflict):
            await foresee(store, found)
            break
        found = await read_header(store, run_id)
    return found.header


def _waits_for(header: RunHeader, name: str) -> bool:
    return name in (known for _, known in header.receives)


async def _check(
    store: RunStore, header: RunHeader, name: str, value: JsonValue, codec: PayloadCodec | None
) -> None:
    """Refuse a message that no step can receive. Raises `MessageRejected`."""
    if header.status == "finished":
        raise MessageRejected(header.run_id, name, "the run has finished")
    first = min((*header.questions, *(position for position, _ in header.receives)), default=None)
    entries = {} if first is None else await read_log_from(store, header, first)
    waiting = [(position, entries.get(position)) for position, known in header.receives if known == name]
    started = [
        unseal_one(header.run_id, position, one, lambda sealed: unseal_payloads(sealed, codec))
        for position, one in waiting
        if isinstance(one, WaitStarted)
    ]
    schemas = [one.value_schema for one in started if one.value_schema is not None]
    if codec is None and any(map(is_sealed, schemas)):
        reason = "the run has a codec; pass it as codec=, so that the message is stored encoded, too"
        raise MessageRejected(header.run_id, name, reason)
    problems = [problems_of(value, schema) for schema in schemas]
    if problems and all(problems):
        raise MessageRejected(header.run_id, name, "; ".join(problems[0]))
    for asked in () if waiting else asked_at(header.questions, entries):
        if name in (asked.name, asked.id):
            ref = question_ref(header.run_id, asked.id)
            reason = f"it would answer a question. Use Inbox.answer({ref!r}, ...)"
            raise MessageRejected(header.run_id, name, reason)


async def _tell(store: RunStore, sent_to: RunHeader, name: str, number: int) -> None:
    """Make a run due that waits for a message. A run that does not wait yet finds the message by itself.

    `number` is that of the message, so that the run finds out if the store loses the message.
    """
    for _ in range(_TRIES):
        try:
            found = await read_header(store, sent_to.run_id)
            if found.header.epoch != sent_to.epoch:
                raise RunNotFound(sent_to.run_id, repr(store))
        except RunNotFound:  # the run was deleted meanwhile
            await store.delete(mail_key(sent_to))
            raise
        header = found.header
        if not _waits_for(header, name):
            return
        due = replace(
            header,
            due_at=first_due(header.due_at, found.now),
            mail_revision=max(header.mail_revision, number),
        )
        if due == header:
            return
        with suppress(RevisionConflict):
            await change_header(store, found, due)
            await parent_due(store, due)
            return
