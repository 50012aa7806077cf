"""Messages to a run, in the order in which they came, beside its log. Any process can send one."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Final

from pydantic import JsonValue, TypeAdapter, ValidationError

from fastroai.errors import MessageRejected, RevisionConflict, RunCorrupt, RunStoreUnavailable
from fastroai.store.record.checksums import with_checksum, without_checksum
from fastroai.store.record.entries import RunHeader
from fastroai.store.record.entry_sizes import size_reason
from fastroai.store.record.headers import mail_key
from fastroai.store.run_store import RunStore, StoredValues, largest_value

MOST_MESSAGES: Final = 10_000
"""Most messages that one run takes, received or not, so that a faulty loop does not fill the store."""
_TRIES: Final = 100
_ROOM: Final = 10_000
"""Bytes of the log entry of a received message, besides the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message to a run, as it is stored."""

    id: str
    """A unique id, which distinguishes messages with the same content."""
    name: str
    value: JsonValue
    """The value, sealed with the codec of the run, if it has one."""
    sent_at: datetime
    """Time of the store's own clock."""


@cache
def _messages() -> TypeAdapter[Message]:
    return TypeAdapter(Message)


def messages_in(stored: StoredValues, run_id: str) -> Sequence[tuple[int, Message]]:
    """Return messages to a run, as they were read from the store, with their numbers. Raises `RunCorrupt`."""
    first = stored.revision - len(stored.values) + 1
    return [(number, _decoded(run_id, number, one)) for number, one in enumerate(stored.values, first)]


def _decoded(run_id: str, number: int, stored: bytes) -> Message:
    try:
        return _messages().validate_json(without_checksum(stored))
    except (ValueError, ValidationError) as error:
        raise RunCorrupt(run_id, 0, f"message {number} to it is damaged: {error}") from error


async def post(store: RunStore, header: RunHeader, name: str, value: JsonValue) -> int:
    """Add a message to the messages of a run. Return how many there are now, at least.

    Raises:
        MessageRejected: the run has had `MOST_MESSAGES`, or the message is larger than the store takes.
        RunStoreUnavailable: the store fails, or other senders are faster each time.
    """
    key, sent = mail_key(header), uuid.uuid4().hex
    for _ in range(_TRIES):
        found = await store.read(key, after=MOST_MESSAGES)
        if found.revision >= MOST_MESSAGES:
            raise MessageRejected(header.run_id, name, f"the run has had {MOST_MESSAGES:,} messages")
        message = Message(id=sent, name=name, value=value, sent_at=found.now)
        stored = with_checksum(_messages().dump_json(message))
        largest = largest_value(store)
        if largest is not None and len(stored) > largest - _ROOM:
            raise MessageRejected(header.run_id, name, size_reason(len(stored), largest - _ROOM))
        try:
            await store.append(key, [stored], revision=found.revision)
        except RevisionConflict:
            if stored not in (await store.read(key, after=found.revision)).values:
                continue  # another message came first, and this one was not stored
        return found.revision + 1
    raise RunStoreUnavailable(repr(store), f"other processes keep sending messages to run {header.run_id!r}")
