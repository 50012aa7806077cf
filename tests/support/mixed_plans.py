"""Random pipelines, graphs and routers inside of each other as plain data, and what must come of them.

Written without anything of FastroAI's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from hypothesis import strategies as st

FOR_GOOD = 99
"""Failures of a step that never succeeds."""
MOST_UNITS = 4


@dataclass(frozen=True)
class Leaf:
    """A step that asks a model, and then fails or gives a text."""

    fails: int
    """So many attempts fail before one succeeds."""
    retries: int
    asks: int
    """Requests of an attempt."""
    is_poor: bool
    """Whether its own budget lacks the last of these."""


@dataclass(frozen=True)
class Unit:
    """A step of a pipeline."""

    body: Body
    needs: tuple[int, ...]
    is_exempt: bool
    """Whether its failure stops nothing but what needs it."""


@dataclass(frozen=True)
class Line:
    """A pipeline: its last step gives its output."""

    units: tuple[Unit, ...]
    at_once: int | None


@dataclass(frozen=True)
class Stage:
    """A node of a graph, or nodes that run side by side until all are over."""

    bodies: tuple[Body, ...]
    handler: Leaf | None
    """The node that follows a failure of the only one; then the graph goes on as if that had succeeded."""
    turns: int
    """How often the only one is visited."""


@dataclass(frozen=True)
class Net:
    """A graph: stages that follow each other, of which the first and the last have one node."""

    stages: tuple[Stage, ...]
    policy: Literal["fail_all", "continue_others", "wait_all"]


@dataclass(frozen=True)
class Choice:
    """A router, whose variants are tried in order."""

    variants: tuple[Line | Choice, ...]


Part: TypeAlias = "Line | Net | Choice"
Body: TypeAlias = "Leaf | Line | Net | Choice"


# --- what must come of them ---


class Open(Exception):  # nothing is wrong
    """It depends on what comes first, which the interpreter does not know."""


@dataclass
class Failed(Exception):
    """No output, because of failures of these kinds; of several, any may be told."""

    kinds: frozenset[str]
    is_passed: bool = False
    """Whether the pipeline has ended well, without its output."""


class Interpreter:
    """Runs a part in one's head."""

    def __init__(self) -> None:
        self.requests = 0
        self.is_calm = True
        """Whether nothing has failed for good, so that the requests are sure."""

    def body(self, body: Body, name: str, given: Sequence[str], visit: int = 1) -> str:
        """The output, of what it was given. Raises `Failed`, or `Open`."""
        if not isinstance(body, Leaf):
            return self.part(body)
        if body.is_poor or body.fails > body.retries:
            self.is_calm = False
            raise Failed(frozenset({"budget" if body.is_poor else "error"}))
        self.requests += body.asks * (body.fails + 1)
        return told(name, given, visit)

    def part(self, part: Part) -> str:
        match part:
            case Line():
                return self._line(part)
            case Net():
                return self._net(part)
            case Choice():
                return self._choice(part)

    def _line(self, line: Line) -> str:
        values: dict[int, str] = {}
        stopping, passed = frozenset[str](), frozenset[str]()
        for number, unit in enumerate(line.units):
            if any(need not in values for need in unit.needs):
                continue
            try:
                values[number] = self.body(unit.body, f"s{number}", [values[need] for need in unit.needs])
            except Failed as failed:
                if unit.is_exempt:
                    passed |= failed.kinds
                else:
                    stopping |= failed.kinds
        if stopping:
            raise Failed(stopping)
        if len(line.units) - 1 not in values:
            raise Failed(passed, is_passed=True)
        return values[len(line.units) - 1]

    def _net(self, net: Net) -> str:
        known: list[str] = []
        for number, stage in enumerate(net.stages):
            survivors: list[str] = []
            kinds = frozenset[str]()
            for branch, body in enumerate(stage.bodies):
                name = f"n{number}_{branch}"
                try:
                    value = self.body(body, name, known)
                    for visit in range(2, stage.turns + 1):  # what it gave before is cleared then
                        value = self.body(body, name, [], visit)
                    survivors.append(value)
                except Failed as failed:
                    if stage.handler is not None:
                        survivors.append(self.body(stage.handler, f"n{number}_h", []))
                    else:
                        kinds |= failed.kinds
            waits_for_all = net.policy == "wait_all" and len(stage.bodies) > 1
            gives_up = net.policy == "fail_all" or not survivors
            if kinds and gives_up and not waits_for_all:
                raise Failed(kinds)
            known = survivors
        return known[0]

    def _choice(self, choice: Choice) -> str:
        for variant in choice.variants[:-1]:
            try:
                return self.part(variant)
            except Failed as failed:
                if failed.is_passed or failed.kinds == {"budget"}:
                    raise
                if "budget" in failed.kinds:
                    raise Open from None
        return self.part(choice.variants[-1])


