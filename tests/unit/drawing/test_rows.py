"""Rows, and the points of lines in them."""

from fastroai.drawing.rows import Link, Rows, rows_of


def chain_of(links: list[Link], count: int) -> tuple[Rows, list[int]]:
    rows = rows_of(range(count), links)
    return rows, [rows.row_of[item][0] for item in rows.chains[-1].items]


def test_a_line_has_a_point_in_each_row_that_it_passes() -> None:
    rows, passed = chain_of([Link(0, 1), Link(1, 2), Link(0, 2)], 3)
    assert passed == [0, 1, 2]
    assert rows.rows == [[0], [1, 3], [2]]
    assert (rows.above[3], rows.below[3], rows.below[0]) == ([0], [2], [1, 3])


def test_labels_have_a_row_between_layers() -> None:
    rows, passed = chain_of([Link(0, 1, labelled=True)], 2)
    assert passed == [0, 1, 2]
    assert rows.chains[0].label == 2
    assert not rows.chains[0].up


def test_a_label_is_next_to_where_its_edge_begins() -> None:
    links = [Link(0, 1), Link(1, 2), Link(2, 0, labelled=True)]
    rows, passed = chain_of(links, 3)
    (chain,) = rows.chains[2:]
    assert chain.up
    assert passed == [0, 1, 2, 3]
    assert chain.label is not None
    assert rows.row_of[chain.label] == (2, 2)


def test_edges_there_and_back_do_not_lie_on_each_other() -> None:
    rows, passed = chain_of([Link(0, 1), Link(1, 0)], 2)
    assert passed == [0, 1, 2]
    assert [len(row) for row in rows.rows] == [1, 2, 1]


def test_the_longest_lines_go_around_at_the_side() -> None:
    chain = [Link(index, index + 1) for index in range(40)]
    rows, passed = chain_of([*chain, Link(0, 40)], 41)
    assert passed == [0, 1, 40]
    assert rows.row_of[41] == (1, 39)
    assert all(41 not in row for row in rows.rows)


def test_the_longest_lines_have_their_label_where_they_begin() -> None:
    chain = [Link(index, index + 1) for index in range(40)]
    down, _ = chain_of([*chain, Link(0, 40, labelled=True)], 41)
    up, _ = chain_of([*chain, Link(40, 0, labelled=True)], 41)
    assert [down.row_of[item] for item in down.chains[-1].items] == [(0, 0), (1, 1), (2, 40), (41, 41)]
    assert [up.row_of[item] for item in up.chains[-1].items] == [(0, 0), (1, 39), (40, 40), (41, 41)]
    assert (down.chains[-1].label, up.chains[-1].label) == (
        down.chains[-1].items[1],
        up.chains[-1].items[2],
    )


def test_points_grow_no_faster_than_lines() -> None:
    count = 300
    links = [Link(index, index + 1) for index in range(count - 1)]
    links += [Link(index, count - 1) for index in range(count - 2)]
    assert len(rows_of(range(count), links).row_of) < 4 * count + 24 * 24
