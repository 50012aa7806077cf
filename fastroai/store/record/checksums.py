"""The checksum in front of every header and entry of a run, which shows whether it has changed."""

from __future__ import annotations

from typing import Final
from zlib import crc32

REFERENCE: Final = b"\0payload "
"""First bytes of a value in a store that refers to a payload elsewhere (see `OffloadingRunStore`)."""


def with_checksum(text: bytes) -> bytes:
    """Return the text as it is stored: its CRC-32 as eight hexadecimal digits, a space, and the text."""
    return b"%08x %b" % (crc32(text), text)


def without_checksum(stored: bytes) -> bytes:
    """Return the text that was stored.

    Raises:
        ValueError: the checksum does not match the text, or what is stored is a reference to it.
    """
    if stored.startswith(REFERENCE):
        raise ValueError("it is in a payload store: give the OffloadingRunStore that it was written with")
    text = stored[9:]
    if stored[:9] != b"%08x " % crc32(text):
        raise ValueError("its checksum does not match: something else has changed it since it was written")
    return text
