"""The source of functions: the part of a file's syntax tree from which a function was compiled.

The interpreter keeps the line and column of each instruction (`co_positions`), so lambdas in one line can be
told apart. There is no source without those (`python -X no_debug_ranges`), without a file, or if the file has
changed since it was compiled. Then callers do without.
"""

from __future__ import annotations
import __future__

import ast
import linecache
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Final, TypeAlias

Written: TypeAlias = ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef
"""The node of a function in the syntax tree of its file. Nobody changes it."""

_POSTPONED: Final = __future__.annotations.compiler_flag


def source_of(function: Callable[..., object]) -> Written | None:
    """Return the source of a lambda or a `def`, or `None` if it cannot be found for sure."""
    if not isinstance(function, FunctionType):
        return None
    code = function.__code__
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    functions, compiled = _read(text, code.co_flags & _POSTPONED)
    if code.co_name == "<lambda>" and code not in compiled:
        return None  # the file has changed
    return _innermost(code, functions.get(code.co_firstlineno, ()))


@lru_cache(maxsize=8)
def _read(text: str, flags: int) -> tuple[Mapping[int, Sequence[Written]], frozenset[CodeType]]:
    """Return the functions of a file by the line in which they begin, decorators included; and their code."""
    functions: dict[int, list[Written]] = defaultdict(list)
    try:
        with warnings.catch_warnings(action="ignore"):  # whoever compiled the file has seen them
            tree = ast.parse(text)
            flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # for cells of notebooks
            whole = compile(text, "<source>", "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return functions, frozenset()
    for node in ast.walk(tree):
        if isinstance(node, Written):
            decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
            functions[min(one.lineno for one in (node, *decorators))].append(node)
    return functions, frozenset(_codes(whole))


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _innermost(code: CodeType, candidates: Sequence[Written]) -> Written | None:
    """Return the innermost candidate with the function's name that has all instructions of the function."""
    spans = [
        ((line, column), (end_line, end_column))
        for line, end_line, column, end_column in code.co_positions()
        if line is not None and end_line is not None and column is not None and end_column
    ]
    if not spans:
        return None
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    around = [one for one in candidates if _name(one) == code.co_name and _holds(one, first, last)]
    return max(around, key=lambda one: _span(one)[0], default=None)


def _name(node: Written) -> str:
    return "<lambda>" if isinstance(node, ast.Lambda) else node.name


def _span(node: Written) -> tuple[tuple[int, int], tuple[int, int]]:
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    first, last = body[0], body[-1]
    assert last.end_lineno is not None
    assert last.end_col_offset is not None
    return (first.lineno, first.col_offset), (last.end_lineno, last.end_col_offset)


def _holds(node: Written, first: tuple[int, int], last: tuple[int, int]) -> bool:
    start, end = _span(node)
    return start <= first and last <= end
