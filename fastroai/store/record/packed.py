"""The facts of a run in memory: the newest as they were made, older ones as compressed text."""

from __future__ import annotations

import threading
import zlib
from typing import Final

from fastroai.forks import ForkGate
from fastroai.runtime.fact_base import Fact, Part
from fastroai.runtime.facts import StepFinished
from fastroai.store.reading.as_json import as_told, json_text
from fastroai.store.record.entries import decode_entry, encode_entry, locate

MOST_UNPACKED: Final = 10_000
"""Facts that are kept as they were made. A run that has fewer never pays for packing."""
PACKED_AT_ONCE: Final = 1_000

_gate: Final = ForkGate()
"""Keeps forks out while a lock is held, so that a forked process finds no lock held by a lost thread."""


class PackedFacts:
    """The facts of a run, in order, with older ones compressed to save memory.

    Most of a fact is the same in every visit to a node, so a thousand facts are compressed together: 15 bytes
    are left of each. Reading gives facts as traces show them.
    """

    __slots__ = ("_lock", "_packed", "newest")

    def __init__(self) -> None:
        """Begin with no facts."""
        self.newest: list[Fact] = []
        """The facts that are not packed. Call `pack` if they are more than `MOST_UNPACKED`."""
        self._packed: list[bytes] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with _gate, self._lock:
            return len(self._packed) * PACKED_AT_ONCE + len(self.newest)

    def append(self, fact: Fact) -> None:
        """Add a fact, from any thread."""
        self.newest.append(fact)
        if len(self.newest) > MOST_UNPACKED:
            self.pack()

    def pack(self) -> None:
        """Pack the oldest of the facts that are not packed. From any thread."""
        with _gate, self._lock:
            if len(self.newest) > MOST_UNPACKED:
                texts = map(_text, self.newest[:PACKED_AT_ONCE])
                self._packed.append(zlib.compress(b"\n".join(texts), zlib.Z_BEST_SPEED))
                del self.newest[:PACKED_AT_ONCE]

    def told(self, root: Part) -> list[Fact]:
        """Return all facts as traces show them. `root` is the outermost pipeline or graph of the run."""
        with _gate, self._lock:
            packed, newest = [*self._packed], [*self.newest]
        texts = [text for one in packed for text in zlib.decompress(one).split(b"\n")]
        facts = [decode_entry(root.run_id, position, text) for position, text in enumerate(texts, 1)]
        locate(facts, {"": root})
        return [*facts, *map(as_told, newest)]


def _text(fact: Fact) -> bytes:
    """Return a fact as JSON. An output takes a shorter way to the same text."""
    if isinstance(fact, StepFinished):
        return b'%b,"output":%b}' % (encode_entry(fact, without={"output"})[:-1], json_text(fact.output))
    return encode_entry(as_told(fact))
