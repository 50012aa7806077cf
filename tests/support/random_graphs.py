"""Random graphs that build, with scripts for their nodes: as plain data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from support.graph_reference import Act, Decision, Design, Part, Sent, Way

KEYS = ("k0", "k1", "k2")
VALUES = st.integers(0, 3)
CONDITIONS = (
    "{0} > 1",
    "{0} == 0",
    "not {0} == 2",
    "has({0})",
    "not has({0}) and {1} > 0",
    "{0} in [1, 2] and {1} >= 1",
    "{0} < {1}",
    "{0} > 0 or {1} > 2",
    "0 <= {0} < 2",
    "({0} if has({0}) else {1}) > 1",
)


@st.composite
def designs(
    draw: st.DrawFn, *, timed: bool = True, limited: bool = True, size: int = 10, parallel: bool = False
) -> Design:
    """Graphs of 2 to `size` nodes: from each, a way to an end over edges other than `on_failure`."""
    count = draw(st.integers(2, size))
    names = [f"n{number}" for number in range(count)]
    nodes = {name: draw(parts(name)) for name in names}
    keys = sorted({key for part in nodes.values() for key in part.writes})
    ways: list[Way] = []
    for number, name in enumerate(names):
        later, earlier = names[number + 1 :], names[: number + 1]
        ways += draw(ways_from(name, later, earlier, keys))
    ways += _ways_to_the_unreached(draw, names, ways)
    for name in names:
        if sent_to := [way.target for way in ways if way.source == name and way.when == "send"]:
            acts = tuple(replace(act, sends=draw(sends(sent_to))) for act in nodes[name].acts)
            nodes[name] = replace(nodes[name], acts=acts)
    sources = {way.source for way in ways}
    ends = [name for name in names if name not in sources]
    return Design(
        nodes={name: nodes[name] for name in draw(st.permutations(names))},
        ways=tuple(ways),
        entry=names[0],
        terminals=tuple(draw(st.permutations(ends))),
        decisions={
            name: Decision(draw(st.none() | st.sampled_from(targets)), 1.0)
            for name in names
            if (targets := [way.target for way in ways if way.source == name and way.when == "llm_decide"])
        },
        inputs=draw(st.dictionaries(st.sampled_from(("k0", "topic")), VALUES)),
        max_steps=draw(st.sampled_from([30, 30, 30, 8])),
        on_branch_failure=draw(st.sampled_from(["fail_all", "continue_others", "wait_all"])),
        on_conflict=draw(st.sampled_from(["last_wins", "last_wins", "first_wins", "error"])),
        branch_timeout=draw(st.sampled_from([None, None, 2.25, 6.25])) if timed else None,
        max_concurrency=draw(st.sampled_from([None, None, 1, 2])) if limited else None,
        is_uneven=True,
    )


@st.composite
def parts(draw: st.DrawFn, name: str) -> Part:
    writes = tuple(draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=2)))
    return Part(
        acts=tuple(draw(st.lists(acts(writes), min_size=1, max_size=2))),
        writes=writes,
        reads=draw(st.none() | st.lists(st.sampled_from(KEYS), unique=True, min_size=1).map(tuple)),
        max_visits=draw(st.sampled_from([None, None, None, 1, 2])),
        attempts=draw(st.sampled_from([3, 3, 1, 2])),
    )


@st.composite
def acts(draw: st.DrawFn, writes: tuple[str, ...]) -> Act:
    kept = draw(st.dictionaries(st.sampled_from(writes or KEYS), VALUES, max_size=1))
    return Act(
        seconds=float(draw(st.integers(1, 4))),
        fails=draw(st.sampled_from([0, 0, 0, 0, 1, 3])),
        output=draw(outputs(writes)),
        kept=kept,
    )


def sends(targets: list[str]) -> st.SearchStrategy[tuple[Sent, ...]]:
    """Mostly few, as each of them may send again."""
    inputs = st.dictionaries(st.sampled_from((*KEYS, "topic")), VALUES, max_size=2)
    return st.lists(st.builds(Sent, st.sampled_from(targets), inputs), max_size=3).map(tuple)


def outputs(writes: tuple[str, ...]) -> st.SearchStrategy[Any]:
    """Mostly what fits; now and then something that lacks a field."""
    fitting: st.SearchStrategy[Any] = st.fixed_dictionaries(
        dict.fromkeys(writes, VALUES), optional={"extra": VALUES}
    )
    if len(writes) == 1:
        return fitting | VALUES
    unfit: st.SearchStrategy[Any] = st.just({}) if writes else VALUES
    return st.one_of(fitting, fitting, fitting, unfit)


@st.composite
def ways_from(
    draw: st.DrawFn, source: str, later: list[str], earlier: list[str], keys: list[str]
) -> list[Way]:
    """None, or some, of which at least one leads on."""
    if not later or draw(st.integers(0, 9)) == 0:
        return []
    onward = draw(st.lists(st.sampled_from(later), unique=True, min_size=1, max_size=3))
    back = draw(st.lists(st.sampled_from(earlier), unique=True, max_size=1)) if draw(st.booleans()) else []
    targets = draw(st.permutations(onward + back))
    kinds = [
        "always",
        "on_success",
        "on_failure",
        "llm_decide",
        "send",
        *(["conditional"] * 2 if keys else []),
    ]
    ways = [draw(a_way(source, target, draw(st.sampled_from(kinds)), keys)) for target in targets]
    more = draw(st.booleans())
    if more:  # a second edge to one of them
        target, when = draw(st.sampled_from(targets)), draw(st.sampled_from(["always", "on_failure"]))
        if not any(way.target == target and way.when == when for way in ways):
            ways.append(Way(source, target, when))
    if not any(way.target in onward and way.when != "on_failure" for way in ways):
        ways.append(Way(source, onward[0], draw(st.sampled_from(["always", "on_success"]))))
    if len({(way.target, way.when) for way in ways}) < len(ways):
        ways = list({(way.target, way.when): way for way in ways}.values())
    return _with_a_fallback(draw, ways)


@st.composite
def a_way(draw: st.DrawFn, source: str, target: str, when: str, keys: list[str]) -> Way:
    if when != "conditional":
        return Way(source, target, when)
    text = draw(st.sampled_from(CONDITIONS))
    names = [draw(st.sampled_from(keys)) for _ in range(2)]
    return Way(source, target, when, condition=text.format(*names))


def _with_a_fallback(draw: st.DrawFn, ways: list[Way]) -> list[Way]:
    asked = [number for number, way in enumerate(ways) if way.when == "llm_decide"]
    if asked:
        number = draw(st.sampled_from(asked))
        ways[number] = Way(ways[number].source, ways[number].target, "llm_decide", fallback=True)
    return ways


def _ways_to_the_unreached(draw: st.DrawFn, names: list[str], ways: list[Way]) -> list[Way]:
    """An edge to each node that nothing before it leads to."""
    more: list[Way] = []
    for number, name in enumerate(names[1:], 1):
        if any(way.target == name and way.source in names[:number] for way in (*ways, *more)):
            continue
        source = draw(st.sampled_from(names[:number]))
        more.append(Way(source, name, draw(st.sampled_from(["on_success", "always"]))))
    return more
