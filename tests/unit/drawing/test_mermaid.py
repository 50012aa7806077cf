"""Mermaid text, held against a strict grammar of the part of Mermaid that is used."""

import re

import pytest

from fastroai.drawing import Drawing, DrawnEdge, DrawnNode, mermaid

QUOTED = r'"(?:[^"#;:\n\r\\<>&%{}`*~@|]|#\d+;|<br/>)+"'
LABEL = r"(?:[^\"#;:\n\r\\<>&%{}`*~@|]|#\d+;)+"
STATE_DIAGRAM = re.compile(
    r"stateDiagram-v2\n(?:    (?:"
    rf"state {QUOTED} as s\d+|(?:s\d+|\[\*\]) --> (?:s\d+|\[\*\])(?: : {LABEL})?"
    r")\n)*"
)
FLOWCHART = re.compile(
    r"flowchart TD\n(?:    (?:"
    rf"s\d+(?:\[{QUOTED}\]|\(\[{QUOTED}\]\)|\[\[{QUOTED}\]\])(?::::[a-z]+)?"
    r'|start\(\(" "\)\)|stop\(\(\(" "\)\)\)'
    rf"|(?:s\d+|start) (?:-->|-\.->)(?:\|{QUOTED}\|)? (?:s\d+|stop)"
    r"|classDef [a-z]+ [a-z\-]+:[^\n;\"]+"
    r"|linkStyle \d+(?:,\d+)* stroke:#[0-9a-f]{6},stroke-width:3px"
    r")\n)*"
)
# What has once broken a diagram of Mermaid 11, or was shown as something else.
HOSTILE = [
    "end",
    "\u202e",
    "a-b",
    "x y",
    "<b>bold</b>",
    'quo"te',
    "line\nbreak",
    "carriage\rreturn",
    "semi;colon",
    "#35;",
    "&amp;",
    "back\\slash",
    "[*]",
    "a --> b",
    "%% comment",
    "%%{init: {'theme': 'dark'}}%%",
    "`code`",
    "**bold**",
    "__proto__",
    "_it_",
    "~~gone~~",
    "style:#x",
    "classDef x:#y;",
    ":::failed",
    "a|b",
    "$$x$$",
    "fa:fa-ban",
    "@{ shape: x }",
    "<script>alert(1)</script>",
    "über 文 😀",
    "\x00",
    "\ud800",
    "",
]


def decoded(text: str) -> str:
    return re.sub(r"#(\d+);", lambda code: chr(int(code[1])), text)


def test_a_graph_without_style_is_a_state_diagram() -> None:
    drawing = Drawing(
        [DrawnNode("write"), DrawnNode("judge", "Judge it")],
        [DrawnEdge("write", "judge"), DrawnEdge("judge", "write", "retry"), DrawnEdge("judge", "judge")],
        ["write"],
        ["judge"],
    )
    assert mermaid(drawing) == (
        "stateDiagram-v2\n"
        '    state "write" as s0\n'
        '    state "Judge it" as s1\n'
        "    [*] --> s0\n"
        "    s1 --> s0 : retry\n"
        "    s0 --> s1\n"
        "    s1 --> s1\n"
        "    s1 --> [*]\n"
    )


def test_a_run_is_a_flowchart() -> None:
    drawing = Drawing(
        [
            DrawnNode("write", state="succeeded", note="2 visits · $0.01"),
            DrawnNode("ask", kind="pause", state="waiting"),
            DrawnNode("publish", kind="graph"),
        ],
        [
            DrawnEdge("write", "ask", "unsure", taken=2),
            DrawnEdge("write", "publish"),
            DrawnEdge("ask", "write", style="dashed", taken=1),
        ],
        ["write"],
        ["publish"],
    )
    assert mermaid(drawing) == (
        "flowchart TD\n"
        '    s0["write<br/>2 visits · $0.01"]:::succeeded\n'
        '    s1(["ask"]):::waiting\n'
        '    s2[["publish"]]\n'
        '    start((" "))\n'
        "    start --> s0\n"
        '    s0 -->|"2× unsure"| s1\n'
        "    s0 --> s2\n"
        "    s1 -.-> s0\n"
        '    stop(((" ")))\n'
        "    s2 --> stop\n"
        "    classDef succeeded fill:#dafbe1,stroke:#1a7f37,color:#1f2328\n"
        "    classDef waiting fill:#fff8c5,stroke:#9a6700,color:#1f2328\n"
        "    linkStyle 1,3 stroke:#0969da,stroke-width:3px\n"
    )


@pytest.mark.parametrize(
    "styled",
    [
        Drawing([DrawnNode("a", state="failed")]),
        Drawing([DrawnNode("a", note="2 visits")]),
        Drawing([DrawnNode("a", kind="pause")]),
        Drawing([DrawnNode("a")], [DrawnEdge("a", "a", style="dashed")]),
        Drawing([DrawnNode("a")], [DrawnEdge("a", "a", taken=1)]),
    ],
)
def test_whatever_a_state_diagram_cannot_show_makes_it_a_flowchart(styled: Drawing) -> None:
    assert FLOWCHART.fullmatch(mermaid(styled))


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_syntax(text: str) -> None:
    edges = [DrawnEdge(text, "b", text), DrawnEdge("b", text, text)]
    states = mermaid(Drawing([DrawnNode(text), DrawnNode("b")], edges, [text], [text]))
    flow = mermaid(
        Drawing([DrawnNode(text, note=text), DrawnNode("b", state="failed")], edges, [text], [text])
    )
    assert STATE_DIAGRAM.fullmatch(states)
    assert FLOWCHART.fullmatch(flow)
    assert len(states.splitlines()) == 7
    assert len(flow.splitlines()) == 10
    states.encode()
    shown = re.search(r'state "(.*)" as s0', states)
    assert shown
    unshown = dict.fromkeys(("\x00", "\ud800", "\u202e"), "\ufffd")
    expected = {"": "\xa0", **unshown}.get(text, text)
    assert decoded(shown[1]) == expected


def test_underscores_within_words_and_single_dollars_stay_readable() -> None:
    assert '"give_up · $0.012"' in mermaid(Drawing([DrawnNode("give_up · $0.012")]))


def test_nothing_is_a_diagram_too() -> None:
    assert mermaid(Drawing([])) == "stateDiagram-v2\n"
