"""The declared signature of a typed function: its parameters, its return type, and arguments bound to it."""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any, Final, Literal, cast, get_type_hints

from pydantic import JsonValue, ValidationError

from fastroai.callers import names_around
from fastroai.contracts.annotations import Annotation
from fastroai.contracts.violation import violation_of
from fastroai.errors import ContractViolation, ViolationDetail
from fastroai.functions.declaring.contracts import can_be_contract, unregistered_in
from fastroai.functions.declaring.declared import DeclaredType
from fastroai.functions.declaring.schemas import circles_of, digest
from fastroai.functions.errors import CompileError

_NO_EFFECT: Final = frozenset(
    {"RESUME", "NOP", "CACHE", "COPY_FREE_VARS", "RETURN_GENERATOR", "POP_TOP", "PUSH_NULL", "PRECALL"}
)


class Arguments(dict[str, Any]):
    """The arguments of one call by parameter, as pydantic validated them, and their JSON."""

    __slots__ = ("json",)

    def __init__(self) -> None:
        """Begin without arguments."""
        self.json: dict[str, JsonValue] | None = None
        """The arguments as JSON, kept by `Signature.json_of` because a call needs them several times."""


class Signature:
    """The declared parameters and result of a function, read once.

    Raises:
        CompileError: a parameter or the result has no type, or a type without a JSON Schema; or the function
            returns a class that is not a contract. Every problem is named.
    """

    def __init__(self, function: FunctionType, kind: Literal["function", "flow"] = "function") -> None:
        """Read the signature of a function. Errors about its values call the function by its `kind`."""
        if not isinstance(function, FunctionType):
            raise CompileError(repr(function), ("it is not a function that def or async def declares",))
        self.name: Final[str] = function.__name__
        self._kind: Literal["function", "flow"] = kind
        self._signature = inspect.signature(function)
        problems: list[str] = []
        hints = _hints_of(function, problems)
        self.parameters: Final[Mapping[str, DeclaredType]] = dict(self._parameters(hints, problems))
        """The types of the parameters, in order. `*args` are a tuple, and `**kwargs` a dict."""
        self.required: Final = tuple(
            name for name, one in self._signature.parameters.items() if _is_required(one)
        )
        """Names of the parameters that each call has to give."""
        self.has_opaque: Final = any(one.opacity is not None for one in self.parameters.values())
        """Whether a part of the arguments is opaque."""
        returns = _returned(hints, problems)
        if returns is None or problems:
            raise CompileError(f"function {self.name!r}", tuple(problems))
        self.returns: Final[DeclaredType] = returns
        """The type of a call's result, once it is awaited."""
        self._bind = _binder(self.name, self._signature)

    def __str__(self) -> str:
        return f"{self.name}{self._signature}"

    def bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Arguments:
        """Return the arguments of a call by parameter, with defaults, as pydantic validates them.

        Raises:
            TypeError: an argument is missing, unknown or given twice, as in any call in Python.
            ContractViolation: an argument is not of the type of its parameter.
        """
        arguments = self._bind(*args, **kwargs)
        checked = Arguments()
        wrong: list[ViolationDetail] = []
        for name, declared in self.parameters.items():
            try:
                checked[name] = declared.check(arguments[name])
            except ValidationError as error:
                for detail in declared.details_of(error):
                    detail["loc"] = (name, *detail["loc"])
                    wrong.append(detail)
            except Exception as error:  # a validator of the user's can raise anything
                if declared.opacity is None:
                    raise violation_of(self.name, "input", error, arguments, kind=self._kind) from error
                wrong.append({"type": "validator_error", "loc": (name,), "msg": "it is not valid"})
        if wrong:
            raise ContractViolation(self.name, "input", tuple(wrong), arguments, kind=self._kind)
        return checked

    def with_defaults(self, given: Mapping[str, object] | None) -> dict[str, object]:
        """Return arguments by name, with defaults for missing ones, as they were given.

        Raises:
            TypeError: an argument is missing or unknown.
        """
        bound = inspect.BoundArguments(self._signature, {**(given or {})})
        if unknown := bound.arguments.keys() - self.parameters.keys():
            raise TypeError(f"{self.name}() got an unexpected keyword argument {min(unknown)!r}")
        for name in self.required:
            if name not in bound.arguments:
                raise TypeError(f"{self.name}() missing a required argument: {name!r}")
        bound.apply_defaults()
        return bound.arguments

    def check_output(self, output: object) -> Any:
        """Return the output of a body, as pydantic validates it.

        Raises:
            ContractViolation: the output is not of the declared type. Opaque values are left out.
        """
        try:
            return self.returns.check(output)
        except ValidationError as error:
            details = self.returns.details_of(error)
            raise ContractViolation(self.name, "output", details, output, kind=self._kind) from None
        except Exception as error:  # a validator of the user's can raise anything
            raise violation_of(self.name, "output", error, output, kind=self._kind) from error

    def json_of(self, bound: Mapping[str, object]) -> dict[str, JsonValue]:
        """Return bound arguments as JSON, opaque values included."""
        if isinstance(bound, Arguments) and bound.json is not None:
            return bound.json
        made = {name: self.parameters[name].json_of(value) for name, value in bound.items()}
        if isinstance(bound, Arguments):
            bound.json = made
        return made

    def shown(self, bound: Mapping[str, object]) -> dict[str, JsonValue]:
        """Return bound arguments as JSON for records and messages, without opaque values."""
        made = self.json_of(bound)
        if not self.has_opaque:
            return made
        return {name: self.parameters[name].shown(value) for name, value in made.items()}

    def inputs_hash(self, bound: Mapping[str, object]) -> str:
        """Return a hash of bound arguments with opaque values: 12 hex digits, the same in every process."""
        return digest(self.json_of(bound))

    def _parameters(
        self, hints: Mapping[str, Annotation], problems: list[str]
    ) -> Iterator[tuple[str, DeclaredType]]:
        for name, parameter in self._signature.parameters.items():
            if name not in hints:
                if parameter.annotation is inspect.Parameter.empty:
                    problems.append(
                        "it is a method, and self has no type; declare a function outside of the class"
                        if name == "self"
                        else f"parameter {name!r} has no type; write {name}: str, or what it is"
                    )
                continue
            annotation = hints[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                annotation = types.GenericAlias(tuple, (annotation, ...))
            elif parameter.kind is parameter.VAR_KEYWORD:
                annotation = types.GenericAlias(dict, (str, annotation))
            declared = _declared(annotation, name, problems)
            if declared is not None:
                yield name, declared


def body_problems(function: FunctionType) -> tuple[str, ...]:
    """Return the problem of a function with code in its body, which a model cannot implement."""
    if _is_empty(function):
        return ()
    return ("its body has code, which never runs; write raise NotImplementedError, or use @compute",)


def _is_required(parameter: inspect.Parameter) -> bool:
    is_variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not is_variadic


def _binder(name: str, signature: inspect.Signature) -> Callable[..., dict[str, object]]:
    """Make a function that binds arguments by a signature. Only Python itself does so in all cases."""
    bare = [
        one.replace(annotation=one.empty, default=one.empty if one.default is one.empty else None)
        for one in signature.parameters.values()
    ]
    parameters = str(signature.replace(parameters=bare, return_annotation=signature.empty))
    made: dict[str, Any] = {}
    exec(f"def bind{parameters}: return locals()", made)
    bind: Any = made["bind"]
    given = {one.name: one.default for one in signature.parameters.values() if one.default is not one.empty}
    bind.__kwdefaults__ = {key: given[key] for key in bind.__kwdefaults__ or ()}
    bind.__defaults__ = tuple(given[key] for key in given if key not in bind.__kwdefaults__)
    bind.__name__ = bind.__qualname__ = name
    return cast("Callable[..., dict[str, object]]", bind)


def _hints_of(function: FunctionType, problems: list[str]) -> dict[str, Annotation]:
    names = names_around()
    try:
        return get_type_hints(function, localns=names, include_extras=True)
    except (NameError, TypeError, SyntaxError):
        pass
    # A name cannot be looked up: look up each annotation by itself to find which.
    hints: dict[str, Annotation] = {}
    for name, said in inspect.get_annotations(function).items():
        holder: Any = type("holder", (), {"__annotations__": {name: said}})
        try:
            hints |= get_type_hints(holder, function.__globals__, names, include_extras=True)
        except (NameError, TypeError, SyntaxError) as error:
            what = "the result" if name == "return" else f"parameter {name!r}"
            problems.append(f"the type of {what}, {said!r}, cannot be looked up: {error}")
    return hints


def _returned(hints: Mapping[str, Annotation], problems: list[str]) -> DeclaredType | None:
    if "return" not in hints:
        if not problems:
            problems.append("it does not say what it returns; write -> str, or a class with @contract")
        return None
    annotation = hints["return"]
    for cls in dict.fromkeys(unregistered_in(annotation)):
        advice = "decorate the class with @contract"
        if not can_be_contract(cls):
            advice = "return a pydantic model, a dataclass or a plain class, decorated with @contract"
        problems.append(f"it returns {cls.__name__}, which is no contract; {advice}")
    declared = _declared(annotation, "result", problems)
    if declared is not None:
        problems += circles_of(declared.adapter.core_schema, "result")
    return declared


def _declared(annotation: Annotation, name: str, problems: list[str]) -> DeclaredType | None:
    try:
        return DeclaredType(annotation, name)
    except CompileError as error:
        problems += error.problems
        return None


def _is_empty(function: FunctionType) -> bool:
    """Return whether a body is `...`, a docstring, or `raise NotImplementedError`, by its bytecode."""
    code: CodeType = function.__code__
    does: list[tuple[str, object]] = []
    for one in dis.get_instructions(code):
        if one.opname not in _NO_EFFECT:
            does.append((one.opname, one.argval))
        if one.opname.startswith(("RETURN_VALUE", "RETURN_CONST", "RAISE")):
            break
    if does and does[-1][0] == "RAISE_VARARGS":
        names = {value for operation, value in does if operation == "LOAD_GLOBAL"}
        others = {operation for operation, _ in does} - {"LOAD_GLOBAL", "LOAD_CONST", "CALL", "RAISE_VARARGS"}
        return names == {"NotImplementedError"} and not others
    return does in ([("LOAD_CONST", None), ("RETURN_VALUE", None)], [("RETURN_CONST", None)])
