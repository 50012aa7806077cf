"""Graphs in processes of their own, which can be killed: `Elsewhere` forks one for each call."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from fastroai.errors import FastroAIError
from fastroai.graphs import Edge, Graph, Node
from fastroai.pipelines import StepContext, step
from fastroai.store import PostgresRunStore, RedisRunStore, SQLiteRunStore
from support.fork_server import forks
from support.patience import PATIENCE

Verb = Literal["run", "resume", "pause", "cancel"]


class Approval(BaseModel):
    approved: bool
    by: str = "somebody"


@dataclass(frozen=True)
class Place:
    """Where the runs are, and the folder in which the processes tell of themselves."""

    kind: str
    address: str
    name: str
    folder: Path

    def open(self) -> Any:
        if self.kind == "sqlite":
            return SQLiteRunStore(self.address, timeout=PATIENCE)
        if self.kind == "redis":
            return RedisRunStore(self.address, prefix=self.name, timeout=PATIENCE)
        return PostgresRunStore(self.address, schema=self.name, timeout=PATIENCE)

    def note(self, line: str) -> None:
        file = os.open(self.folder / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{line}\n".encode())
        os.close(file)

    def notes(self) -> list[str]:
        """What nodes have noted, in all processes."""
        file = self.folder / "notes"
        return file.read_text().splitlines() if file.exists() else []

    def let(self, what: str) -> None:
        """What a node waits for."""
        (self.folder / what).touch()

    def is_let(self, what: str) -> bool:
        return (self.folder / what).exists()

    async def noted(self, line: str) -> None:
        """Wait until some process has noted this."""
        await until(lambda: line in self.notes())


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "nothing came of it"
        await asyncio.sleep(0.01)


# --- graphs ---


def ticking(place: Place) -> Graph[Any, Any]:
    """Turns until it is let end; each turn is noted."""

    @step
    async def tick(ctx: StepContext[Any]) -> dict[str, Any]:
        place.note(f"tick {ctx.visit}")
        await asyncio.sleep(0.01)
        return {"turn": ctx.visit, "goes_on": not place.is_let("end")}

    @step
    async def end(ctx: StepContext[Any]) -> int:
        place.note("end")
        return int(ctx.get_input("turn"))

    return Graph(
        "ticking",
        nodes={"tick": Node(tick, reads=["turn"], writes=["turn", "goes_on"]), "end": end},
        edges=[Edge("tick", "tick", when="conditional", condition="goes_on"), Edge("tick", "end", "always")],
        entry="tick",
        max_steps=100_000,
    )


def hanging(place: Place) -> Graph[Any, Any]:
    """A branch writes and hangs until it is let go on; the other one is done."""

    @step
    async def top(ctx: StepContext[Any]) -> str:
        place.note("top")
        return "top"

    @step
    async def hang(ctx: StepContext[Any]) -> str:
        ctx.write("partial", f"by attempt {ctx.attempt}")
        place.note("hang")
        await until(lambda: place.is_let("go on"))
        return "hung"

    @step
    async def quick(ctx: StepContext[Any]) -> str:
        place.note("quick")
        return "quick"

    @step
    async def end(ctx: StepContext[Any]) -> str:
        place.note("end")
        return f"{ctx.get_dependency('hang')} {ctx.get_dependency('quick')}"

    return Graph(
        "hanging",
        nodes={"top": top, "hang": hang, "quick": quick, "end": end},
        edges=[Edge("top", "hang"), Edge("top", "quick"), Edge("hang", "end"), Edge("quick", "end")],
    )


def asking(place: Place) -> Graph[Any, Any]:
    """Asks somebody, while another branch hangs until it is let go on."""

    @step
    async def ask(ctx: StepContext[Any]) -> dict[str, str]:
        place.note("ask")
        return {"question": f"approve {ctx.get_input('what')}?"}

    @step
    async def work(ctx: StepContext[Any]) -> str:
        place.note("work")
        await until(lambda: place.is_let("go on"))
        return "worked"

    @step
    async def top(ctx: StepContext[Any]) -> None:
        place.note("top")

    @step
    async def end(ctx: StepContext[Any]) -> str:
        approval = ctx.get_dependency("ask", Approval)
        place.note(f"end {approval.by}")
        return f"{approval.approved} by {approval.by}, {ctx.get_dependency('work')}"

    return Graph(
        "asking",
        nodes={"top": top, "ask": Node(ask, answer_type=Approval), "work": work, "end": end},
        edges=[Edge("top", "ask"), Edge("top", "work"), Edge("ask", "end"), Edge("work", "end")],
        pause_nodes=["ask"],
    )


GRAPHS = {"ticking": ticking, "hanging": hanging, "asking": asking}


# --- processes ---


@dataclass(frozen=True)
class Call:
    """What a process does."""

    place: Place
    graph: str
    verb: Verb
    run_id: str
    options: dict[str, Any] = field(default_factory=dict)
    at: float = 0.0
    """When it begins, on the clock of the machine, so that several do at once."""


def perform(call: Call, answer: Connection) -> None:
    """In the process: what came of it."""
    answer.send(asyncio.run(_perform(call)))


async def _perform(call: Call) -> dict[str, Any]:
    graph, store = GRAPHS[call.graph](call.place), call.place.open()
    await asyncio.sleep(max(0.0, call.at - time.monotonic()))
    try:
        match call.verb:
            case "run":
                result = await graph.run(call.options, run_id=call.run_id, store=store)
            case "resume":
                result = await graph.resume(call.run_id, store=store, **call.options)
            case "pause":
                await graph.pause(call.run_id, store=store)
                return {}
            case "cancel":
                await graph.cancel(call.run_id, store=store)
                return {}
    except FastroAIError as error:
        return {"error": type(error).__name__, "says": str(error)}
    finally:
        await store.aclose()
    return {
        "status": result.status,
        "output": result.output,
        "memory": dict(result.memory),
        "path": result.path,
        "resume_at": result.resume_at,
        "visits": dict(result.visits),
        "questions": [(one.node, one.question, one.answer_schema) for one in result.questions],
    }


class Process:
    """One that goes on."""

    def __init__(self, call: Call, context: Any) -> None:
        self._answer, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=perform, args=(call, theirs), daemon=True)
        self._process.start()
        theirs.close()

    async def outcome(self) -> dict[str, Any]:
        """What came of it."""
        await until(lambda: self._answer.poll())
        told: dict[str, Any] = self._answer.recv()
        self._process.join(PATIENCE)
        self.close()
        return told

    def kill(self) -> None:
        self._process.kill()
        self._process.join(PATIENCE)
        self.close()

    def close(self) -> None:
        self._answer.close()
        self._process.close()


class Elsewhere:
    """Starts processes, which are forked from one that has imported everything."""

    def __init__(self) -> None:
        self._context = forks()

    def start(self, call: Call) -> Process:
        return Process(call, self._context)

    async def perform(self, call: Call) -> dict[str, Any]:
        return await self.start(call).outcome()
