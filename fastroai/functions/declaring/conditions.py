"""Conditions of typed functions (`given`, `ensure`, `until`): whether they hold, and if not, why."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any, Final, NoReturn, TypeGuard

from fastroai.contracts import Check
from fastroai.contracts.brief import one_line
from fastroai.contracts.contract import Condition, as_checks, name_of
from fastroai.errors import ConfigurationError, FastroAIError, nearest_hint
from fastroai.functions.declaring.declared import DeclaredType
from fastroai.functions.declaring.sources import source_of
from fastroai.functions.quotes import brief_without_opaque, message_without_opaque

_OfInputs = (
    Callable[[Any], object]
    | Callable[[Any, Any], object]
    | Callable[[Any, Any, Any], object]
    | Callable[[Any, Any, Any, Any], object]
    | Callable[[Any, Any, Any, Any, Any], object]
)
# Not Callable[..., object]: with that, pyright knows no types for the parameters of a lambda.

Conditions = (
    Check | _OfInputs | tuple[str, _OfInputs] | Sequence[Check | _OfInputs | tuple[str, _OfInputs]] | None
)
"""One condition, several of them, or none."""

OutputConditions = Condition[Any] | Sequence[Condition[Any]] | None
"""The same for conditions on an output. Type checkers know that these take one argument."""


_FAULT: Final = "_fastroai_fault_of_condition"


def is_fault(error: BaseException) -> bool:
    """Return whether a condition raised this error, and it says nothing about the value."""
    return _FAULT in error.__dict__


class _OneCondition:
    """A condition that can say why it does not hold."""

    def __init__(
        self,
        option: str,
        check: Check,
        *,
        described: bool,
        types: Mapping[str, DeclaredType],
        renamed: Mapping[str, str],
    ) -> None:
        function: Callable[..., object] = check.function
        self.function: Final = function
        self._is_lambda: Final = isinstance(function, FunctionType) and function.__name__ == "<lambda>"
        self._option = option
        self._opacities = {name: of.opacity for name, of in types.items()}
        self._renamed = renamed
        self.name: Final = self._named(one_line(check.description) if described else "")
        """Its name in errors: its description, its source, or the name of its function."""

    def _named(self, description: str) -> str:
        source = source_of(self.function) if self._is_lambda else None
        if isinstance(source, ast.Lambda):
            text = ast.unparse(_Renaming(self._renamed).visit(copy.deepcopy(source.body)))
            return f"{description}: {text}" if description else text
        if description:
            return description
        name = name_of(_inner(self.function))
        said = "" if self._is_lambda else _first_line(_inner(self.function))
        return f"{name} ({said})" if said else name

    def violation(self, arguments: Sequence[object], named: Mapping[str, object]) -> str | None:
        """Return why the condition does not hold; `None` if it holds.

        A lambda holds if its value is true. Any other function returns True or False, or returns nothing and
        raises AssertionError or ValueError. Other exceptions are raised with a note that names the condition.

        Raises:
            ConfigurationError: the condition returned anything else, or a value that has to be awaited.
        """
        values = {**dict(zip(self._renamed, arguments, strict=False)), **named}
        try:
            value = self.function(*arguments, **named)
        except (AssertionError, ValueError) as error:
            if isinstance(error, FastroAIError):
                self._raise_noted(error)
            said = message_without_opaque(one_line(str(error)), values, self._opacities)
            return f"{self._option}: {self.name}: {said}" if said else f"{self._option}: {self.name}"
        except Exception as error:
            self._raise_noted(error)
        if self._holds(value):
            return None
        shown = self._shown(values) if self._is_lambda else ""
        return f"{self._option}: {self.name} ({shown})" if shown else f"{self._option}: {self.name}"

    def _holds(self, value: object) -> bool:
        if value is True or value is False:
            return value
        if inspect.isawaitable(value) or inspect.isasyncgen(value):
            if isinstance(value, Coroutine):
                value.close()
            self._raise_noted(ConfigurationError(self._option, value, "a condition that is not async"))
        if inspect.isroutine(value) or inspect.isgenerator(value):  # these would be true for any value
            expected = "a condition that is true or false: call it, or write all(...) or any(...) around it"
            self._raise_noted(ConfigurationError(self._option, value, expected))
        if not self._is_lambda:
            if value is None:
                return True
            # Not taken for true: a check that returns the match of a regular expression would never fail.
            expected = f"{self.name} to return True, False or None"
            self._raise_noted(ConfigurationError(self._option, value, expected))
        try:
            return bool(value)
        except Exception as error:  # such as the truth value of an array
            self._raise_noted(error)

    def _raise_noted(self, error: Exception) -> NoReturn:
        error.add_note(f"Raised by {self._option}: {self.name}")
        error.__dict__[_FAULT] = True
        raise error

    def _shown(self, values: Mapping[str, object]) -> str:
        return ", ".join(
            f"{self._renamed.get(name, name)} = {brief_without_opaque(value, self._opacities.get(name))}"
            for name, value in values.items()
        )


class _Renaming(ast.NodeTransformer):
    """Gives variables other names, also those of the same name in comprehensions and inner lambdas."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._names.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self._names.get(node.arg, node.arg)
        return node


