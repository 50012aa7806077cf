"""Joins of random graphs, against the definition."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fastroai.graphs.shape.edge import Edge, When
from fastroai.graphs.shape.plan import GraphPlan

WHENS: st.SearchStrategy[When] = st.sampled_from(
    ["always", "on_success", "on_failure", "conditional", "llm_decide", "send"]
)


@st.composite
def plans(draw: st.DrawFn) -> GraphPlan:
    names = [f"n{number}" for number in range(draw(st.integers(1, 9)))]
    ends = st.sampled_from(names)
    edges = draw(st.lists(st.builds(Edge, ends, ends, WHENS), max_size=20, unique=True))
    outgoing = {name: tuple(edge for edge in edges if edge.source == name) for name in names}
    terminals = tuple(name for name in names if not outgoing[name])
    return GraphPlan(outgoing, {}, names[0], terminals)


def onward_of(plan: GraphPlan, node: str) -> set[str]:
    """What may come next, which is nothing after an end."""
    return {edge.target for edge in plan.edges[node] if edge.when != "on_failure"}


def reaches_the_end(plan: GraphPlan, start: str, without: str | None = None) -> bool:
    """Whether some way leads from a node to an end, over all edges but `on_failure`, past `without`.

    It may lead over what is sent to a node, as if that was not there.
    """
    if start == without:
        return False
    seen, waiting = {start}, [start]
    while waiting:
        node = waiting.pop()
        onward = onward_of(plan, node)
        skipped = [onward_of(plan, edge.target) for edge in plan.edges[node] if edge.when == "send"]
        if not all((onward, *skipped)):
            return True
        onward = onward.union(*skipped)
        for target in onward - seen - {without}:
            seen.add(target)
            waiting.append(target)
    return False


def post_dominators(plan: GraphPlan, node: str) -> set[str]:
    """All nodes that every way from a node to an end comes by, itself included."""
    return {other for other in plan.edges if not reaches_the_end(plan, node, without=other)}


def nearest(plan: GraphPlan, candidates: set[str]) -> str | None:
    """The one that every way comes by before the others: all others post-dominate it."""
    return next((one for one in candidates if candidates <= post_dominators(plan, one)), None)


@settings(deadline=None)
@given(plans())
def test_immediate_post_dominators_are_those_of_the_definition(plan: GraphPlan) -> None:
    for node in plan.edges:
        expected = None
        if reaches_the_end(plan, node):
            expected = nearest(plan, post_dominators(plan, node) - {node})
        assert plan.post_dominators[node] == expected


@settings(deadline=None)
@given(plans(), st.data())
def test_what_is_sent_comes_together_after_all_its_targets(plan: GraphPlan, data: st.DataObject) -> None:
    targets = data.draw(st.lists(st.sampled_from(list(plan.edges)), max_size=2, unique=True))
    sent_to = data.draw(st.lists(st.sampled_from(list(plan.edges)), min_size=1, max_size=3, unique=True))
    expected = None
    if all(reaches_the_end(plan, target) for target in (*targets, *sent_to)):
        common = [post_dominators(plan, target) for target in targets]
        common += [post_dominators(plan, target) - {target} for target in sent_to]
        expected = nearest(plan, set.intersection(*common))
    assert plan.join_of(tuple(targets), tuple(sent_to)) == expected


@settings(deadline=None)
@given(plans(), st.data())
def test_joins_are_the_nearest_common_post_dominators(plan: GraphPlan, data: st.DataObject) -> None:
    targets = data.draw(st.lists(st.sampled_from(list(plan.edges)), min_size=1, max_size=4, unique=True))
    expected = None
    if all(reaches_the_end(plan, target) for target in targets):
        expected = nearest(plan, set.intersection(*(post_dominators(plan, target) for target in targets)))
    assert plan.join_of(tuple(targets)) == expected
