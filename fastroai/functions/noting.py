"""Lambdas that note the values of their parts, so that an error can say why a condition does not hold.

The lambda is compiled a second time, with each part of interest inside of a call that notes its value. That
copy runs instead of the lambda: no part is evaluated twice, or in another order, or additionally.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType
from typing import Final

from fastroai.functions.sources import Source

_NOTE: Final = "__fastroai_note__"
_SCOPES: Final = (ast.Lambda, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)
_LITERALS: Final = (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.UnaryOp, ast.unaryop, ast.expr_context)


class NotingLambda:
    """A lambda whose evaluation also gives the values of its parts."""

    def __init__(self, function: FunctionType, source: Source) -> None:
        node = source.node
        assert isinstance(node, ast.Lambda)
        self._source = source
        arguments = node.args
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        self.parameters: Final = tuple(one.arg for one in parameters)
        self.body: Final = node.body
        self._parts = list(_parts(node.body, frozenset(self.parameters)))
        wrapping = _Wrapping(self._parts)
        copy = ast.copy_location(ast.Lambda(_with_note(node), wrapping.visit(node.body)), node)
        code = source.compiled(copy, function)
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        closure = tuple(cells[name] for name in code.co_freevars)
        name, defaults = function.__name__, function.__defaults__
        self._noting = FunctionType(code, function.__globals__, name, defaults, closure)
        self._noting.__kwdefaults__ = function.__kwdefaults__

    def __call__(
        self, arguments: Sequence[object], named: Mapping[str, object]
    ) -> tuple[object, Mapping[int, object]]:
        """Evaluate the lambda. Exceptions of the lambda are raised as they are.

        Return its value; and the values of its parts, by number, in the order of their evaluation.
        """
        notes: dict[int, object] = {}
        return self._noting(*arguments, **named, **{_NOTE: notes.setdefault}), notes

    def failing(self, notes: Mapping[int, object]) -> tuple[ast.expr, dict[ast.expr, object]]:
        """Return the part that makes the body false, and the values of the parts that explain it."""
        values = {self._parts[number]: value for number, value in notes.items()}
        node = self.body
        while isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            node = [one for one in node.values if one in values][-1]
        return node, {one: values[one] for one in _telling(node, values) if one in values}

    def text_of(self, node: ast.expr, names: Mapping[str, str]) -> str:
        """Return a part as it is written, in one line, with other names for its parameters."""
        written = self._source.of(node)
        places = list(_places(node, frozenset(names)))
        if written is None or any(isinstance(one, ast.JoinedStr) for one in ast.walk(node)):
            # Before Python 3.12, the tree does not have the positions of the parts of an f-string.
            return ast.unparse(_Renaming(names, places).visit(node))
        text = written.encode()
        for one in sorted(places, key=lambda place: place.col_offset, reverse=True):
            start, end = one.col_offset - node.col_offset, (one.end_col_offset or 0) - node.col_offset
            text = text[:start] + names[one.id].encode() + text[end:]
        return text.decode()


def _with_note(node: ast.Lambda) -> ast.arguments:
    """Return the parameters of a lambda, and one more: the function that notes a value and returns it."""
    given = node.args
    return ast.arguments(
        posonlyargs=given.posonlyargs,
        args=given.args,
        vararg=given.vararg,
        kwonlyargs=[*given.kwonlyargs, ast.copy_location(ast.arg(_NOTE), node)],
        kw_defaults=[*given.kw_defaults, None],
        kwarg=given.kwarg,
        defaults=given.defaults,
    )


def _parts(node: ast.expr, parameters: frozenset[str]) -> Iterator[ast.expr]:
    """Yield the parts of a condition whose values explain why it does not hold, and each part of `and`, `or`.

    Each part is evaluated at most once.
    """
    match node:
        case ast.BoolOp(values=values):
            for one in values:
                yield one
                yield from _parts(one, parameters)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _parts(operand, parameters)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            for one in (test, body, orelse):
                yield from _parts(one, parameters)
        case ast.Compare(left=left, comparators=others):
            yield from (one for one in (left, *others) if not _is_constant(one))
        case _ if not _is_constant(node):
            yield node
            if isinstance(node, ast.Call):
                yield from _given(node, parameters)


def _given(call: ast.Call, parameters: frozenset[str]) -> Iterator[ast.expr]:
    """Yield the object and the arguments of a call, if a parameter is part of them."""
    owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    for one in (*owner, *call.args, *(keyword.value for keyword in call.keywords)):
        if not isinstance(one, (ast.Starred, *_SCOPES)) and any(_places(one, parameters)):
            yield one


def _telling(node: ast.expr, values: Mapping[ast.expr, object]) -> Iterator[ast.expr]:
    """Yield the parts that explain why a part is false, or true."""
    match node:
        case ast.BoolOp(values=parts):
            for one in parts:
                yield from _telling(one, values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _telling(operand, values)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            for one in (test, body, orelse):
                yield from _telling(one, values)
        case ast.Compare(left=left, comparators=others):
            yield from (left, *others)
        case ast.Call() if isinstance(values.get(node), bool):
            yield node
            yield from (one for one in values if one is not node and one in ast.walk(node))
        case _:
            yield node


def _is_constant(node: ast.expr) -> bool:
    return all(isinstance(one, (ast.Constant, *_LITERALS)) for one in ast.walk(node))


def _places(node: ast.AST, names: frozenset[str]) -> Iterator[ast.Name]:
    """Yield the nodes where a name stands for the parameter, not for an inner variable of the same name."""
    if not names:
        return
    if isinstance(node, ast.Name):
        if node.id in names:
            yield node
    elif isinstance(node, ast.Lambda):
        own = {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            yield from _places(default, names)
        yield from _places(node.body, names - own)
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
        own = {
            one.id for part in node.generators for one in ast.walk(part.target) if isinstance(one, ast.Name)
        }
        first = node.generators[0].iter  # evaluated outside of the comprehension
        yield from _places(first, names)
        for child in _within(node):
            if child is not first:
                yield from _places(child, names - own)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _places(child, names)


def _within(node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Iterator[ast.AST]:
    for generator in node.generators:
        yield from (generator.target, generator.iter, *generator.ifs)
    yield from ([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])


class _Wrapping(ast.NodeTransformer):
    """Copies an expression, with parts of it inside of calls that note their values."""

    def __init__(self, parts: Sequence[ast.expr]) -> None:
        self._numbers = {part: number for number, part in enumerate(parts)}

    def generic_visit(self, node: ast.AST) -> ast.AST:
        copy = super().generic_visit(_copied(node))
        if not isinstance(node, ast.expr) or node not in self._numbers:
            return copy
        assert isinstance(copy, ast.expr)
        call = ast.Call(
            func=ast.Name(_NOTE, ast.Load()), args=[ast.Constant(self._numbers[node]), copy], keywords=[]
        )
        for made in (call, call.func, call.args[0]):
            ast.copy_location(made, node)
        return call


class _Renaming(ast.NodeTransformer):
    """Copies an expression, with other names in some places."""

    def __init__(self, names: Mapping[str, str], places: Sequence[ast.Name]) -> None:
        self._names, self._places = names, set(places)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Name) and node in self._places:
            return ast.copy_location(ast.Name(self._names[node.id], node.ctx), node)
        return super().generic_visit(_copied(node))


def _copied(node: ast.AST) -> ast.AST:
    """Return a copy for a transformer to change, with lists of its own."""
    fields = {
        name: list(value) if isinstance(value, list) else value for name, value in ast.iter_fields(node)
    }
    return ast.copy_location(type(node)(**fields), node)
