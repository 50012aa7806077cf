from __future__ import annotations

import itertools

from fastroai.graphs.shape.edge import Edge, When
from fastroai.graphs.shape.plan import GraphPlan


def plan_of(*ways: str, terminals: tuple[str, ...] | None = None, failing: tuple[str, ...] = ()) -> GraphPlan:
    """A plan of ways such as "a b c"; those in `failing` are taken on failure."""
    nodes: dict[str, list[Edge]] = {}
    for way in (*ways, *failing):
        when: When = "on_failure" if way in failing else "always"
        names = way.split()
        for name in names:
            nodes.setdefault(name, [])
        for source, target in itertools.pairwise(names):
            nodes[source].append(Edge(source, target, when))
    edges = {name: tuple(outgoing) for name, outgoing in nodes.items()}
    if terminals is None:
        terminals = tuple(name for name in nodes if not edges[name])
    return GraphPlan(tuple(nodes), edges, {}, next(iter(nodes)), terminals)


def test_branches_meet_at_their_nearest_common_post_dominator() -> None:
    plan = plan_of("fork a b join end", "fork c join")
    assert plan.join_of(("a", "c")) == "join"
    assert dict(plan.post_dominators) == {
        "fork": "join",
        "a": "b",
        "b": "join",
        "join": "end",
        "end": None,
        "c": "join",
    }


def test_a_node_post_dominates_itself() -> None:
    plan = plan_of("fork join end", "fork a join")
    assert plan.join_of(("join", "a")) == "join"
    assert plan.join_of(("a",)) == "a"


def test_nested_forks_join_from_the_inside_out() -> None:
    plan = plan_of("outer inner x meet last", "inner y meet", "outer z last")
    assert plan.join_of(("x", "y")) == "meet"
    assert plan.join_of(("inner", "z")) == "last"
    assert plan.join_of(("x", "y", "z")) == "last"


def test_branches_that_end_in_different_terminals_meet_nowhere() -> None:
    plan = plan_of("fork a one", "fork b two")
    assert plan.join_of(("a", "b")) is None
    assert plan.post_dominators["fork"] is None


def test_ways_after_failures_do_not_move_the_join() -> None:
    plan = plan_of("fork a join", "fork b join", failing=("a rescue", "b rescue"))
    assert plan.join_of(("a", "b")) == "join"
    assert plan.join_of(("a", "rescue")) is None


def test_a_node_that_goes_on_only_after_failures_is_an_end() -> None:
    plan = plan_of("fork a", "fork b join", failing=("a join",))
    assert plan.post_dominators["a"] is None
    assert plan.join_of(("a", "b")) is None


def test_a_loop_back_does_not_move_the_join() -> None:
    plan = plan_of("start fork a join end", "fork b join", "join start")
    assert plan.join_of(("a", "b")) == "join"
    assert plan.post_dominators["join"] == "end"
    assert plan.join_of(("start", "end")) == "end"


def test_a_node_from_which_no_end_is_reached_has_no_post_dominator() -> None:
    plan = plan_of("fork a b a", "fork end")
    assert plan.post_dominators["a"] is None
    assert plan.join_of(("a", "end")) is None


def test_a_terminal_is_an_end_also_where_edges_leave_it() -> None:
    assert plan_of("a b c", terminals=("b", "c")).post_dominators == {"a": "b", "b": None, "c": None}


def test_a_join_is_found_once() -> None:
    plan = plan_of("fork a join", "fork b join")
    assert plan.join_of(("a", "b")) == plan.join_of(("a", "b")) == "join"


def test_ways_that_cross_do_not_hide_the_join() -> None:
    plan = plan_of("a b c f end", "a d e f", "b e", "d c", "c g end", "e g")
    assert {node: plan.post_dominators[node] for node in "abcdefg"} == dict.fromkeys("abcdefg", "end")
    crossing = plan_of("end_of z y x", "end_of y", "z w x", "w y", "x last", "y w")
    assert crossing.post_dominators["z"] == crossing.post_dominators["y"] == "x"


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
    assert plan_of("a b") != plan_of("a b", failing=("a b",))