def told(name: str, given: Sequence[str], visit: int) -> str:
    """What a leaf says."""
    return f"{name}{'' if visit == 1 else visit}({','.join(given)})"


# --- random ones ---


@st.composite
def leaves(draw: st.DrawFn) -> Leaf:
    asks, retries = draw(st.sampled_from([0, 1, 1, 2])), draw(st.sampled_from([0, 1, 2]))
    # When a run is resumed, a step that has used up its retries is tried again, and is to fail again.
    passing = draw(st.sampled_from([0, 0, 1, 2]))
    return Leaf(
        fails=FOR_GOOD if draw(st.integers(0, 7)) == 0 else min(passing, retries),
        retries=retries,
        asks=asks,
        is_poor=bool(asks) and draw(st.integers(0, 14)) == 0,
    )


def bodies(depth: int) -> st.SearchStrategy[Body]:
    return st.one_of(leaves(), leaves(), parts(depth - 1)) if depth > 1 else leaves()


def parts(depth: int = 3) -> st.SearchStrategy[Part]:
    """Parts in which others are, to a depth."""
    return st.one_of(lines(depth), nets(depth), choices(depth))


@st.composite
def lines(draw: st.DrawFn, depth: int) -> Line:
    count = draw(st.integers(1, MOST_UNITS))
    units = [
        Unit(
            body=draw(bodies(depth)),
            needs=tuple(sorted(draw(st.sets(st.integers(0, number - 1), max_size=2)))) if number else (),
            is_exempt=draw(st.integers(0, 2)) == 0,
        )
        for number in range(count)
    ]
    return Line(tuple(units), draw(st.sampled_from([None, None, 1, 2])))


@st.composite
def nets(draw: st.DrawFn, depth: int) -> Net:
    stages: list[Stage] = []
    count = draw(st.integers(1, 3))
    for number in range(count):
        body, is_last = draw(bodies(depth)), number == count - 1
        turns = draw(st.sampled_from([1, 3])) if isinstance(body, Leaf) and not is_last else 1
        may_be_handled = turns == 1 and not is_last
        stages.append(
            Stage(
                bodies=(body,),
                handler=draw(st.none() | leaves()) if may_be_handled else None,
                turns=turns,
            )
        )
        if number and draw(st.booleans()):
            stages[-2] = replace(stages[-2], turns=1)  # of edges with conditions, only one is taken
            side_by_side = draw(st.lists(bodies(depth), min_size=2, max_size=3))
            stages.insert(-1, Stage(tuple(side_by_side), None, 1))
    return Net(tuple(stages), draw(st.sampled_from(["fail_all", "continue_others", "wait_all"])))


@st.composite
def choices(draw: st.DrawFn, depth: int) -> Choice:
    inner = lines(depth) if depth <= 1 else st.one_of(lines(depth), lines(depth), choices(depth - 1))
    return Choice(tuple(draw(st.lists(inner, min_size=1, max_size=2))))
