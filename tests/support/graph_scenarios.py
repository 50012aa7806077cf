"""A table of scenarios: graphs with scripts, and what must come of them, as YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from support.graph_reference import Act, Decision, Design, Part, Sent, Way

FOLDER = Path(__file__).parent.parent / "graphs" / "scenarios"
KINDS = ("always", "on_success", "on_failure", "llm", "send")
NODE_WORDS = {"acts", "writes", "reads", "max_visits", "attempts"}
SCENARIO_WORDS = {
    "name", "nodes", "edges", "entry", "terminals", "inputs", "decisions", "options", "graph", "expect",
    "then", "during", "kill", "reference", "timed",
}  # fmt: skip
EXPECT_WORDS = {
    "status", "quality", "path", "memory", "output", "outputs", "attempts", "visits", "errors", "cost",
    "reason", "checkpoints", "seconds", "resume_at", "questions", "raises",
}  # fmt: skip


@dataclass(frozen=True)
class Stage:
    """What is done after a part of a run, and what comes of it."""

    resume: Mapping[str, Any]
    expect: Mapping[str, Any]
    design: Design | None = None
    """Another definition, to go on with."""


@dataclass(frozen=True)
class Scenario:
    name: str
    file: str
    design: Design
    expect: Mapping[str, Any]
    graph: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of the graph."""
    during: Mapping[str, str] = field(default_factory=dict)
    """`cancel` or `pause` the run when a node begins."""
    then: tuple[Stage, ...] = ()
    kill: bool = True
    """Whether it also runs killed at each write."""
    timed: bool = False
    """Whether durations hold when it is resumed, too; else the order in which visits ended."""
    reference: bool = True
    """Whether the reference knows all that is in it."""

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


def scenarios() -> list[Scenario]:
    """All of them."""
    return [
        _scenario(file.stem, given)
        for file in sorted(FOLDER.glob("*.yaml"))
        for given in yaml.load(file.read_text(), yaml.CSafeLoader)
    ]


def _scenario(file: str, given: dict[str, Any]) -> Scenario:
    _check(given, SCENARIO_WORDS, given["name"])
    _check(given["expect"], EXPECT_WORDS, given["name"])
    design = _design(given)
    stages = []
    for stage in given.get("then", ()):
        _check(stage, {"resume", "expect", "changed"}, given["name"])
        _check(stage["expect"], EXPECT_WORDS, given["name"])
        changed = _design({**given, **stage["changed"]}) if "changed" in stage else None
        stages.append(Stage(stage.get("resume") or {}, stage["expect"], changed))
    return Scenario(
        name=given["name"],
        file=file,
        design=design,
        expect=given["expect"],
        graph=given.get("graph", {}),
        during=given.get("during", {}),
        then=tuple(stages),
        kill=given.get("kill", True),
        timed=given.get("timed", False),
        reference=given.get("reference", not given.get("graph") and not given.get("during")),
    )


def _design(given: Mapping[str, Any]) -> Design:
    ways = tuple(way for text in given.get("edges", ()) for way in _ways(text))
    sources, targets = {way.source for way in ways}, {way.target for way in ways}
    nodes = {name: _part(name, node or {}) for name, node in given["nodes"].items()}
    return Design(
        nodes=nodes,
        ways=ways,
        entry=given.get("entry") or next(name for name in nodes if name not in targets),
        terminals=tuple(given.get("terminals") or [name for name in nodes if name not in sources]),
        inputs=given.get("inputs", {}),
        decisions={name: Decision(target) for name, target in given.get("decisions", {}).items()},
        **given.get("options", {}),
    )


def _part(name: str, given: dict[str, Any]) -> Part:
    acts = given.get("acts") or [{key: value for key, value in given.items() if key not in NODE_WORDS}]
    return Part(
        acts=tuple(_act(name, act) for act in acts),
        writes=tuple(given.get("writes", ())),
        reads=tuple(given["reads"]) if "reads" in given else None,
        max_visits=given.get("max_visits"),
        attempts=given.get("attempts", 3),
    )


def _act(name: str, given: dict[str, Any]) -> Act:
    _check(given, {"takes", "fails", "output", "kept", "cost", "asks", "forbidden", "sends"}, name)
    fails = given.get("fails", 0)
    return Act(
        seconds=float(given.get("takes", 1)),
        fails=99 if fails == "always" else fails,
        output=given.get("output", name),
        kept=given.get("kept", {}),
        cost=str(given.get("cost", "0")),
        asks=given.get("asks", 0),
        is_terminal=given.get("forbidden", False),
        sends=tuple(Sent(*one) for each in given["sends"] for one in each.items())
        if "sends" in given
        else None,
    )


def _ways(text: str) -> list[Way]:
    """`a -> b`, `a -> b -> c`, `a -> b, c`, `a -> b on_failure`, `a -> b if k > 1`, `a -> b llm fallback`."""
    condition: str | None = None
    head, _, condition_text = text.partition(" if ")
    if condition_text:
        condition = condition_text
    *names, last = [part.strip() for part in head.split("->")]
    target, _, rest = last.partition(" ") if "," not in last else (last, "", "")
    words = rest.split()
    when = next((word for word in words if word in KINDS), "conditional" if condition else "always")
    assert set(words) <= {*KINDS, "fallback"}, text
    when = "llm_decide" if when == "llm" else when
    hops = [*names, target]
    return [
        Way(source, one.strip(), when, condition, "fallback" in words)
        for source, targets in pairwise(hops)
        for one in targets.split(",")
    ]


def _check(given: Mapping[str, Any], words: set[str], where: str) -> None:
    unknown = set(given) - words
    assert not unknown, f"{where}: unknown words {unknown}"
