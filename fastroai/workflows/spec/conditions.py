"""The expressions of a spec: `ensure`, `skip_if` and `exit_criterion`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue

from fastroai.documents.yaml_text import Way
from fastroai.errors import ExpressionError
from fastroai.expressions import Expression
from fastroai.workflows.spec.files import FILE_FUNCTIONS
from fastroai.workflows.spec.problems import Problems, cut, listed
from fastroai.workflows.spec.references import Known, Sources, field_at

_TEXT_OR_REFERENCE: Final = re.compile(
    r"""(?P<text>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")|\$\.(?:steps\.(?P<step>[A-Za-z_][A-Za-z0-9_-]*))?"""
)
"""Matches text in quotes, in which nothing is a reference, or the beginning of a reference."""
ITERATION_NAMES: Final = ("accumulator", "accumulated_count", "new_count", "dry_streak")
"""Names that `exit_criterion` can look up beside the result, if items are gathered."""


def read_expression(
    text: str,
    way: Way,
    problems: Problems,
    functions: Mapping[str, Callable[..., JsonValue]] | None = None,
) -> Expression | None:
    """Parse an expression. If it is invalid, note its problems and return `None`.

    References in it, `$.input.x` and `$.steps.id.output.y`, become lookups of the same names, so that their
    values are bound and never become a part of the text.
    """
    plain = _without_dollars(text)
    try:
        return Expression(plain, functions=functions)
    except ExpressionError as error:
        for problem in error.problems:
            place = f"column {problem.column}: " if problem.column > 1 else ""
            message = f"{_where(way)} {cut(plain)!r}: {place}{problem.message}"
            offset = _offset(way, problems, plain, problem.line, problem.column)
            problems.add(message, way, offset=offset)
        return None


def _without_dollars(text: str) -> str:
    if "$." not in text:
        return text

    def plain(found: re.Match[str]) -> str:
        if found["text"] is not None:
            return found["text"]
        step = found["step"]
        if step is None:
            return ""
        return f"steps.{step}" if "-" not in step else f"steps[{step!r}]"

    return _TEXT_OR_REFERENCE.sub(plain, text)


def _where(way: Way) -> str:
    return f"{way[-2]}[{way[-1]}]" if isinstance(way[-1], int) else str(way[-1])


def _offset(way: Way, problems: Problems, text: str, line: int, column: int) -> int:
    """Return how many characters after the beginning of a value a place of its expression is.

    Return 0 if the document does not have the expression unchanged and in one line.
    """
    row, start = problems.text.place(way)
    if line != 1 or "\n" in text:
        return 0
    source = "".join(problems.lines[row - 1 : row])[start - 1 :]
    quoted = source[:1] in ("'", '"')
    return quoted + column - 1 if source.startswith(text, quoted) else 0


@dataclass(frozen=True, slots=True)
class Scope:
    """Names that an expression can look up: names with known fields, outputs of steps, and plain values."""

    names: Mapping[str, Known] = field(default_factory=dict)
    values: frozenset[str] = frozenset()
    steps: Sources | None = None
    """Steps whose outputs can be looked up: `steps.id.output.field`."""

    def check(self, expression: Expression, way: Way, problems: Problems) -> None:
        """Note every name and field that an expression looks up and that does not exist."""
        for path, (line, column) in expression.paths.items():
            offset = _offset(way, problems, expression.text, line, column)
            self._check(expression, path, way, problems, offset)

    def _check(self, expression: Expression, path: Way, way: Way, problems: Problems, offset: int) -> None:
        name, rest = str(path[0]), path[1:]
        text = f"{_where(way)} {cut(expression.text)!r}"
        if name in self.names:
            field_at(self.names[name], rest, "field", way, problems, text, offset)
        elif name == "steps" and self.steps is not None:
            if len(rest) < 2 or rest[1] != "output":
                message = f"{text}: expected steps.id.output, with fields after it"
                problems.add(message, way, offset=offset)
            else:
                self.steps.at(str(rest[0]), rest[2:], way, problems, text, offset)
        elif name not in self.values:
            known = (*self.names, *self.values, *(["steps"] if self.steps else []))
            message = f"{text}: there is no {cut(name)!r} here; known: {listed(known)}."
            problems.add(message, way, name=name, allowed=known, offset=offset)


def steps_read(expression: Expression) -> list[str]:
    """Return the steps whose outputs an expression looks up."""
    paths = expression.paths
    return [str(path[1]) for path in paths if path[0] == "steps" and len(path) > 1]


def read_ensure(
    texts: Sequence[str] | None, scope: Scope, way: Way, problems: Problems
) -> tuple[Expression, ...]:
    """Return the expressions of an `ensure`, which may ask for files of the workspace."""
    read = []
    for index, text in enumerate(texts or ()):
        expression = read_expression(text, (*way, index), problems, FILE_FUNCTIONS)
        if expression is not None:
            read.append(expression)
            scope.check(expression, (*way, index), problems)
    return tuple(read)