class Postcondition:
    """Conditions on the output of a function: `ensure`, or another option."""

    def __init__(
        self,
        given: Conditions,
        returns: DeclaredType | None,
        *,
        option: str = "ensure",
        subject: str = "result",
    ) -> None:
        """Take the conditions on an output of type `returns`; `None` if the type is not known.

        Violations call the output by the name `subject`, in place of the name of the condition's parameter.
        """
        self.problems: Final[list[str]] = []
        """Reasons why a function with these conditions cannot be made, a sentence each."""
        self._conditions: Final[list[_OneCondition]] = []
        for check, described in _checks(option, given, self.problems):
            signature = _signature(check.function)
            if not _takes_one(signature):
                name = name_of(_inner(check.function))
                self.problems.append(f"{option}: {name} must take one argument, the output")
                continue
            parameter = next(iter(signature.parameters), "") if signature is not None else ""
            types = {} if returns is None else {parameter: returns}
            renamed = {parameter: subject}
            self._conditions.append(
                _OneCondition(option, check, described=described, types=types, renamed=renamed)
            )

    @property
    def functions(self) -> list[Callable[..., object]]:
        """The functions of the conditions."""
        return [condition.function for condition in self._conditions]

    def violations(self, output: object) -> list[str]:
        """Return why the conditions do not hold for an output, a text for each that does not.

        Raises:
            Exception: a condition failed in a way that says nothing about the output; a note names it.
        """
        violations: list[str] = []
        for condition in self._conditions:
            if (text := condition.violation((output,), {})) is not None:
                violations.append(text)
        return violations


class Precondition:
    """Conditions on the inputs of a function, by name: `given`."""

    def __init__(self, given: Conditions, parameters: Mapping[str, DeclaredType]) -> None:
        """Take the conditions on the inputs of a function with these parameters."""
        self.problems: Final[list[str]] = []
        """Reasons why a function with these conditions cannot be made, a sentence each."""
        self._conditions: Final[list[tuple[_OneCondition, tuple[str, ...]]]] = []
        for check, described in _checks("given", given, self.problems):
            taken, lacking = _taken(_signature(check.function), parameters)
            types = {name: parameters[name] for name in taken}
            condition = _OneCondition("given", check, described=described, types=types, renamed={})
            self.problems.extend(f"given: {condition.name}: {problem}" for problem in lacking)
            self._conditions.append((condition, taken))

    def violations(self, inputs: Mapping[str, object]) -> list[str]:
        """Return why the conditions do not hold for inputs, a text for each that does not.

        Raises:
            Exception: a condition failed in a way that says nothing about the inputs; a note names it.
        """
        violations: list[str] = []
        for condition, taken in self._conditions:
            if (text := condition.violation((), {name: inputs[name] for name in taken})) is not None:
                violations.append(text)
        return violations


def _checks(option: str, given: Conditions, problems: list[str]) -> Iterator[tuple[Check, bool]]:
    """Yield the checks of an option, and whether the user describes them.

    The problems of others are added to `problems`.
    """
    if given is None:
        listed: Sequence[object] = ()
    elif isinstance(given, Sequence) and not isinstance(given, str) and not _is_described(given):
        listed = given
    else:
        listed = (given,)
    for one in listed:
        described = not callable(one)
        function = one[1] if _is_described(one) else one.function if isinstance(one, Check) else one
        if _is_async(function):
            problems.append(f"{option}: {name_of(_inner(function))} is async, and a condition must not be")
            continue
        try:
            [check] = as_checks(option, one if isinstance(one, str) else [one])
        except ConfigurationError as error:
            problems.append(str(error))
        else:
            yield check, described


def _is_described(one: object) -> TypeGuard[tuple[str, Any]]:
    return isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str)


def _is_async(function: Any) -> bool:
    function = _inner(function)
    is_plain = isinstance(function, FunctionType | MethodType) or not callable(function)
    called = function if is_plain else type(function).__call__
    return any(is_(called) for is_ in (inspect.iscoroutinefunction, inspect.isasyncgenfunction))


def _inner(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _signature(function: Callable[..., object]) -> inspect.Signature | None:
    """Return the signature of a condition; `None` for some functions that are written in C."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _takes_one(signature: inspect.Signature | None) -> bool:
    try:
        return signature is None or bool(signature.bind(None))
    except TypeError:
        return False


def _taken(
    signature: inspect.Signature | None, parameters: Collection[str]
) -> tuple[tuple[str, ...], list[str]]:
    """Return the inputs that a condition takes, and the problems of its parameters."""
    if signature is None:
        return (), ["it does not say the names of its parameters"]
    taken: list[str] = []
    problems: list[str] = []
    known = f"the function has {', '.join(map(repr, parameters)) or 'no parameters'}"
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            taken.extend(one for one in parameters if one not in taken)
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            problems.append(f"{name!r} is positional-only, and inputs are given by name")
        elif name in parameters:
            taken.append(name)
        elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL:
            problems.append(f"{name!r} is no parameter; {known}.{nearest_hint(name, parameters)}")
    return tuple(taken), problems


def _first_line(function: Any) -> str:
    """Return the first line of the docstring of a user's function, or of the method that is called."""
    if not isinstance(function, FunctionType | MethodType | type):
        function = type(function).__call__
    said = function.__doc__ if isinstance(function, FunctionType | MethodType) else None
    return one_line((said or "").strip().partition("\n")[0])
