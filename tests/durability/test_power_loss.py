"""Runs on a SQLite file whose machine loses its power, at any write: what is told stays, and no run is torn.

A library that is preloaded into the process records its writes and syncs in order. From these, the files are
made as a disk may have them after a power failure: all that was synced, and any part of the rest.
"""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from durability.power_loss_worker import PIPELINE, TOLD
from durability.preloaded import NEEDS_LINUX, compiled
from support.patience import PATIENCE

from fastroai.errors import RunNotFound
from fastroai.store import SQLiteRunStore

HERE = Path(__file__).parent
WHOLE = bool(os.environ.get("FASTROAI_POWER_LOSS"))
"""Whether the power is lost after every single write; else after some of them."""
SEED = os.environ.get("FASTROAI_POWER_SEED", "power")
RUNS = 3
"""So many that SQLite moves its log into the file."""
SOME = 10
RESUMED = 100 if WHOLE else 2
"""In how many of the places a run is resumed, too."""
SECTOR = 512
"""Bytes that a disk writes whole."""
WRITTEN, SYNCED, CUT, REMOVED = 1, 2, 3, 4

Keys = dict[str, tuple[int, tuple[bytes, ...]]]
Kept = Literal["nothing", "some", "torn"]

pytestmark = [
    NEEDS_LINUX,
    pytest.mark.slow,
]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("power_loss.c", tmp_path_factory.mktemp("library"))


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory where there is one: SQLite syncs thousands of files here."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        yield Path(folder)


@dataclass(frozen=True)
class Record:
    """Something that the process did to a file."""

    kind: int
    name: str
    offset: int
    data: bytes


@dataclass
class Disk:
    """The files of a folder: what is safe, and what was written since the last sync of each."""

    safe: dict[str, bytearray] = field(default_factory=dict)
    unsafe: dict[str, list[Record]] = field(default_factory=dict)

    def do(self, record: Record) -> None:
        name = record.name
        if record.kind == REMOVED:
            self.safe.pop(name, None)
            self.unsafe.pop(name, None)
        elif record.kind == SYNCED:
            for one in self.unsafe.pop(name, []):
                apply(one, self.safe.setdefault(name, bytearray()))
        else:
            self.unsafe.setdefault(name, []).append(record)

    def after_power_loss(self, kept: Kept, dice: random.Random) -> dict[str, bytes]:
        """What is there, with nothing of what was not synced, or some of it, in whole writes or sectors."""
        files = {name: bytearray(content) for name, content in self.safe.items()}
        for name, records in self.unsafe.items():
            content = files.setdefault(name, bytearray())
            for record in records:
                if kept == "some" and dice.random() < 0.5:
                    apply(record, content)
                elif kept == "torn":
                    for part in sectors(record):
                        if dice.random() < 0.7:
                            apply(part, content)
        return {name: bytes(content) for name, content in files.items()}


def apply(record: Record, content: bytearray) -> None:
    if record.kind == CUT:
        del content[record.offset :]
    missing = record.offset + len(record.data) - len(content)
    content.extend(bytes(max(missing, 0)))
    if record.kind == WRITTEN:
        content[record.offset : record.offset + len(record.data)] = record.data


def sectors(record: Record) -> Iterator[Record]:
    """Its parts that a disk writes whole."""
    if record.kind == CUT:
        yield record
    first = record.offset
    while first < record.offset + len(record.data):
        end = min(first - first % SECTOR + SECTOR, record.offset + len(record.data))
        part = record.data[first - record.offset : end - record.offset]
        yield Record(WRITTEN, record.name, first, part)
        first = end


def records_in(trace: bytes, folder: Path) -> Iterator[Record]:
    at = 0
    while at < len(trace):
        kind, offset, path_length, length, _ = struct.unpack_from("=5q", trace, at)
        at += 40
        path = trace[at : at + path_length].decode()
        at += path_length
        yield Record(kind, os.path.relpath(path, folder), offset, trace[at : at + length])
        at += length


