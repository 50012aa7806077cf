"""Room for text."""

import pytest

from fastroai.drawing.text import lines_of, width_of


def test_width_grows_with_the_font_and_with_wide_characters() -> None:
    assert width_of("abc", 20) == pytest.approx(2 * width_of("abc", 10))
    assert width_of("iii", 10) < width_of("nnn", 10) < width_of("NNN", 10) < width_of("mmm", 10)
    assert width_of("文字", 10) == pytest.approx(21)


def test_accents_take_no_room_of_their_own() -> None:
    assert width_of("e\u0301", 10) == width_of("e", 10)


def test_long_text_is_in_lines_and_cut_where_it_is_too_long() -> None:
    assert lines_of("one two three", 7, 3) == ["one two", "three"]
    assert lines_of("one two three four five", 7, 2) == ["one two", "three…"]
    assert lines_of("abcdefghij", 4, 2) == ["abcd", "efg…"]


def test_white_space_is_one_space() -> None:
    assert lines_of(" a\n\tb ", 20, 2) == ["a b"]
    assert lines_of("  ", 20, 2) == []
