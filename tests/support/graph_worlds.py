"""Live graphs of designs: nodes that do what the script says, in virtual time, in processes that may die."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from fastroai.agent import FastroAgent
from fastroai.errors import ContractViolation, RecordedError, RunStoreUnavailable
from fastroai.graphs import Edge, Graph, GraphResult, Node
from fastroai.graphs.errors import MemoryConflict
from fastroai.graphs.machine.events import decision_name
from fastroai.pipelines import BaseStep, PipelineConfig, StepConfig, StepContext
from fastroai.places import split_attempt
from fastroai.runtime import current_scope
from fastroai.runtime.facts import (
    AgentCallEnded,
    AnyFact,
    RequestEnded,
    RequestSent,
    StepFailed,
    StepFinished,
    StepStarted,
)
from fastroai.store import MemoryRunStore
from support.agents import paid_agent
from support.graph_reference import (
    IN_A_CIRCLE,
    TIMED_OUT,
    VIOLATION,
    Design,
    Ending,
    Outcome,
    Seen,
    error_text,
)
from support.graph_simulation import output_of, reason_of, without_sends
from support.interruptions import RUN, DyingStore, When, entries_of

MOST_TURNS = 3_000
"""How often something looks whether it is its turn, before the test fails."""


class ForbiddenError(Exception):
    """A failure that no retry would mend."""

    status_code = 403


class Acted(BaseStep[Any, Any]):
    """A node that does what its script says."""

    def __init__(self, world: World, node: str) -> None:
        self.world, self.node = world, node

    async def execute(self, context: StepContext[Any]) -> Any:
        return await self.world.perform(self.node, context)


class Turns:
    """Lets visits end in the order in which the reference has them end, whenever they began."""

    def __init__(self, order: Sequence[Ending], entries: Iterable[AnyFact] = ()) -> None:
        """Those on record are over; only a failure that ended the run, the last of all, is tried again."""
        entries = tuple(entries)
        over = {entry.place for entry in entries if isinstance(entry, StepFinished | StepFailed)}
        over |= _answered(entries)
        self._places = [_place(ending) for ending in order]
        self._left = [place for place in self._places if place not in over] or self._places[-1:]

    async def wait(self, node: str, visit: int, *, is_decision: bool = False) -> None:
        """Until everything before is over, and what follows from it has been done."""
        place = _place(Ending(node, visit, 0.0, is_decision))
        for _ in range(MOST_TURNS):
            if self._left and self._left[0] == place:
                await asyncio.sleep(1)
                self._left.pop(0)
                return
            await asyncio.sleep(1)
        raise AssertionError(f"the turn of {place} never came; left are {self._left}")


def _value(scripted: Any) -> Any:
    """YAML cannot say what JSON cannot."""
    return object() if scripted == "unstorable" else scripted


def _answered(entries: Sequence[AnyFact]) -> set[str]:
    """Decisions that a model has made, and those whose failure is on record: they are not asked for again."""
    sent = {entry.id: entry.request.place for entry in entries if isinstance(entry, RequestSent)}
    ended = [entry for entry in entries if isinstance(entry, RequestEnded) and entry.response is not None]
    failed = [entry.place for entry in entries if isinstance(entry, AgentCallEnded) and entry.failure]
    return {split_attempt(place)[0] for place in (*failed, *(sent[entry.id] for entry in ended))}


def _place(ending: Ending) -> str:
    step_id = decision_name(ending.node) if ending.is_decision else ending.node
    return StepStarted(step_id, "", visit=ending.visit).place


class World:
    """One process: the graph of a design, and what its nodes did and saw there."""

    def __init__(self, design: Design, turns: Turns | None = None, **options: Any) -> None:
        """`turns` instead of durations; `options` go to the graph."""
        self.design, self.turns = design, turns
        self.seen: list[Seen] = []
        self.attempts: Counter[str] = Counter()
        self.began: dict[str, asyncio.Event] = {name: asyncio.Event() for name in design.nodes}
        """Set when a node begins."""
        options.setdefault("conversation", "isolated")
        config = PipelineConfig(retry_delay=0, **options.pop("config", {}))
        decider = FastroAgent(FunctionModel(self._decide)) if design.decisions else None
        self.graph: Graph[Any, Any] = Graph(
            "g",
            nodes={name: self._node(name) for name in design.nodes},
            edges=[
                Edge(way.source, way.target, way.when, way.condition, way.fallback)  # type: ignore[arg-type]
                for way in design.ways
            ],
            decider=decider,
            entry=design.entry,
            terminals=design.terminals,
            max_steps=design.max_steps,
            on_branch_failure=design.on_branch_failure,
            on_conflict=design.on_conflict,
            branch_timeout=design.branch_timeout,
            max_concurrency=design.max_concurrency,
            config=config,
            **options,
        )

    def _node(self, name: str) -> Node[Any]:
        part = self.design.nodes[name]
        acted = Acted(self, name)
        acted.config = StepConfig(retries=part.attempts - 1)
        return Node(acted, reads=part.reads or (), writes=part.writes, max_visits=part.max_visits)

    # --- what nodes do ---

    async def perform(self, node: str, context: StepContext[Any]) -> Any:
        visit, part = context.visit, self.design.nodes[node]
        act = part.act(visit)
        self._note(node, context)
        for key, value in act.kept.items():
            context.write(key, _value(value))
        if Decimal(act.cost):
            context.record_usage(model="script", cost_usd=act.cost)
        if act.asks:
            await context.run(paid_agent(act.asks), "go on")
        last = part.attempts_at(visit)
        fails = act.fails >= last or context.attempt <= act.fails
        await self._take_time(node, visit, is_last=not fails or context.attempt >= last)
        if fails:
            kind = ForbiddenError if act.is_terminal else RuntimeError
            raise kind(error_text(node, visit))
        return _value(output_of(act))

    def _note(self, node: str, context: StepContext[Any]) -> None:
        self.attempts[f"{node}@{context.visit}"] = context.attempt
        self.began[node].set()
        if context.attempt > 1:
            return
        outputs = {
            name: without_sends(context.get_dependency_or_none(name))
            for name in self.design.nodes
            if name in context.read(self.design.nodes)
        }
        errors = {name: text_of(error) for name, error in context.errors.items()}
        self.seen.append(Seen(node, context.visit, dict(context.inputs), outputs, errors))

    async def _take_time(self, node: str, visit: int, *, is_last: bool) -> None:
        if self.turns is None:
            await asyncio.sleep(self.design.seconds(node, visit))
        elif is_last:
            await self.turns.wait(node, visit)

    async def _decide(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        scope = current_scope()
        while scope is not None and scope.kind != "step":
            scope = scope.parent
        assert scope is not None
        node, visit = scope.name.removeprefix("llm_decide(").removesuffix(")"), scope.ordinal
        first = not self.attempts[scope.name + str(visit)]
        self.attempts[scope.name + str(visit)] += 1
        if first and self.turns is None:
            await asyncio.sleep(self.design.seconds_to_decide(node, visit))
        elif first and self.turns is not None:
            await self.turns.wait(node, visit, is_decision=True)
        target = self.design.decisions[node].target
        if target is None:
            raise ForbiddenError("nothing to say")
        answer = {"reasoning": "as the script says", "target": target}
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, answer)])


# --- what came of it ---


def text_of(error: BaseException) -> str:
    """An error as the reference has it."""
    kind = error.error_type if isinstance(error, RecordedError) else type(error).__name__
    if kind.endswith("TimeLimitExceeded"):
        return TIMED_OUT
    if kind.endswith("VisitsExhausted"):
        return IN_A_CIRCLE
    if isinstance(error, ContractViolation):
        return VIOLATION
    if isinstance(error, RecordedError) and error.error_type.endswith("ContractViolation"):
        return VIOLATION
    return str(error)


def outcome_of(result: GraphResult[Any], world: World) -> Outcome:
    """A result in the words of the reference."""
    outcome = Outcome(
        status=result.status,
        quality=result.quality,
        reason=reason_of(result.status, result.reason),
        output=result.output,
        path=list(result.path),
        memory=dict(result.memory),
        visits=dict(result.visits),
        attempts={key: count for key, count in world.attempts.items() if "@" in key},
        errors={name: text_of(error) for name, error in result.errors.items()},
        seen=world.seen,
        cost=result.usage.cost_usd if hasattr(result.usage, "cost_usd") else result.usage.total.cost_usd,
        at=asyncio.get_running_loop().time(),
    )
    if isinstance(result.error, MemoryConflict):
        outcome.conflicts = {result.error.args[:3]}
    elif isinstance(result.error, RecordedError) and result.error.error_type.endswith("MemoryConflict"):
        outcome.reason = "conflict"
    return outcome


async def run_live(design: Design) -> Outcome:
    """A run that takes the time that the design says."""
    world = World(design)
    return outcome_of(await world.graph.run(dict(design.inputs)), world)


# --- processes that die ---


async def run_killed(design: Design, order: Sequence[Ending], deaths: Sequence[int]) -> Outcome:
    """A run whose processes die, each at its so-manieth write to the log, until one goes on to the end."""
    store = MemoryRunStore()
    for at in deaths:
        try:
            return await part(design, order, store, DyingStore(store, nth_write(at)))
        except (RunStoreUnavailable, OSError):
            pass
    return await part(design, order, store, store)


async def part(design: Design, order: Sequence[Ending], store: MemoryRunStore, through: Any) -> Outcome:
    """What one process does of a run: it takes up what is in the store, or begins."""
    entries = await entries_of(store)
    world = World(design, Turns(order, entries))
    if entries:
        result = await world.graph.resume(RUN, store=through)
    else:
        result = await world.graph.run(dict(design.inputs), store=through, run_id=RUN)
    return outcome_of(result, world)


def nth_write(number: int) -> When:
    """At that write to a log, from 1."""
    writes = 0

    def when(entries: Sequence[AnyFact]) -> bool:
        nonlocal writes
        writes += 1
        return writes >= number

    return when
