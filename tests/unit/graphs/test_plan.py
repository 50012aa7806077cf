from __future__ import annotations

import itertools

from fastroai.graphs.shape.edge import Edge
from fastroai.graphs.shape.plan import GraphPlan


def plan_of(*ways: str, terminals: tuple[str, ...] | None = None) -> GraphPlan:
    """A plan of ways such as "a b c"."""
    nodes: dict[str, list[Edge]] = {}
    for way in ways:
        names = way.split()
        for name in names:
            nodes.setdefault(name, [])
        for source, target in itertools.pairwise(names):
            nodes[source].append(Edge(source, target, "always"))
    edges = {name: tuple(outgoing) for name, outgoing in nodes.items()}
    if terminals is None:
        terminals = tuple(name for name in nodes if not edges[name])
    return GraphPlan(edges, {}, next(iter(nodes)), terminals)


def test_a_terminal_is_an_end_also_where_edges_leave_it() -> None:
    assert plan_of("a b c", terminals=("b", "c")).post_dominators == {"a": "b", "b": None, "c": None}


def test_long_chains_and_deep_nesting_need_no_recursion() -> None:
    names = [f"n{number}" for number in range(10_000)]
    chain = plan_of(" ".join(names))
    assert chain.post_dominators["n0"] == "n1"
    assert chain.join_of(("n0", "n9998")) == "n9998"
    # Every node of the first half can also go to its mirror image in the second.
    ways = [f"n{number} n{9_999 - number}" for number in range(4_999)]
    nested = plan_of(" ".join(names), *ways)
    assert nested.post_dominators["n0"] == "n9999"
    assert nested.join_of(("n4998", "n5005")) == "n5005"
    assert nested.join_of(("n1", "n9999")) == "n9999"


def test_equal_texts_make_equal_plans() -> None:
    assert plan_of("a b") == plan_of("a b")
    assert plan_of("a b") != plan_of("a b", "a c")
