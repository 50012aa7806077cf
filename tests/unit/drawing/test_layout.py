"""Where things are."""

from itertools import pairwise

import pytest

from fastroai.drawing import Drawing, DrawnEdge, DrawnNode
from fastroai.drawing.layout import Layout, lay_out


def laid_out(edges: str, starts: str = "", labels: str | None = None) -> Layout:
    """Edges such as `ab bc`, all with the same label."""
    drawn = [DrawnEdge(pair[0], pair[1], labels) for pair in edges.split()]
    return lay_out(Drawing([DrawnNode(name) for name in sorted({*edges} - {" "})], drawn, starts))


def rows(layout: Layout) -> list[str]:
    by_row: dict[float, str] = {}
    for box in layout.boxes:
        by_row[box.y] = by_row.get(box.y, "") + box.node.id
    return [by_row[y] for y in sorted(by_row)]


def test_edges_lead_down_except_where_they_close_a_cycle() -> None:
    assert rows(laid_out("ab bc ca", "a")) == ["a", "b", "c"]
    assert rows(laid_out("ab bc ca", "c")) == ["c", "a", "b"]
    assert rows(laid_out("ab ac bd cd")) == ["a", "bc", "d"]


def test_a_walk_sets_out_from_what_nothing_leads_to() -> None:
    assert rows(laid_out("bc cb ab")) == ["a", "b", "c"]


def test_the_dot_is_above_where_a_run_begins() -> None:
    layout = laid_out("ab", "a")
    (a, _) = layout.boxes
    assert layout.dot is not None
    assert layout.dot[0] == pytest.approx(a.x)
    assert layout.dot[1] < a.y - a.size.height / 2
    begin = next(route for route in layout.routes if route.edge is None)
    assert begin.tip == pytest.approx((a.x, a.y - a.size.height / 2))
    assert laid_out("ab").dot is None


def test_a_chain_is_one_straight_line() -> None:
    layout = laid_out("ab bc cd", "a", "label")
    assert len({round(x, 6) for route in layout.routes for x, _ in route.points}) == 1


def test_an_edge_that_leads_up_ends_below_its_target() -> None:
    layout = laid_out("ab ba")
    (a, b) = layout.boxes
    (back,) = (route for route in layout.routes if route.edge and route.edge.source == "b")
    assert back.points[0][1] == b.y - b.size.height / 2
    assert back.tip[1] == a.y + a.size.height / 2


def test_lines_leave_a_node_in_the_order_of_where_they_go() -> None:
    layout = laid_out("ab ac ad ae")
    ends = sorted((route.tip[0], route.points[0][0]) for route in layout.routes)
    assert [leaving for _, leaving in ends] == sorted({leaving for _, leaving in ends})
    assert len(ends) == 4


def test_lines_to_the_same_node_share_the_lane_at_the_side() -> None:
    names = [str(number) for number in range(40)]
    chain = [DrawnEdge(one, other) for one, other in pairwise(names)]
    both = [DrawnEdge("0", "39"), DrawnEdge("1", "39")]
    back = [DrawnEdge("39", "0")]
    nodes = [DrawnNode(name) for name in names]
    layout = lay_out(Drawing(nodes, [*chain, *both, *back]))
    right = max(box.x + box.size.width / 2 for box in layout.boxes)
    lanes = [max(x for x, _ in route.points) for route in layout.routes[-3:]]
    assert lanes[0] == lanes[1] > right
    assert lanes[2] > lanes[0]
    assert layout.width > max(lanes)


def test_nothing_is_a_drawing_too() -> None:
    layout = lay_out(Drawing([]))
    assert (layout.boxes, layout.routes) == ([], [])
    assert layout.width > 0
    assert layout.height > 0
