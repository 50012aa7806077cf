"""Runs that are killed and resumed until they end, and what must then be true.

The judges are the log as it is stored, the model server's ledger with the published prices, and the file in
which workers say what they do.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from durability.shapes import BUDGETS_USD, Oracle
from durability.worker import Moment, Task, open_store
from support.accounting import listed_cost
from support.stored_runs import entries_of

from fastroai.runtime.facts import (
    AnyFact,
    CallEnded,
    OnceDone,
    OnceStarted,
    QuestionAsked,
    ReplayDiverged,
    RequestEnded,
    RequestSent,
    RunFinished,
    RunResumed,
    StepFinished,
    StepHalted,
    ToolEnded,
)
from fastroai.store.record.entries import RunHeader
from fastroai.store.record.headers import read_header
from fastroai.testing import LedgerEntry, ModelServer

WORKER = Path(__file__).parent / "worker.py"
TIMES = int(os.environ.get("FASTROAI_KILL_SWEEP", "0"))
"""How many passes a sweep makes over the writes of each shape; 0 for a few kills of each kind."""
MOST_KILLS = 4
"""Of one run; then it is left alone."""
AGAIN = 0.85
"""How probable it is that a run which was killed will be again."""


@dataclass(frozen=True)
class Kill:
    """When a part of a run is killed: at a write of the store, or after so many seconds."""

    at: tuple[Moment, int] | None = None
    after: float | None = None


@dataclass
class Calm:
    """What a run does that nobody kills."""

    output: Any
    entries: int
    writes: int
    seconds: float
    requests: Counter[str]
    """Of the requests whose answers are on record."""
    effects: set[str]


@dataclass
class Observed:
    """What is on record of a run, at some moment."""

    entries: list[AnyFact] = field(default_factory=list)

    def of(self, kind: type[Any]) -> list[Any]:
        return [entry for entry in self.entries if isinstance(entry, kind)]

    @property
    def done(self) -> set[str]:
        """Steps and calls that have finished, by place; pause nodes that have asked a person included."""
        asked = [entry for entry in self.of(QuestionAsked) if not entry.name]
        calls = [entry for entry in self.of(CallEnded) if entry.failure is None]
        return {entry.place for entry in (*self.of(StepFinished), *asked, *calls)}

    @property
    def tool_results(self) -> str:
        return json.dumps([entry.result for entry in self.of(ToolEnded)])

    @property
    def tools_asked_for(self) -> set[str]:
        """The tools that responses on record call, as they note themselves."""
        return {
            f"{part['tool_name']}({json.loads(part['args'])['number']})"
            for entry in self.of(RequestEnded)
            if entry.response is not None
            for part in entry.response["parts"]
            if part["part_kind"] == "tool-call" and part["tool_name"] != "final_result"
        }

    @property
    def tool_retries(self) -> int:
        return sum(entry.retry is not None for entry in self.of(ToolEnded))

    @property
    def ended(self) -> dict[str, RequestEnded]:
        return {entry.id: entry for entry in self.of(RequestEnded)}

    @property
    def answered(self) -> set[str]:
        """Ids of the responses that are on record, or of which it is on record that a budget has cut them."""
        return {
            entry.record.response_id
            for entry in self.of(RequestEnded)
            if (entry.response is not None or entry.record.was_cut_short)
            and entry.record.response_id is not None
        }

    @property
    def lost_usd(self) -> list[Decimal]:
        """Bounds of the requests of which nothing more was heard, and of those that came without usage."""
        ended = self.ended
        records = [
            ended[sent.id].record if sent.id in ended else sent.record for sent in self.of(RequestSent)
        ]
        unmeasured = [record for record in records if record.outcome == "unmeasured"]
        assert all(record.bound_usd is not None for record in unmeasured)
        return [record.bound_usd for record in unmeasured]

    @property
    def doubts(self) -> Counter[str]:
        """How often somebody took up the run without knowing whether side effects had happened, by name."""
        doubts, begun = Counter[str](), set[tuple[str, str]]()
        for entry in self.entries:
            if isinstance(entry, OnceStarted):
                begun.add((entry.place, entry.name))
            elif isinstance(entry, OnceDone):
                begun.discard((entry.place, entry.name))
            elif isinstance(entry, RunResumed):
                doubts.update(name for _, name in begun)
        return doubts


class Worker:
    """The process that runs are made in, and the model server that they ask."""

    def __init__(
        self, server: ModelServer, folder: Path, oracle: Oracle, *, inside: Sequence[str] = (), name: str = ""
    ) -> None:
        """`inside` is a command that runs the process somewhere; requests have its `name` for a key."""
        self.server, self.folder, self.oracle = server, folder, oracle
        environment = server.environment()
        keys = {key: name for key in environment if name and key.endswith("_KEY")}
        self._process = subprocess.Popen(
            [*inside, sys.executable, str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment, **keys, "PYTHONWARNINGS": "ignore"},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout

    def wait_until_ready(self) -> None:
        assert self._out.readline() == "ready\n", "the worker did not start"

    def close(self) -> None:
        self._process.kill()  # it has nothing to put away
        self._process.wait()
        self._in.close()
        self._out.close()

    def tell(self, task: Task) -> dict[str, Any]:
        """Have it done, as far as where it halts."""
        return self._hear(json.dumps(asdict(task)))

    def go_on(self) -> dict[str, Any]:
        """Have done what is left of a task that has halted."""
        return self._hear("")

    def _hear(self, line: str) -> dict[str, Any]:
        self._in.write(line + "\n")
        self._in.flush()
        answer = self._out.readline()
        assert answer, "the worker has ended"
        return json.loads(answer)  # type: ignore[no-any-return]

    @classmethod
    @contextmanager
    def started(cls, folder: Path) -> Iterator[Worker]:
        with ModelServer() as server:
            server.rule(None, oracle := Oracle())
            worker = cls(server, folder, oracle)
            try:
                worker.wait_until_ready()
                yield worker
            finally:
                worker.close()


class Lane:
    """A worker and a store, for one run after the other."""

    def __init__(self, worker: Worker, place: tuple[str, str, str]) -> None:
        self.worker, self.server, self.place = worker, worker.server, place
        self._runner = asyncio.Runner()
        self._runner.get_loop()  # opened now, by the fixture, and not by the first test
        self._store = open_store(*place)
        self._calm: dict[tuple[str, str], Calm] = {}
        self.kills = self.runs = self.violations = 0

    def close(self) -> None:
        self._runner.run(self._store.aclose())
        self._runner.close()

    def observe(self, run_id: str) -> Observed:
        return Observed(self._runner.run(entries_of(self._store, run_id)))

    def header(self, run_id: str) -> RunHeader:
        return self._runner.run(read_header(self._store, run_id)).header

    def calm(self, shape: str, durability: Any = "sync") -> Calm:
        """What this shape does undisturbed."""
        if (shape, durability) not in self._calm:
            run = Run(self, shape, durability)
            outcome = run.go(None)
            run.check_end(outcome, None)
            if shape == "cut_short":
                assert max(run.requests().values()) == 2, "no answer was cut"
            self._calm[shape, durability] = Calm(
                outcome["output"],
                len(run.parts[-1][0].entries),
                outcome["writes"],
                outcome["seconds"],
                run.requests(),
                run.effects(),
            )
        return self._calm[shape, durability]

    def sweep(self, shape: str, kill: Kill, chance: random.Random, durability: Any = "sync") -> None:
        """One run that is killed there, and perhaps some more times, and in the end comes to its end."""
        calm = self.calm(shape, durability)
        run = Run(self, shape, durability)
        self.runs += 1
        outcome = run.go(kill)
        while outcome.get("killed") or outcome.get("not_found"):
            again: Kill | None = None
            if run.kills < MOST_KILLS and chance.random() < AGAIN:
                left = max(0.1, 1 - len(run.parts[-1][0].entries) / calm.entries)
                write = chance.randint(1, 2 + round(left * calm.writes))  # 2 and more to take it up
                again = chance.choice(
                    [
                        Kill(at=("before", write)),
                        Kill(at=("after", write)),
                        Kill(after=chance.random() * left * calm.seconds),
                    ]
                )
            outcome = run.go(again, resumed=not outcome.get("not_found"))
        run.check_end(outcome, calm)
        self.kills += run.kills


class Run:
    """One run, over all processes that have had it."""

    def __init__(self, lane: Lane, shape: str, durability: Any) -> None:
        self.lane, self.shape, self.durability = lane, shape, durability
        self.run_id = f"{shape}-{uuid.uuid4().hex[:12]}"
        self.notes = lane.worker.folder / f"{self.run_id}.notes"
        self.outcome = lane.worker.folder / f"{self.run_id}.json"
        self.kills = 0
        self.parts: list[tuple[Observed, list[list[str]]]] = []
        """What was on record before each part but the first, and what was noted before."""
        lane.server.ledger.clear()
        lane.worker.oracle.clear()

    @property
    def task(self) -> Task:
        """The whole run."""
        return Task(
            shape=self.shape,
            run_id=self.run_id,
            store=self.lane.place,
            durability=self.durability,
            notes=str(self.notes),
            outcome=str(self.outcome),
        )

    def go(self, kill: Kill | None, *, resumed: bool = False) -> dict[str, Any]:
        """One part."""
        kill = kill or Kill()
        outcome = self.lane.worker.tell(
            replace(self.task, resumed=resumed, kill_at=kill.at, kill_after=kill.after)
        )
        assert "error" not in outcome, outcome["error"]
        self.kills += bool(outcome.get("killed"))
        self.parts.append((self.lane.observe(self.run_id), self.noted()))
        return outcome

    def noted(self) -> list[list[str]]:
        return (
            [line.split("\t") for line in self.notes.read_text().splitlines()] if self.notes.exists() else []
        )

    def answered(self) -> list[LedgerEntry]:
        """What the server has answered, and is on record."""
        answered = self.parts[-1][0].answered
        return [entry for entry in self.lane.server.ledger.billed if entry.response_id in answered]

    def requests(self) -> Counter[str]:
        return Counter(_asked(entry) for entry in self.answered())

    def effects(self) -> set[str]:
        return {what for kind, what, *_ in self.parts[-1][1] if kind == "effect"}

    # --- what must be true ---

    def check_end(self, outcome: dict[str, Any], calm: Calm | None) -> None:
        budget = BUDGETS_USD.get(self.shape)
        log, _ = self.parts[-1]
        billed = sum(map(listed_cost, self.lane.server.ledger.billed), Decimal(0))
        assert budget is None or billed <= budget, "the budget was crossed"
        if outcome.get("stopped"):
            assert budget is not None
            assert log.lost_usd, "a budget stopped it although nothing was lost"
            return
        ends = log.of(RunFinished)
        assert log.entries[-1] is ends[-1]
        assert ends[-1].status == outcome.get("status", "finished")
        self._check_money(outcome, log, billed)
        self._check_effects()
        assert not log.of(ReplayDiverged), "a request was not the same again"
        if calm is not None:
            assert outcome["output"] == calm.output, f"{outcome['output']} is not {calm.output}"
        if self.durability == "sync":
            self._check_nothing_again()
            self._check_nothing_too_early()
            if calm is not None:
                assert self.effects() == calm.effects, "a side effect did not happen"
                requests = self.requests()
                if self.shape == "cut_short":  # when others have their answers, there may be enough for it
                    assert set(requests) == set(calm.requests)
                    assert requests <= calm.requests, "it was asked for again twice"
                else:
                    assert requests == calm.requests, "a request that was answered was sent again"

    def _check_money(self, outcome: dict[str, Any], log: Observed, billed: Decimal) -> None:
        answered = sum(map(listed_cost, self.answered()), Decimal(0))
        cost, committed = Decimal(outcome["cost_usd"]), Decimal(outcome["committed_usd"])
        assert cost == answered, "the measured cost is not what the server has answered"
        assert Decimal(outcome["steps_usd"]) == cost, "the steps do not add up"
        assert committed == cost + sum(log.lost_usd)
        if self.durability == "sync":
            assert billed <= committed, "more was billed than is committed"
        header = self.lane.header(self.run_id)
        status = outcome.get("status", "finished")
        assert (header.status, header.owner, header.cost_usd) == (status, None, cost)
        assert header.requests == outcome["requests"]

    def _check_effects(self) -> None:
        effects = [tuple(line[1:]) for line in self.parts[-1][1] if line[0] == "effect"]
        keys: dict[str, set[str]] = {}
        for name, key in effects:
            keys.setdefault(name, set()).add(key)
        assert all(len(known) == 1 for known in keys.values()), f"asked for with several keys: {keys}"
        if self.durability != "sync":
            return
        doubts = self.parts[-1][0].doubts
        calls = Counter(name for name, _ in effects)
        for name, count in calls.items():
            allowed = 1 + doubts[name.split()[0]]
            assert count <= allowed, f"{name} was done {count} times, {allowed} at most"

    def _check_nothing_too_early(self) -> None:
        for log, noted in self.parts:
            asked_for = log.tools_asked_for
            for kind, what, *_ in noted:
                if kind == "tool" and not what.startswith(("team", "wobble", "approved")):
                    assert what in asked_for, f"{what} was called before that was on record"

    def _check_nothing_again(self) -> None:
        for (before, noted), (_, after) in zip(self.parts, self.parts[1:], strict=False):
            results, retries = before.tool_results, before.tool_retries
            for kind, what, *_ in after[len(noted) :]:
                if kind == "step":
                    for place in _around(what):
                        assert place not in before.done, f"{what} ran again, which had finished"
                if kind == "tool":
                    assert _shown(what) not in results, f"{what} was called again, which had returned"
                    assert what != "wobble(0)" or not retries
        steps = Counter(what for kind, what, *_ in self.parts[-1][1] if kind == "step")
        halts = Counter(f"{one.place}@{one.attempt}" for one in self.parts[-1][0].of(StepHalted))
        for what, count in steps.items():
            assert count <= 1 + self.kills + halts[what], f"{what} ran {count} times"


def _asked(entry: LedgerEntry) -> str:
    """What was asked; however long the answer may be, which a budget lowers."""
    limits = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    return json.dumps({key: value for key, value in entry.body.items() if key not in limits})


def _shown(tool: str) -> str:
    """A part of its result by which it can be told."""
    name, _, number = tool.removesuffix(")").partition("(")
    return {
        "fact": f'"fact": {number},',
        "ask": f"echo: ask {number}",
        "approved": f"{number} approved",
        "elsewhere": f'"elsewhere": {number}',
        "team": f"{number} echo: what now",
        "wobble": "steady",
        "pipe": f"pipe({number}) ",
    }[name]


def _around(place: str) -> Iterator[str]:
    """The step of an attempt, and those that it is in."""
    parts = place.split("/")
    for number in range(1, len(parts) + 1):
        inner = "/".join(parts[:number])
        yield inner.rpartition("@")[0] if "@" in parts[number - 1] else inner


def all_kills(calm: Calm) -> list[Kill]:
    """Before and after each write of a run."""
    return [
        Kill(at=(moment, number)) for number in range(1, calm.writes + 1) for moment in ("before", "after")
    ]  # type: ignore[misc]


def passes(kills: Sequence[Kill]) -> list[Kill]:
    """The kills of `TIMES` passes over a run. A pass kills at each write, before one and after the next."""
    return [
        kill for time in range(TIMES) for place, kill in enumerate(kills) if (place // 2 + place + time) % 2
    ]


def some(kills: Sequence[Kill], count: int, chance: random.Random) -> Iterable[Kill]:
    """So many of them, spread over the run."""
    stride = max(1, len(kills) // count)
    return kills[chance.randrange(stride) :: stride][:count]
