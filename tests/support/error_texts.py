"""Every message of every error, as it is written in the code: `make errors` keeps them in tests/errors.

They are read from the code rather than collected while tests run: so none is missing because the tests that
were selected do not raise it. What is put into a message when it is raised stands there as `{}`.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "fastroai"
KEPT: Final = ROOT / "tests" / "errors"
_COLLECTS: Final = (
    "problem",
    "refuse",
    "refusal",
    "mistake",
    "wrong",
    "invalid",
    "error",
    "fail",
    "why",
    "expected",
    "message",
    "reason",
)
"""Parts of the names of functions and variables that make a message for an error."""
_BASES: Final = ("Error", "Exception", "Warning")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def errors_of_the_code() -> dict[str, list[str]]:
    """Return the messages of each package: a line each, the module before."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in sorted(PACKAGE.rglob("*.py")):
        path = file.relative_to(PACKAGE)
        if path.parts[:2] == ("usage", "facts"):
            continue  # reasons for which answers end, as providers name them
        package = path.parts[0] if len(path.parts) > 1 else "fastroai"
        for text in _messages(ast.parse(file.read_text(encoding="utf-8"))):
            found[package].add(f"{path.with_suffix('')}: {text}")
    return {package: sorted(lines) for package, lines in sorted(found.items())}


def _messages(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield from _texts(node.exc)
        elif isinstance(node, ast.Call) and _collects(node.func):
            yield from _texts(*node.args, *(keyword.value for keyword in node.keywords))
        elif isinstance(node, ast.Assign) and any(map(_collects, node.targets)):
            yield from _texts(node.value)
        elif isinstance(node, ast.ClassDef) and _is_exception(node):
            for method in node.body:
                if isinstance(method, _Function):
                    yield from _texts(*_without_docstring(method))
        elif isinstance(node, _Function) and _collects(ast.Name(node.name)):
            yield from _texts(*_without_docstring(node))


def _is_exception(node: ast.ClassDef) -> bool:
    names = [node.name, *(base.id for base in node.bases if isinstance(base, ast.Name))]
    is_one = any(name.endswith(_BASES) for name in names)
    return is_one or (ast.get_docstring(node) or "").find("What to do:") >= 0


def _collects(name: ast.expr) -> bool:
    if isinstance(name, ast.Attribute):
        text = name.attr
    elif isinstance(name, ast.Name):
        text = name.id
    else:
        return False
    return any(part in text.lower() for part in _COLLECTS) or text in (
        "warn",
        "BadParameter",
        "_say",
        "UsageError",
    )


def _without_docstring(function: _Function) -> list[ast.stmt]:
    has_docstring = ast.get_docstring(function) is not None
    return function.body[1:] if has_docstring else function.body


def _texts(*nodes: ast.AST) -> Iterator[str]:
    """The texts of at least three words in a part of the code."""
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # the docstring of an attribute
        text = _text(node) if isinstance(node, ast.expr) else None
        if text is not None:
            shown = " ".join(text.split())
            if shown.count(" ") >= 2 and any(map(str.isalpha, shown)):
                yield shown
            for part in ast.walk(node):
                if isinstance(part, ast.FormattedValue):
                    yield from _texts(part.value)
        else:
            yield from _texts(*ast.iter_child_nodes(node))


def _text(node: ast.expr) -> str | None:
    """The text that an expression makes, with `{}` for what is put in; `None` if it makes none."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(_text(value) or "{}" for value in values)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            texts = _text(left), _text(right)
            return None if texts == (None, None) else "".join(text or "{}" for text in texts)
    return None


def main() -> None:
    """Write the files."""
    KEPT.mkdir(exist_ok=True)
    for file in KEPT.glob("*.txt"):
        file.unlink()
    for package, lines in errors_of_the_code().items():
        (KEPT / f"{package}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
