"""The source of functions: the part of a file's syntax tree from which a function was compiled.

The interpreter keeps the line and column of each instruction (`co_positions`), so lambdas in one line can be
told apart. There is no source without those (`python -X no_debug_ranges`), without a file, or if the file has
changed since it was compiled. Then callers do without.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import TypeAlias

_Written: TypeAlias = ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a function."""

    node: _Written
    """The node of the function in the syntax tree of the file. Nobody changes it."""
    lines: tuple[bytes, ...]
    """The lines of the file in UTF-8, because the columns of the tree count bytes."""

    imported: frozenset[str]
    """The names that are imported at the top of the file."""

    def of(self, node: ast.expr) -> str | None:
        """Return the text of a part of the function, if it is in one line."""
        if node.lineno != node.end_lineno:
            return None
        return self.lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()

    def compiled(self, node: ast.Lambda, function: FunctionType, *more_names: str) -> CodeType:
        """Return the code of a lambda, compiled as if it stood where `function` was made.

        The free variables of `function`, and `more_names`, are free variables of the lambda.
        """
        names = (*function.__code__.co_freevars, *more_names)
        around = ast.arguments(
            posonlyargs=[], args=[ast.arg(name) for name in names], kwonlyargs=[], kw_defaults=[], defaults=[]
        )
        maker = ast.Expr(ast.Lambda(around, _without_defaults(node)))
        # The compiler calls functions of imported modules in another way than methods.
        imports = [ast.Import([ast.alias(name)]) for name in sorted(self.imported)]
        for made in (maker, maker.value, *around.args, *imports, *(one.names[0] for one in imports)):
            ast.copy_location(made, node)
        module = ast.Module([*imports, maker], type_ignores=[])
        whole = compile(module, function.__code__.co_filename, "exec", dont_inherit=True)
        return next(_codes(next(_codes(whole))))


def source_of(function: Callable[..., object]) -> Source | None:
    """Return the source of a lambda or a `def`, or `None` if it cannot be found for sure."""
    if not isinstance(function, FunctionType):
        return None
    code = function.__code__
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    file = _parsed(text)
    if file is None:
        return None
    found = _innermost(code, file.functions.get(code.co_firstlineno, ()))
    if found is None:
        return None
    source = Source(found, file.lines, file.imported)
    # The file may have changed since it was compiled.
    if isinstance(found, ast.Lambda) and not _is_same(code, source.compiled(found, function)):
        return None
    return source


@dataclass(frozen=True, slots=True)
class _File:
    lines: tuple[bytes, ...]
    functions: Mapping[int, tuple[_Written, ...]]
    """Functions by the line in which they begin, decorators included."""
    imported: frozenset[str]


@lru_cache(maxsize=8)
def _parsed(text: str) -> _File | None:
    if not text:
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    functions: dict[int, tuple[_Written, ...]] = {}
    for node in ast.walk(tree):
        if isinstance(node, _Written):
            first = node.lineno
            if not isinstance(node, ast.Lambda) and node.decorator_list:
                first = node.decorator_list[0].lineno
            functions[first] = (*functions.get(first, ()), node)
    lines = tuple(line.encode() for line in text.split("\n"))
    return _File(lines, functions, frozenset(_imported(tree)))


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = [one.asname or one.name.partition(".")[0] for one in node.names]
        yield from (name for name in names if name != "*")
    elif not isinstance(node, _Written | ast.ClassDef | ast.expr):
        for child in ast.iter_child_nodes(node):
            yield from _imported(child)


def _innermost(code: CodeType, candidates: tuple[_Written, ...]) -> _Written | None:
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


def _name(node: _Written) -> str:
    return "<lambda>" if isinstance(node, ast.Lambda) else node.name


def _span(node: _Written) -> tuple[tuple[int, int], tuple[int, int]]:
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    first, last = body[0], body[-1]
    assert last.end_lineno is not None
    assert last.end_col_offset is not None
    return (first.lineno, first.col_offset), (last.end_lineno, last.end_col_offset)


def _holds(node: _Written, first: tuple[int, int], last: tuple[int, int]) -> bool:
    start, end = _span(node)
    return start <= first and last <= end


def _without_defaults(node: ast.Lambda) -> ast.Lambda:
    """Return the lambda without its default values, which the function has, and which may contain lambdas."""
    given = node.args
    bare = ast.arguments(
        posonlyargs=given.posonlyargs,
        args=given.args,
        vararg=given.vararg,
        kwonlyargs=given.kwonlyargs,
        kw_defaults=[None] * len(given.kwonlyargs),
        kwarg=given.kwarg,
        defaults=[],
    )
    return ast.copy_location(ast.Lambda(bare, node.body), node)


def _codes(code: CodeType) -> Iterator[CodeType]:
    return (constant for constant in code.co_consts if isinstance(constant, CodeType))


def _is_same(code: object, other: object) -> bool:
    """Return whether two code objects do the same, wherever they stand. 1 and True are not the same."""
    if isinstance(code, CodeType) and isinstance(other, CodeType):
        return (
            code.co_code == other.co_code
            and code.co_names == other.co_names
            and code.co_varnames == other.co_varnames
            and code.co_freevars == other.co_freevars
            and code.co_cellvars == other.co_cellvars
            and len(code.co_consts) == len(other.co_consts)
            and all(map(_is_same, code.co_consts, other.co_consts))
        )
    if isinstance(code, frozenset) and isinstance(other, frozenset):
        return sorted(map(repr, code)) == sorted(map(repr, other))
    return type(code) is type(other) and repr(code) == repr(other)
