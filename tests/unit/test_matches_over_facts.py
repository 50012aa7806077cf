"""A new kind of fact is forgotten nowhere: every match over facts names each kind, for mypy to check."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import fastroai
from fastroai.runtime.facts import AnyFact

PACKAGE = Path(fastroai.__file__).parent
FACTS = {kind.__name__ for kind in get_args(AnyFact)}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))


def matches_over_facts(source: str) -> Iterator[ast.Match]:
    """All but those over events of any kind, which users may add to."""
    for function in functions(ast.parse(source)):
        events = {
            argument.arg
            for argument in function.args.args
            if argument.annotation is not None and ast.unparse(argument.annotation) == "RunEvent"
        }
        for match in (one for one in ast.walk(function) if isinstance(one, ast.Match)):
            patterns = (one for case in match.cases for one in ast.walk(case.pattern))
            names = (ast.unparse(one.cls) for one in patterns if isinstance(one, ast.MatchClass))
            classes = {name.removeprefix("facts.") for name in names}
            if classes & FACTS and ast.unparse(match.subject) not in events:
                yield match


def is_exhaustive(match: ast.Match) -> bool:
    """Whether it ends in `case _: assert_never(...)`, before which nothing takes what is left."""
    *others, last = match.cases
    takes_all = any(case.guard is None and ast.unparse(case.pattern) == "_" for case in others)
    [statement, *more] = last.body
    ends = ast.unparse(last.pattern) == "_" and last.guard is None and not more
    return ends and not takes_all and ast.unparse(statement) == f"assert_never({ast.unparse(match.subject)})"


@pytest.mark.parametrize(
    "name",
    [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        if "match " in path.read_text()
    ],
)
def test_every_match_over_facts_ends_in_assert_never(name: str) -> None:
    source = (PACKAGE / name).read_text()
    open_ones = [match.lineno for match in matches_over_facts(source) if not is_exhaustive(match)]
    assert open_ones == [], f"{name}: the matches in these lines do not name every fact"


def test_it_finds_a_match_that_takes_what_is_left() -> None:
    source = """
def told(fact):
    match fact:
        case StepStarted():
            return 1
        case _:
            return 2
"""
    [match] = matches_over_facts(source)
    assert not is_exhaustive(match)
    assert list(matches_over_facts(source.replace("told(fact)", "told(fact: RunEvent)"))) == []
    [match] = matches_over_facts(source.replace("return 2", "assert_never(fact)"))
    assert is_exhaustive(match)
