from __future__ import annotations

import re

from fastroai.drawing import Drawing
from fastroai.drawing.drawing import DrawnEdge, DrawnNode
from fastroai.drawing.page_style import STYLE
from fastroai.drawing.pages import MOST_TEXT, escaped, page, picture, table

EVIL = "<script>alert(1)</script>\"'&\u202e\x1b[31m\ud800"


def test_text_is_escaped_and_cut() -> None:
    shown = escaped(EVIL)
    assert shown == "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#x27;&amp;��[31m�"
    assert escaped("x" * (MOST_TEXT + 5)) == "x" * MOST_TEXT + "… (5 more characters)"
    assert escaped("&" * 10, 3) == "&amp;&amp;&amp;… (7 more characters)"


def test_a_page_has_html_and_bounded_text() -> None:
    shown = page("<p>hello</p>", "a\x1b[31m" + "b" * 100_000)
    assert set(shown) == {"text/html", "text/plain"}
    assert shown["text/html"].endswith("<p>hello</p></div>")
    assert len(shown["text/plain"]) < 21_000
    assert "\x1b" not in shown["text/plain"]


def test_a_drawing_with_too_many_nodes_is_a_sentence() -> None:
    few = Drawing([DrawnNode(EVIL[:-1]), DrawnNode("b")], [DrawnEdge(EVIL[:-1], "b")])
    assert "<script" not in picture(few)
    assert "<svg" in picture(few)
    assert "<style" not in picture(few), "the page has one style sheet"
    many = Drawing([DrawnNode(str(number)) for number in range(251)])
    assert picture(many) == '<p class="faint">251 nodes are more than one picture shows well.</p>'


def test_a_table_says_which_columns_are_numbers() -> None:
    shown = table(("name", "cost"), [("a", "1"), ("b", "2")])
    assert shown.count('<td class="number">') == 2
    assert "<th>name</th>" in shown


def test_the_style_sheet_has_each_colour_in_both_themes_and_touches_nothing_else() -> None:
    used = set(re.findall(r"var\((--fai-[\w-]+)\)", STYLE))
    themes = re.findall(r"\.fastroai-page \{ ((?:--fai-[\w-]+: #\w+; ?)+)\}", STYLE)
    assert len(themes) == 4, "light, dark by the system, and light and dark by the page"
    for theme in themes:
        assert used <= set(re.findall(r"(--fai-[\w-]+):", theme))
    assert themes[0] == themes[2] != themes[1] == themes[3]
    for selector in re.findall(r"^([^\n{@]+)\{", STYLE.replace("\n  ", " "), re.MULTILINE):
        assert ".fastroai-page" in selector or ".fastroai-drawing" in selector, selector


def test_no_text_is_between_two_dollar_signs() -> None:
    """Notebooks would take it for a formula. In drawings and attributes nothing is one."""
    drawn = '<svg><text>$1 and $2</text></svg><p title="$3">'
    shown = page(f"{drawn}$1 to $2</p>", "")["text/html"]
    assert shown.endswith(f"{drawn}<span>$</span>1 to <span>$</span>2</p></div>")
