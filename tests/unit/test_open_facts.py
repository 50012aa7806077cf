"""The set of facts is open: only state machines name many kinds, and a package those of no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from support.declared_facts import FACTS

import fastroai
from fastroai.runtime.kinds import DECLARED_IN

PACKAGE: Final = Path(fastroai.__file__).parent
NAMES: Final = {fact.__name__ for fact in FACTS}
FILES: Final = [str(path.relative_to(PACKAGE)) for path in sorted(PACKAGE.rglob("*.py"))]
MANY: Final = 6


def named(node: ast.AST) -> set[str]:
    """The kinds of facts that a piece of code names."""
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    attributes = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
    return (names | attributes) & NAMES


def closed_ones(source: str) -> Iterator[int]:
    """Lines of matches, chains and tables that have an answer for each of many kinds of facts."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Match):
            classes = set[str]().union(*(named(case.pattern) for case in node.cases))
            is_closed = "assert_never" in ast.unparse(node.cases[-1])
            if len(classes) >= MANY and is_closed:
                yield node.lineno
        elif isinstance(node, ast.If):
            tests, last = list[ast.expr](), node
            while True:
                tests.append(last.test)
                if len(last.orelse) != 1 or not isinstance(last.orelse[0], ast.If):
                    break
                last = last.orelse[0]
            if len(set[str]().union(*map(named, tests))) >= MANY:
                yield node.lineno
        elif isinstance(node, ast.Dict):
            if sum(bool(key and named(key)) for key in node.keys) >= MANY // 2:
                yield node.lineno
        elif isinstance(node, ast.Tuple | ast.Set | ast.List) and len(named(node)) >= MANY:
            yield node.lineno


def test_no_reader_of_facts_has_an_answer_for_each_kind() -> None:
    readers = [name for name in FILES if not re.search("/machine(/machine)?.py$", name)]
    assert len(readers) > 500
    lines = {name: [*closed_ones((PACKAGE / name).read_text(encoding="utf-8"))] for name in readers}
    found = {name: closed for name, closed in lines.items() if closed}
    assert found == {}, "a fact brings what differs from kind to kind itself"


def test_a_closed_match_a_chain_and_a_table_are_found() -> None:
    six = ["StepStarted", "StepFinished", "StepFailed", "StepHalted", "StepSkipped", "CallEnded"]
    cases = "".join(f"  case facts.{name}():\n   pass\n" for name in six)
    assert [*closed_ones(f"match fact:\n{cases}  case _:\n   assert_never(fact)\n")] == [1]
    assert [*closed_ones(f"match fact:\n{cases}  case _:\n   pass\n")] == []
    chain = "".join(
        f"{'el' if number else ''}if isinstance(fact, {name}):\n  pass\n" for number, name in enumerate(six)
    )
    assert 1 in closed_ones(chain)
    assert [*closed_ones(f"TABLE = {{{', '.join(f'{name}: 1' for name in six)}}}")] == [1]
    assert [*closed_ones(f"known = isinstance(fact, ({', '.join(six)}))")] == [1]


@pytest.mark.parametrize("home", DECLARED_IN)
def test_facts_of_a_package_are_named_in_no_other(home: str) -> None:
    package = home.split(".")[1]
    own = {fact.__name__ for fact in FACTS if fact.__module__ == home}
    assert own
    promises = ("__init__.py", "pipelines/__init__.py")  # of public names
    elsewhere = {
        name: found
        for name in FILES
        if not name.startswith(f"{package}/") and name not in promises
        if (found := own & set(re.findall(r"\b\w+\b", (PACKAGE / name).read_text(encoding="utf-8"))))
    }
    assert elsewhere == {}
