"""Parse text to a syntax tree of Python, within limits that protect the parser."""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Final, cast

from fastroai.errors import ExpressionProblem
from fastroai.expressions.limits import MAX_DEPTH, MAX_NODES
from fastroai.expressions.source import Source
from fastroai.forks import ForkGate

_PARSING: Final = threading.Lock()
_GATE: Final = ForkGate()
"""Filters of warnings belong to the process. Two threads must not replace them at the same time, and no fork
may happen in between.
"""
_STRINGS: Final = re.compile(r"""'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*\"""")
_SIGNS: Final = re.compile(rf"(?:[-+~]\s*){{{MAX_DEPTH + 1}}}")
JSON_LITERALS: Final[Mapping[str, bool | None]] = {"true": True, "false": False, "null": None}
"""Values as JSON and YAML write them. No data can have these names."""
_FROM_ELSEWHERE: Final = {"&&": "and", "||": "or", "!": "not"}


class CannotParse(Exception):
    """The text is not an expression of Python, or is too large."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.problem = ExpressionProblem(message, line, column)


def parsed(source: Source) -> ast.expr:
    """Return the syntax tree of a text. The tree is not too large.

    Raises:
        CannotParse: the text is no expression or too large; the error has the reason and the place.
    """
    text = source.text
    _check_text(text)
    try:
        with _GATE, _PARSING, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes such as '\d', which Python keeps
            tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        lines = text.count("\n") + 1
        line = min(max(error.lineno or 1, 1), lines)
        raise CannotParse(_explained(error, text), line, max(error.offset or 1, 1)) from None
    except (MemoryError, RecursionError):
        raise CannotParse(f"it is nested too deeply; at most {MAX_DEPTH} levels are allowed") from None
    except ValueError as error:  # null bytes, and lone surrogates
        raise CannotParse(f"it is not valid text: {error}") from None
    _check_size(source, tree)
    return cast("ast.expr", _Literals().visit(tree))


class _Literals(ast.NodeTransformer):
    """Reads `true`, `false` and `null`, as JSON and YAML write them, as `True`, `False` and `None`."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return the constant that a name stands for, or else the name."""
        if node.id not in JSON_LITERALS or not isinstance(node.ctx, ast.Load):
            return node
        return ast.copy_location(ast.Constant(JSON_LITERALS[node.id]), node)


def _check_text(text: str) -> None:
    if not text:
        raise CannotParse("it is empty")
    # The parser recurses in C: a thread with a small stack overflows within the limits of Python.
    depth = deepest = 0
    for character in _STRINGS.sub("", text):
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH or _SIGNS.search(text):
        raise CannotParse(f"it is nested too deeply; at most {MAX_DEPTH} levels are allowed")


def _explained(error: SyntaxError, text: str) -> str:
    for symbol, word in _FROM_ELSEWHERE.items():
        if symbol in text.replace("!=", ""):
            return f"invalid syntax; for '{symbol}' write '{word}'"
    if "\n" in text:
        return f"{error.msg}; an expression of several lines needs brackets around it"
    return error.msg.replace(" or ':='", "")


def _check_size(source: Source, tree: ast.expr) -> None:
    count = 0
    waiting: list[tuple[ast.AST, int]] = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        count += is_counted(node)
        if depth > MAX_DEPTH and isinstance(node, ast.expr):
            raise CannotParse(
                f"it is nested too deeply here; at most {MAX_DEPTH} levels are allowed", *source.place(node)
            )
        waiting.extend((child, depth + isinstance(child, ast.expr)) for child in ast.iter_child_nodes(node))
    if count > MAX_NODES:
        raise CannotParse(f"it has {count:,} names, values and operators; at most {MAX_NODES} are allowed")


def is_counted(node: ast.AST) -> bool:
    """Return whether a node of the tree counts as work."""
    return isinstance(node, ast.expr | ast.comprehension)


def nodes_in(*trees: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes of some trees that count as work."""
    return (node for tree in trees for node in ast.walk(tree) if is_counted(node))