@dataclass
class Told:
    """What the process says of its writes, which a store performs one after the other."""

    states: list[Keys]
    """What the store holds after so many writes."""
    begun: int = 0
    ended: int = 0

    @classmethod
    def of(cls, records: list[Record]) -> Told:
        lines = [json.loads(one.data) for one in records if one.name == TOLD]
        writes = [what for kind, *what in lines if kind == "begun"]
        assert not [kind for kind, *_ in lines if kind == "refused"], "they are not counted"
        states: list[Keys] = [{}]
        for operation, key, *values in writes:
            states.append({**states[-1]})
            perform(states[-1], operation, key, values)
        return cls(states)

    def hear(self, record: Record) -> None:
        kind = json.loads(record.data)[0]
        if kind == "begun":
            self.begun += 1
        elif kind == "ended":
            self.ended += 1


def perform(keys: Keys, operation: str, key: str, values: list[Any]) -> None:
    if operation == "delete":
        keys.pop(key, None)
    elif operation == "set":
        revision, coded = values
        keys[key] = revision + 1, (base64.b64decode(coded),)
    elif values[0]:
        revision, before = keys.get(key, (0, ()))
        added = tuple(base64.b64decode(coded) for coded in values[0])
        keys[key] = revision + len(added), (*before, *added)


def worked(library: Path, folder: Path, fsync: bool) -> list[Record]:
    """Have a process run pipelines, and return what it did to its files."""
    files, trace = folder / "files", folder / "trace"
    files.mkdir()
    subprocess.run(
        [sys.executable, HERE / "power_loss_worker.py", files, "fsync" if fsync else "no", str(RUNS)],
        check=True,
        timeout=PATIENCE,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "LD_PRELOAD": str(library),
            "POWER_LOSS_FOLDER": str(files),
            "POWER_LOSS_TRACE": str(trace),
        },
    )
    return list(records_in(trace.read_bytes(), files))


async def content_of(path: Path) -> Keys:
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    store = SQLiteRunStore(path)
    held: Keys = {}
    for found in await store.list("", limit=10_000):
        read = await store.read(found.key)
        held[found.key] = read.revision, read.values
    await store.aclose()
    return held


async def resumed(path: Path, content: Keys) -> None:
    """Every run that is there comes to its right end."""
    store = SQLiteRunStore(path)
    for number in range(RUNS):
        try:
            assert (await PIPELINE.resume(f"r{number}", store=store)).output == 7
        except RunNotFound:
            assert f"run:r{number}" not in content
    await store.aclose()


@pytest.mark.parametrize("fsync", [True, False], ids=["fsync", "no fsync"])
async def test_what_is_told_survives_a_power_failure_with_fsync_and_without_it_only_the_last_writes_are_lost(
    library: Path, memory: Path, fsync: bool
) -> None:
    records = worked(library, memory, fsync)
    of_database = [number for number, one in enumerate(records) if one.name != TOLD]
    dice = random.Random(f"{SEED} {fsync}")
    places = set(of_database if WHOLE else dice.sample(of_database, SOME))
    places |= {number for number in of_database if records[number].kind == REMOVED}
    resumed_in = set(dice.sample(sorted(places), min(RESUMED, len(places))))
    told, disk = Told.of(records), Disk()
    lost = moved = 0
    for number, record in enumerate(records):
        if record.name == TOLD:
            told.hear(record)
            continue
        disk.do(record)
        moved += record.name == "runs.db" and record.kind == SYNCED
        if number not in places:
            continue
        for kept in ("nothing", "some", "torn"):
            folder = memory / f"{number}-{kept}"
            folder.mkdir()
            for name, content in disk.after_power_loss(kept, dice).items():
                if not name.endswith("-shm"):  # SQLite makes it anew
                    (folder / name).write_bytes(content)
            where = f"after record {number} of {len(records)}, keeping {kept}; set FASTROAI_POWER_SEED={SEED}"
            held = await content_of(folder / "runs.db")
            first = told.ended if fsync else 0
            possible = told.states[first : told.begun + 1]
            assert held in possible, where
            lost += held != told.states[told.ended]
            if number in resumed_in:
                await resumed(folder / "runs.db", held)
            shutil.rmtree(folder)
    print(f"power loss: {len(places)} places, {3 * len(places)} disks, {lost} of which had lost writes")
    assert told.ended == len(told.states) - 1 > 10 * RUNS
    assert moved > 1, "SQLite has not moved its log into the file, which it also must survive"
    if not fsync:
        assert lost, "nothing was ever lost, so no power was"
