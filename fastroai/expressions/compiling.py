"""Compile a syntax tree to a function of an evaluation, or find everything that is wrong with it.

The language has only the nodes that `Compiler.code` names. No code of Python is generated: the result is made
of closures, each of which calls those of its parts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias, cast

from fastroai.errors import ExpressionProblem
from fastroai.expressions import arithmetic, comparing, lookup
from fastroai.expressions.arithmetic import Operation
from fastroai.expressions.comparing import Comparison
from fastroai.expressions.evaluation import Evaluation, Missing, NoContainer, Problem
from fastroai.expressions.functions import Function
from fastroai.expressions.json_values import Value, is_plain, type_name
from fastroai.expressions.limits import STEPS_PER_NODE, STEPS_PER_ROUND
from fastroai.expressions.loops import Code, Loop, Rounds, looped
from fastroai.expressions.parsing import nodes_in
from fastroai.expressions.refusals import call_refusal, key_refusal, name_refusal, refusal
from fastroai.expressions.source import Source

_OPERATIONS: Final[Mapping[type[ast.operator], Operation]] = {
    ast.Add: arithmetic.added,
    ast.Sub: arithmetic.subtracted,
    ast.Mult: arithmetic.multiplied,
    ast.Div: arithmetic.divided,
    ast.FloorDiv: arithmetic.floor_divided,
    ast.Mod: arithmetic.remainder,
}
_COMPARISONS: Final[Mapping[type[ast.cmpop], Comparison]] = {
    ast.Eq: comparing.equal,
    ast.NotEq: comparing.unequal,
    ast.Lt: comparing.less,
    ast.LtE: comparing.less_or_equal,
    ast.Gt: comparing.greater,
    ast.GtE: comparing.greater_or_equal,
    ast.In: comparing.contained,
    ast.NotIn: comparing.not_contained,
}
_COMPARISONS_WITH_NONE: Final[Mapping[type[ast.cmpop], Comparison]] = {
    ast.Is: comparing.equal,
    ast.IsNot: comparing.unequal,
}
Path: TypeAlias = tuple[str | int, ...]
"""A name in the data, and the keys and indices after it that the text states."""
_Comprehension: TypeAlias = ast.ListComp | ast.GeneratorExp | ast.DictComp
_NOT_BOUND: Final = -1


def _refused(evaluation: Evaluation) -> Value:
    raise AssertionError("an expression with problems was evaluated")


class Compiler:
    """Compiles one expression. If `problems` is not empty, the code must not be used."""

    def __init__(self, source: Source, functions: Mapping[str, Function]) -> None:
        self.problems: list[ExpressionProblem] = []
        self.names: set[str] = set()
        """Names that the expression looks up in its data."""
        self.paths: dict[Path, tuple[int, int]] = {}
        """Paths that the expression looks up, each with the line and column where it is first in the text."""
        self.variables = 0
        """Number of places that the variables of its comprehensions need."""
        self._source = source
        self._functions = functions
        self._scope: dict[str, int] = {}
        """The variables of the comprehensions around a node, and their places."""

    def code(self, node: ast.expr) -> Code:
        """Return the code that gives the value of a node."""
        match node:
            case ast.Name() | ast.Attribute() | ast.Subscript():
                return self._noted(node, self._lookup(node))
            case ast.Constant():
                return self._constant(node)
            case ast.Compare():
                return self._comparison(node)
            case ast.BoolOp():
                return self._boolean(node)
            case ast.UnaryOp():
                return self._unary(node)
            case ast.BinOp():
                return self._operation(node)
            case ast.Call():
                return self._call(node)
            case ast.IfExp():
                return self._conditional(node)
            case ast.List() | ast.Tuple():
                return self._list(node)
            case ast.Dict():
                return self._dict(node)
            case ast.ListComp():
                return self._list_comprehension(node)
            case ast.DictComp():
                return self._dict_comprehension(node)
            case _:
                return self._refuse(node, refusal(node))

    def _refuse(self, node: ast.expr, message: str) -> Code:
        self.problems.append(ExpressionProblem(message, *self._source.place(node)))
        return _refused

    # --- values and lookups ---

    def _constant(self, node: ast.Constant) -> Code:
        value = node.value
        if not is_plain(value):
            what = "an integer of this size" if type(value) is int else f"a value of type {type_name(value)}"
            return self._refuse(node, f"{what} is not allowed")
        return lambda evaluation: value

    def _lookup(self, node: ast.expr) -> Code:
        """Return the code of a name, key or index, which does not note the value."""
        match node:
            case ast.Name():
                return self._name(node)
            case ast.Attribute():
                base, path, key = self._lookup(node.value), self._source.of(node), node.attr
                refused = key_refusal(key)
                if refused:
                    return self._refuse(node, refused)
                return lambda evaluation: lookup.by_key(evaluation, base(evaluation), key, path)
            case ast.Subscript():
                return self._subscript(node)
            case _:
                return self.code(node)

    def _name(self, node: ast.Name) -> Code:
        name = node.id
        place = self._scope.get(name)
        if place == _NOT_BOUND:
            return self._refuse(node, f"{name!r} is read before its 'for'")
        if place is not None:
            return lambda evaluation: evaluation.variables[place]
        refused = name_refusal(name)
        if refused:
            return self._refuse(node, refused)
        self.names.add(name)
        return lambda evaluation: lookup.by_key(evaluation, evaluation.data, name, name)

    def _subscript(self, node: ast.Subscript) -> Code:
        container, base = self._lookup(node.value), self._source.of(node.value)
        if isinstance(node.slice, ast.Constant) and type(node.slice.value) is str:
            key, path = node.slice.value, self._source.of(node)
            return lambda evaluation: lookup.by_key(evaluation, container(evaluation), key, path)
        subscript = self.code(node.slice)
        return lambda evaluation: lookup.by_subscript(
            evaluation, container(evaluation), subscript(evaluation), base
        )

    def _noted(self, node: ast.expr, look_up: Code) -> Code:
        """Return the code of a lookup. A lookup in the data also notes its value for people to read."""
        path = self._path(node)
        if path is None:
            return look_up
        self.paths.setdefault(path, self._source.place(node))
        end = self._source.end(node)

        def noted(evaluation: Evaluation) -> Value:
            value = evaluation.read[end] = look_up(evaluation)
            return value

        return noted

    def _path(self, node: ast.expr) -> Path | None:
        """Return the path of a lookup in the data; `None` if the lookup starts at something else."""
        parts: list[str | int] = []
        while isinstance(node, ast.Attribute | ast.Subscript):
            if isinstance(node, ast.Attribute):
                parts.append(node.attr)
            elif isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str | int):
                parts.append(node.slice.value)
            else:
                parts.clear()  # the key or index is known only from the data
            node = node.value
        if isinstance(node, ast.Name) and node.id not in self._scope:
            return (node.id, *reversed(parts))
        return None

    def _list(self, node: ast.List | ast.Tuple) -> Code:
        parts = [self.code(part) for part in node.elts]
        if all(isinstance(part, ast.Constant) for part in node.elts):
            constant = [part.value for part in node.elts if isinstance(part, ast.Constant)]
            return lambda evaluation: constant  # nothing changes a list, and results are copies
        return lambda evaluation: [part(evaluation) for part in parts]

    def _dict(self, node: ast.Dict) -> Code:
        items = []
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                self._refuse(value, "'**' is not allowed in a dict")
            else:
                items.append((self.code(key), self.code(value)))
        return lambda evaluation: dict([_item(key(evaluation), value(evaluation)) for key, value in items])

    # --- operators ---

    def _comparison(self, node: ast.Compare) -> Code:
        first, rest = self.code(node.left), [self.code(part) for part in node.comparators]
        comparisons = []
        for operator, part in zip(node.ops, node.comparators, strict=True):
            comparison = _COMPARISONS.get(type(operator))
            if isinstance(part, ast.Constant) and part.value is None:
                comparison = _COMPARISONS_WITH_NONE.get(type(operator), comparison)
            if comparison is None:
                return self._refuse(node, refusal(operator))
            comparisons.append(comparison)
        links = list(zip(comparisons, rest, strict=True))
        if len(links) == 1:
            compare, second = links[0]
            return lambda evaluation: compare(evaluation, first(evaluation), second(evaluation))

        def chain(evaluation: Evaluation) -> Value:
            left = first(evaluation)
            for compare, part in links:
                right = part(evaluation)
                if not compare(evaluation, left, right):
                    return False
                left = right
            return True

        return chain

    def _boolean(self, node: ast.BoolOp) -> Code:
        *parts, last = [self.code(part) for part in node.values]
        ends_with = isinstance(node.op, ast.Or)

        def boolean(evaluation: Evaluation) -> Value:
            for part in parts:
                value = part(evaluation)
                if bool(value) is ends_with:
                    return value
            return last(evaluation)

        return boolean

    def _unary(self, node: ast.UnaryOp) -> Code:
        operand = self.code(node.operand)
        match node.op:
            case ast.Not():
                return lambda evaluation: not operand(evaluation)
            case ast.USub():
                return lambda evaluation: -arithmetic.number(operand(evaluation), "'-'")
            case ast.UAdd():
                return lambda evaluation: +arithmetic.number(operand(evaluation), "'+'")
            case _:
                return self._refuse(node, refusal(node.op))

    def _operation(self, node: ast.BinOp) -> Code:
        left, right = self.code(node.left), self.code(node.right)
        operate = _OPERATIONS.get(type(node.op))
        if operate is None:
            return self._refuse(node, refusal(node.op))
        return lambda evaluation: operate(evaluation, left(evaluation), right(evaluation))

    def _conditional(self, node: ast.IfExp) -> Code:
        test, then, otherwise = self.code(node.test), self.code(node.body), self.code(node.orelse)
        return lambda evaluation: then(evaluation) if test(evaluation) else otherwise(evaluation)

    # --- calls ---

    def _call(self, node: ast.Call) -> Code:
        if node.keywords:
            self._refuse(node.keywords[0].value, "arguments are not given by name")
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if name == "has":
            return self._has(node)
        function = self._functions.get(name or "")
        if function is None or name is None:
            given = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            told = ", ".join(self._source.of(one) for one in (*given, *node.args))
            self._arguments(node, False)
            return self._refuse(node.func, call_refusal(node.func, told, {*self._functions, "has"}))
        if len(node.args) < function.least or (function.most is not None and len(node.args) > function.most):
            self._refuse(node, f"{name}() takes {_count(function)}, not {len(node.args)}")
        if name in ("any", "all") and node.args and isinstance(node.args[0], ast.GeneratorExp):
            return self._decided_early(name, node.args[0])
        arguments, call = self._arguments(node, function.takes_generator), function.call
        if len(arguments) == 1:
            only = arguments[0]
            return lambda evaluation: call(evaluation, only(evaluation))
        return lambda evaluation: call(evaluation, *[argument(evaluation) for argument in arguments])

    def _arguments(self, node: ast.Call, takes_generator: bool) -> list[Code]:
        if takes_generator and len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            return [self._list_comprehension(node.args[0])]
        return [self.code(argument) for argument in node.args]

    def _decided_early(self, name: str, node: ast.GeneratorExp) -> Code:
        """Return the code of `any` or `all`, which stops at the first value that decides."""
        rounds = self._rounds(node, node.elt)
        ends_with = name == "any"

        def decided(evaluation: Evaluation) -> Value:
            for value in rounds(evaluation):
                if bool(value) is ends_with:
                    return ends_with
            return not ends_with

        return decided

    def _has(self, node: ast.Call) -> Code:
        path = node.args[0] if len(node.args) == 1 else None
        root: ast.expr | None = path
        while isinstance(root, ast.Attribute | ast.Subscript):
            root = root.value
        if path is None or not isinstance(root, ast.Name):
            return self._refuse(node, "has() takes one name, key or index, such as has(order.total)")
        look_up, asked = self._lookup(path), self._path(path)
        if asked is not None:
            self.paths.setdefault(asked, self._source.place(path))

        def has(evaluation: Evaluation) -> Value:
            try:
                look_up(evaluation)
            except (Missing, NoContainer):
                return False
            return True

        return has

    # --- comprehensions ---

    def _list_comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> Code:
        rounds = self._rounds(node, node.elt)
        return lambda evaluation: list(rounds(evaluation))

    def _dict_comprehension(self, node: ast.DictComp) -> Code:
        rounds = self._rounds(node, node.key, node.value)
        return lambda evaluation: dict(cast("Iterator[tuple[str, Value]]", rounds(evaluation)))

    def _rounds(self, node: _Comprehension, *results: ast.expr) -> Rounds:
        """Return the code that gives the value, or the key and the value, of each round."""
        first, outer = self.code(node.generators[0].iter), self._scope
        targets = [self._targets(generator) for generator in node.generators]
        self._scope = outer | {name: _NOT_BOUND for names in targets for name in names}
        loops = []
        for position, (generator, names) in enumerate(zip(node.generators, targets, strict=True)):
            source = self.code(generator.iter) if position else first
            places = [self._bound(name) for name in names]
            loops.append(
                Loop(
                    source=source,
                    places=places,
                    unpacks=isinstance(generator.target, ast.Tuple | ast.List),
                    conditions=[self.code(condition) for condition in generator.ifs],
                    steps=_steps(generator.ifs, node.generators[position + 1 :], results),
                    text=self._source.of(generator.iter),
                )
            )
        result, *value = [self.code(part) for part in results]
        self._scope = outer
        return looped(loops, _pair(result, value[0]) if value else result)

    def _targets(self, generator: ast.comprehension) -> list[str]:
        """Return the names that a `for` binds."""
        target = generator.target
        if generator.is_async:
            self._refuse(target, "'async for' is not allowed")
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        names = [part.id for part in parts if isinstance(part, ast.Name)]
        if len(names) < len(parts):
            self._refuse(target, "'for' takes one name, or names with commas between them")
        for name in names:
            refused = name_refusal(name)
            if refused:
                self._refuse(target, refused)
        return names

    def _bound(self, name: str) -> int:
        self._scope[name] = place = self.variables
        self.variables += 1
        return place


def _item(key: object, value: Value) -> tuple[str, Value]:
    if type(key) is not str:
        raise Problem(f"a key of a dict is of type str, not {type_name(key)}")
    return key, value


def _pair(key: Code, value: Code) -> Code:
    return lambda evaluation: _item(key(evaluation), value(evaluation))


def _steps(*parts: Sequence[ast.AST]) -> int:
    """Return the steps that a round with these parts costs."""
    return STEPS_PER_ROUND + STEPS_PER_NODE * sum(1 for part in parts for _ in nodes_in(*part))


def _count(function: Function) -> str:
    if function.most is None:
        return f"at least {_arguments(function.least)}"
    if function.least == function.most:
        return _arguments(function.least)
    return f"{function.least} to {_arguments(function.most)}"


def _arguments(count: int) -> str:
    return f"{count} argument{'' if count == 1 else 's'}"
