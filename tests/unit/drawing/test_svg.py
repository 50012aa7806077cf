"""Pictures, read back as XML."""

import re
from itertools import pairwise

import pytest
from support.drawings import SVG, read, words

from fastroai.drawing import Drawing, DrawnEdge, DrawnNode, NodeKind, NodeState, svg

HOSTILE = [
    "<b>bold</b>",
    "</title><script>alert(1)</script>",
    "\"quoted\" & 'quoted'",
    "]]>",
    "&amp;",
    "\x00\x0b\x1f",
    "\ud800 alone",
    "\ufffe",
    "line\nbreak\ttab",
    "über 文 😀",
    "",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_markup(text: str) -> None:
    drawn = svg(
        Drawing(
            [DrawnNode(text, note=text), DrawnNode("b", text)],
            [DrawnEdge(text, "b", text), DrawnEdge("b", text, style="dashed")],
            [text],
            [text],
            title=text,
        )
    )
    drawn.encode()
    plain = svg(
        Drawing(
            [DrawnNode("a", note="a"), DrawnNode("b", "a")],
            [DrawnEdge("a", "b", "a"), DrawnEdge("b", "a", style="dashed")],
            ["a"],
            ["a"],
        )
    )
    tags = [element.tag for element in read(drawn).root.iter() if element.tag != f"{SVG}text"]
    expected = [element.tag for element in read(plain).root.iter() if element.tag != f"{SVG}text"]
    if text:
        assert tags == expected
    assert not {f"{SVG}script", f"{SVG}a", f"{SVG}image", f"{SVG}foreignObject"} & set(tags)
    assert "href" not in drawn
    assert not re.search(r"\bon\w+=", drawn)


@pytest.mark.parametrize("char", [*"\u061c\u200e\u200f\u202a\u202e\u2066\u2069"])
def test_no_text_turns_others_around(char: str) -> None:
    drawn = svg(Drawing([DrawnNode("a", f"{char}b", note=char)], title=char))
    assert char not in drawn
    assert "\ufffdb" in drawn


def test_it_has_a_title_for_those_who_do_not_see_it() -> None:
    root = read(svg(Drawing([DrawnNode("a")], title="support & billing"))).root
    assert root.get("role") == "img"
    assert root[0].tag == f"{SVG}title"
    assert root[0].text == "support & billing"


def test_nodes_say_everything_in_their_title() -> None:
    nodes = [DrawnNode("a", "A long label " * 9, "2 visits", "failed"), DrawnNode("b")]
    picture = read(svg(Drawing(nodes)))
    assert picture.node("a").findtext(f"{SVG}title") == f"{'A long label ' * 9} (a): failed, 2 visits"
    assert picture.node("b").findtext(f"{SVG}title") == "b"
    assert words(picture.node("a")) == [
        "A long label A long label A",
        "long label A long label A",
        "long label A long label A…",
        "2 visits",
    ]


def test_edges_say_everything_in_their_title() -> None:
    nodes = [DrawnNode("a"), DrawnNode("b")]
    edges = [DrawnEdge("a", "b", "yes " * 30, taken=3), DrawnEdge("b", "a", taken=1), DrawnEdge("b", "b")]
    told = [edge.told for edge in read(svg(Drawing(nodes, edges))).edges]
    assert sorted(told) == ["a → b: " + "yes " * 30 + ", taken 3 times", "b → a, taken once", "b → b"]


def test_the_taken_way_is_marked_counted_and_drawn_last() -> None:
    nodes = [DrawnNode("a"), DrawnNode("b"), DrawnNode("c")]
    edges = [
        DrawnEdge("a", "b", "again", taken=3),
        DrawnEdge("a", "c", "other"),
        DrawnEdge("b", "c", style="dashed", taken=1),
    ]
    seen = read(svg(Drawing(nodes, edges))).edges
    assert [(edge.source, edge.target, edge.classes, edge.text) for edge in seen] == [
        ("a", "c", {"edge"}, "other"),
        ("a", "b", {"edge", "taken"}, "3× again"),
        ("b", "c", {"edge", "taken", "dashed"}, ""),
    ]
    assert seen[0].label
    assert seen[2].label is None


@pytest.mark.parametrize(
    "state", ["plain", "succeeded", "failed", "skipped", "cancelled", "running", "waiting"]
)
def test_a_state_is_a_class(state: NodeState) -> None:
    drawn = svg(Drawing([DrawnNode("a", state=state)]))
    assert read(drawn).node("a").get("class") == f"node {state} step"
    assert f".fastroai-drawing .{state} " in drawn or state == "plain"


@pytest.mark.parametrize(
    ("kind", "shapes"), [("step", ["box"]), ("pause", ["box"]), ("graph", ["box", "inner"])]
)
def test_kinds_have_their_shapes(kind: NodeKind, shapes: list[str]) -> None:
    node = read(svg(Drawing([DrawnNode("a", kind=kind)]))).node("a")
    assert [shape.get("class") for shape in node if shape.tag in (f"{SVG}rect", f"{SVG}path")] == shapes
    box = node.find(f"{SVG}rect")
    assert box is not None
    rounded = float(box.get("rx") or 0) == float(box.get("height") or 0) / 2
    assert rounded == (kind == "pause")


def test_where_a_run_may_end_has_a_double_frame_and_where_it_begins_a_dot() -> None:
    drawing = Drawing([DrawnNode("a"), DrawnNode("b")], [DrawnEdge("a", "b")], ["a"], ["b"])
    picture = read(svg(drawing))
    assert len(picture.node("a").findall(f"{SVG}rect")) == 1
    assert len(picture.node("b").findall(f"{SVG}rect")) == 2
    assert len(list(picture.root.iter(f"{SVG}circle"))) == 1
    assert not list(read(svg(Drawing([DrawnNode("a")]))).root.iter(f"{SVG}circle"))


def test_an_edge_from_a_node_to_itself_is_beside_it() -> None:
    picture = read(
        svg(Drawing([DrawnNode("a")], [DrawnEdge("a", "a", "again"), DrawnEdge("a", "a", "more")]))
    )
    box = picture.boxes["a"]
    one, other = picture.edges
    assert one.label
    assert other.label
    assert one.label.left > max(x for x, _ in one.line) > box.right
    assert not one.label.touches(other.label)
    assert one.head[0] == pytest.approx((box.right, one.line[-1][1]), abs=0.11)


def test_the_style_stays_within_the_picture_and_knows_both_themes() -> None:
    style = read(svg(Drawing([]))).root.findtext(f"{SVG}style") or ""
    selectors = [
        part.strip() for rule in re.findall(r"([^{}]+)\{[^{}]*\}", style) for part in rule.split(",")
    ]
    own = [selector for selector in selectors if not selector.startswith(".fastroai-drawing ")]
    assert own == []
    assert style.count("@media (prefers-color-scheme: dark)") == 1


def test_a_thousand_nodes_are_drawn() -> None:
    names = [str(number) for number in range(1_000)]
    edges = [DrawnEdge(one, other, "ok") for one, other in pairwise(names)]
    edges += [DrawnEdge(name, "999", "on failure", "dashed") for name in names[:-2]]
    assert svg(Drawing([DrawnNode(name) for name in names], edges, ["0"])).count("<g class=") == 2_998
