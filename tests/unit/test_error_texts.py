"""Messages of errors change by decision only, and are written for the person who meets them."""

import re

from support.error_texts import KEPT, errors_of_the_code

INTERNAL = re.compile(
    r"\b(?:visits?|phases?|front doors?|settled|released|admission|admitted|sealed|unsealed|ambiguous"
    r"|(?:a|the|of|no) facts?|driven from outside|anew|whoever|of yours|goes on with|go on with|take[ns]? "
    r"up(?! to)"
    r"|nothing (?:beside|without|for)|nobody to|(?<![Tt]here )is no (?!longer|more)\w+)\b"
)
"""Words that only the code uses, and phrases that readers had to read twice."""
ON_RECORD = {"graphs/machine/machine: max_steps={} visits were made before {}"}
"""Reasons that replays compare with those of runs that earlier versions have written."""


def test_each_package_has_the_messages_that_are_kept() -> None:
    kept = {file.stem: file.read_text(encoding="utf-8").splitlines() for file in KEPT.glob("*.txt")}
    assert kept == errors_of_the_code(), "`make errors` writes them again; the difference is the decision"


def test_a_message_has_short_sentences_without_internal_words() -> None:
    wrong = list[str]()
    for line in {line for lines in errors_of_the_code().values() for line in lines} - ON_RECORD:
        _, _, text = line.partition(": ")
        wrong += [f"{line}: {found!r}" for found in INTERNAL.findall(text)]
        wrong += [
            f"{line}: {len(sentence.split())} words"
            for sentence in re.split(r"[.;:?!](?:\s|$)", text)
            if len(sentence.split()) > 30
        ]
    assert wrong == []


def test_messages_are_found_wherever_they_are_made() -> None:
    every = "\n".join(line for lines in errors_of_the_code().values() for line in lines)
    for text in (
        "errors/budgets: {} is too small{}: its limit is {}",
        "cli/running: no value for a pipeline, which takes --inputs",
        "graphs/shape/problems: it has no nodes; give at least one: nodes={'name': step}",
        "usage/bounding/bounds: nothing limits the answer: set max_tokens",
    ):
        assert text in every
