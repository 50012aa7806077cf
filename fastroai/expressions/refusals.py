"""Messages about the parts of Python that are not allowed in expressions."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Final

from fastroai.errors import nearest_hint
from fastroai.expressions.parsing import JSON_LITERALS

_NAMES: Final[Mapping[str, str]] = {
    "Lambda": "functions cannot be defined here",
    "NamedExpr": "':=' is not allowed: nothing can be assigned",
    "SetComp": "sets are not allowed; write a list: [...]",
    "Set": "sets are not allowed; write a list: [...]",
    "GeneratorExp": "a generator is only the one argument of all, any, max, min, sorted or sum; "
    "write a list: [...]",
    "JoinedStr": "f-strings are not allowed; join text with '+'",
    "TemplateStr": "t-strings are not allowed; join text with '+'",
    "Starred": "'*' before a value is not allowed",
    "Slice": "slices are not allowed; write one index",
    "Await": "'await' is not allowed",
    "Yield": "'yield' is not allowed",
    "YieldFrom": "'yield' is not allowed",
    "Pow": "'**' is not allowed; multiply",
    "MatMult": "'@' is not allowed",
    "LShift": "'<<' is not allowed",
    "RShift": "'>>' is not allowed",
    "BitAnd": "'&' is not allowed; write 'and'",
    "BitOr": "'|' is not allowed; write 'or'",
    "BitXor": "'^' is not allowed",
    "Invert": "'~' is not allowed; write 'not'",
    "Is": "'is' is only allowed before None; write '=='",
    "IsNot": "'is not' is only allowed before None; write '!='",
}


def refusal(node: ast.AST) -> str:
    """Return why this kind of node is not allowed, and what to write instead."""
    kind = type(node).__name__
    return _NAMES.get(kind, f"{kind} is not allowed in an expression")


def name_refusal(name: str) -> str | None:
    """Return why a name cannot be looked up in data; `None` if it can."""
    if name == "none":
        return "'none' is not a name of data; write None or null"
    if name in JSON_LITERALS:
        return f"{name!r} is a value, so it cannot be a name"
    return key_refusal(name)


def key_refusal(name: str) -> str | None:
    """Return why a name cannot be a key after a dot; `None` if it can."""
    if name.startswith("__"):
        return f"{name!r} is not allowed: names that begin with two underscores belong to Python"
    return None


def call_refusal(called: ast.expr, arguments: str, functions: Iterable[str]) -> str:
    """Return why something cannot be called: it is a method, an unknown function, or not a name."""
    known = sorted(functions)
    if isinstance(called, ast.Attribute):
        if called.attr in known:
            return f"there are no methods; write {called.attr}({arguments})"
        return f"there are no methods, so {called.attr!r} cannot be called; functions: {', '.join(known)}"
    if isinstance(called, ast.Name):
        hint = nearest_hint(called.id, known)
        return f"there is no function {called.id!r}; functions: {', '.join(known)}.{hint}"
    return "only functions can be called, by their names"
