"""Pages use everyday words: no phrases that read like a translation, no special word without an explanation.

Code, comments and headings are left out. Each rule says what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))]

INSTEAD: Final = {
    r"whoever": "name who it is: 'the process that …', 'the person who …'",
    r"of yours|of one's own": "'your …'",
    r"nobody (?:knows|says|has)": "'is unknown', 'no process has'",
    r"has the say|have the say": "'decides'",
    r"given up on": "name who stops to retry, and when",
    r"(?<!there )(?:is|are|was|were) no (?!longer|more than)\w+": "'is not a …'",
    r"(?<=, )else|(?<=; )else": "'otherwise'",
    r"unless given": "'by default', 'the default is …'",
    r"anew": "'again'",
    r"(?:go|goes|going|went) on with": "'continue'",
    r"(?:take|takes|taking|took|taken) up": "'resume', 'take over'",
    r"(?:become|becomes|became) of": "'what happens to'",
    r"dearer": "'more expensive'",
    r"comes? along": "'is included'",
    r"does as well|do as well": "'you can also …'",
    r"who needs whom": "'which … needs which …'",
    r"nothing (?:is|are|was|that is|that was) not": "say it without 'not': 'everything is …'",
    r"not (?:un(?!less|der|til|iq|ion|it)\w+|without)": "one negation",
    r"no \w+ (?:that|which) (?:is|are|was|has|have|does|do) (?:not|no)\b": "one negation",
}
"""What reads like a translation, and what to write instead."""

FRAGMENTS: Final = {
    r"What (?:[^.?!:|]|\.\w)*\.(?=\s|$)": "begin with the noun: 'The outputs that …'",
    r"Whether (?:[^.?!:|]|\.\w)*\.(?=\s|$)": "begin with the one who decides or says it",
    r"Of (?:the|a|an|what|all|which) (?:[^.?!:|,]|\.\w)*\.(?=\s|$)": "a sentence with a subject and a verb",
}
"""Beginnings of sentences that make a reader search for the subject."""

SPECIAL: Final = {
    "admission": r"admission",
    "ambiguous": r"ambiguous",
    "bound": r"bounds?",
    "driven-from-outside": r"driven from outside",
    "fact": r"(?<!in )facts?",
    "front-door": r"front doors?",
    "phase": r"phases?",
    "place": r"(?<!in )(?<!take )(?<!takes )(?<!took )(?<!its )(?<!their )places?",
    "released": r"released",
    "sealed": r"sealed",
    "settled": r"settled",
    "visit": r"visits?",
}
"""Words with a special meaning here, by the anchor of their entry in the glossary.

The first use on a page links to the entry, or to a page about the word.
"""

TO_MEND: Final[dict[str, int]] = {}
"""Hits that some pages still have. A number here may only become smaller."""


LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)\s]*)\)(?:\{[^}]*\})?")


def prose_of(text: str) -> Iterator[tuple[int, str]]:
    """The paragraphs of a page, with the line where each begins; without code, comments and headings."""

    def blank(found: re.Match[str]) -> str:
        return "\n" * found.group().count("\n")

    text = re.sub(r"^ *(```|~~~).*?^ *\1 *$", blank, text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->|\A---\n.*?\n---\n", blank, text, flags=re.DOTALL)
    text = re.sub(r"^(?:#|:::|    ).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"``[^`]+``|`[^`]*`", lambda found: "§" + blank(found), text)
    line = 1
    for paragraph in re.split(r"(\n(?:\s*\n|(?=\s*[-|*] |\s*\d+\. )))", text):
        if paragraph.strip():
            yield line, paragraph
        line += paragraph.count("\n")


def words_of(paragraph: str) -> str:
    """Return a paragraph as people read it: on one line, links by their text."""
    return re.sub(r"\s+", " ", LINK.sub(r"\1", paragraph).replace("*", ""))


def hits_in(name: str, page: str) -> Iterator[str]:
    """What to change on a page: file, line, words, and what to write instead."""
    linked: set[str] = {*SPECIAL} if name == "docs/reference/glossary.md" else set()
    for line, paragraph in prose_of(page):
        text = words_of(paragraph)
        for pattern, instead in INSTEAD.items():
            for found in re.finditer(rf"\b(?:{pattern})\b", text, re.IGNORECASE):
                yield f"{name}:{line}: {found.group()!r}; write {instead}"
        without_links = words_of(LINK.sub("A page", paragraph))
        for pattern, instead in FRAGMENTS.items():
            for found in re.finditer(rf"(?:^[-*|\d. ]*|(?<=[.;] )){pattern}", without_links):
                yield f"{name}:{line}: {found.group().strip()!r}; write {instead}"
        for anchor, pattern in SPECIAL.items():
            word = re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE)
            if anchor in linked or not word.search(text):
                continue
            linked.add(anchor)
            if not any(word.search(words) for words, _ in LINK.findall(paragraph)):
                yield f"{name}:{line}: {anchor!r}; write an everyday word, or link it to glossary.md#{anchor}"


def test_pages_say_it_in_everyday_words() -> None:
    wrong = list[str]()
    for page in PAGES:
        hits = list(hits_in(page, (ROOT / page).read_text(encoding="utf-8")))
        wrong += hits if len(hits) > TO_MEND.get(page, 0) else ()
    assert not wrong, "\n".join(wrong)


def test_special_words_have_an_entry_in_the_glossary() -> None:
    glossary = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    entries = re.findall(r"^### (.+)$", glossary, re.MULTILINE)
    assert {*SPECIAL} <= {entry.lower().replace(" ", "-") for entry in entries}


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("What one place has given up on, no place around it tries again.", "given up on"),
        ("What only you know, a function can say.", "What only you know"),
        ("The first that fits has the say.", "has the say"),
        ("Pass it to whoever can tell.", "whoever"),
        ("A function of\nyours is called.", "of yours"),
        ("See `x`. The bound\nholds.", "'bound'; write an everyday word"),
        ("Nothing is not counted.", "Nothing is not"),
    ],
)
def test_what_readers_did_not_understand_is_found(said: str, found: str) -> None:
    hits = list(hits_in("page.md", f"# Page\n\nA plain sentence.\n\n{said}\n"))
    assert any(found in hit and hit.startswith("page.md:5:") for hit in hits)


def test_code_and_linked_words_are_left_alone() -> None:
    page = "Its [bound](glossary.md#bound), later bounds, and `whoever`.\n\n```text\nof yours\n```\n"
    assert list(hits_in("page.md", page)) == []
