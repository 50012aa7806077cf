"""The values in conditions as errors may show them: without content of opaque parts."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, to_jsonable_python

from fastroai.contracts.brief import brief
from fastroai.functions.opacity import ELIDED, WHOLE, Opacity, without_opaque
from fastroai.functions.quotes import Quotes


class Eliding:
    """Shows the values of expressions over variables, some of which have opaque parts."""

    def __init__(self, opacities: Mapping[str, Opacity | None], body: ast.expr | None = None) -> None:
        """Take the opaque parts of each variable, and the expression whose parts are shown."""
        self._opacities = dict(opacities)
        self._is_needed = any(opacities.values())
        bound = [one.target for one in ast.walk(body) if isinstance(one, ast.NamedExpr)] if body else []
        self._opacities |= {one.id: WHOLE for one in bound}  # their values may have come from anywhere

    def shown(self, node: ast.expr, value: object) -> str:
        """Return the value of the expression `node` as it may be shown."""
        if not self._is_needed:
            return brief(value)
        is_path, opacity = self._at(node)
        if is_path:
            return _shown(value, opacity)
        says_little = isinstance(value, bool) or _is_length(node)
        return brief(value) if says_little or not self._hides(node) else ELIDED

    def variable(self, name: str, value: object) -> str:
        """Return the value of a variable as it may be shown."""
        return _shown(value, self._opacities.get(name))

    def message(self, text: str, values: Mapping[str, object]) -> str:
        """Return a text that code of the user made, without quotes of opaque parts of variables."""
        if not self._is_needed:
            return text
        hidden: list[JsonValue] = []

        def collect(path: str, part: JsonValue) -> JsonValue:
            hidden.append(part)
            return None

        for name, value in values.items():
            try:
                without_opaque(_json_of(value), self._opacities.get(name), "", collect)
            except (PydanticSerializationError, ValueError, RecursionError):
                return ELIDED
        [text] = Quotes(hidden).left_out([text])
        return text

    def _at(self, node: ast.expr) -> tuple[bool, Opacity | None]:
        """Return whether an expression is a path from a variable, and which parts are opaque there."""
        match node:
            case ast.Name(id=name):
                return name in self._opacities, self._opacities.get(name)
            case ast.Attribute(value=value, attr=step):
                is_path, opacity = self._at(value)
                if opacity is None or step in opacity.parts:
                    return is_path, None if opacity is None else opacity.at(step)
                return is_path, WHOLE  # a method, or a property
            case ast.Subscript(value=value, slice=index):
                is_path, opacity = self._at(value)
                if opacity is None:
                    return is_path, None
                key = index.value if isinstance(index, ast.Constant) else None
                if isinstance(key, str | int) and key in opacity.parts:
                    return is_path, opacity.at(key)
                return is_path, WHOLE if opacity.parts or isinstance(index, ast.Slice) else opacity.at(0)
        return False, None

    def _hides(self, node: ast.AST) -> bool:
        """Return whether the value of an expression may be made from opaque parts."""
        if isinstance(node, ast.expr):
            is_path, opacity = self._at(node)
            if is_path:
                return opacity is not None
        return any(self._hides(child) for child in ast.iter_child_nodes(node))


def _shown(value: object, opacity: Opacity | None) -> str:
    if opacity is None:
        return brief(value)
    if opacity.is_whole:
        return ELIDED
    try:
        return brief(without_opaque(_json_of(value), opacity, "", lambda path, part: ELIDED))
    except (PydanticSerializationError, ValueError, RecursionError):
        return ELIDED


def _json_of(value: object) -> JsonValue:
    made: JsonValue = to_jsonable_python(value, by_alias=False, bytes_mode="base64")
    return made


def _is_length(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"
