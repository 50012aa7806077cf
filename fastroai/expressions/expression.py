"""An expression: checked when it is built, bounded when it is evaluated."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar, cast, final

from fastroai.errors import ConfigurationError, ExpressionError, ExpressionProblem
from fastroai.expressions.compiling import Compiler
from fastroai.expressions.evaluation import Evaluation, Missing, Problem
from fastroai.expressions.functions import FUNCTIONS, Function
from fastroai.expressions.json_values import Value, shown
from fastroai.expressions.limits import MAX_CHARACTERS, MAX_DATA_DEPTH
from fastroai.expressions.lookup import plain
from fastroai.expressions.outcome import Outcome
from fastroai.expressions.parsing import CannotParse, parsed
from fastroai.expressions.source import Source

if TYPE_CHECKING:
    from pydantic import JsonValue

_T = TypeVar("_T")


@final
class Expression:
    """A condition, or another value, as text: a strict part of Python's syntax over plain JSON data.

    `Expression(text)` raises `ExpressionError` if the text is invalid. `test` uses the expression as a
    condition, and `evaluate` returns its value. Text from anywhere is safe to evaluate: it reads the data
    that it is given and nothing else, changes nothing, and ends within milliseconds, or with a problem. This
    holds as far as your own `functions` do the same. The guide has the language and its limits.

        from fastroai.expressions import Expression

        condition = Expression("confidence >= 0.8 and category in ['billing', 'technical']")
        outcome = condition.test({"confidence": 0.72, "category": "billing"})
        print(outcome.holds, outcome.explain())

    Equal texts make equal expressions, whatever their `functions`.
    """

    __slots__ = ("_code", "_variables", "names", "paths", "text")

    text: str
    """The text that was given, without blanks around it."""
    names: frozenset[str]
    """The names at which lookups in the data start, without functions and the variables of comprehensions."""
    paths: Mapping[tuple[str | int, ...], tuple[int, int]]
    """These names with the keys and indices after them that the text states, such as `("order", "items", 0)`;
    and the line and column where each is first, both from 1.
    """

    def __init__(self, text: str, *, functions: Mapping[str, Callable[..., JsonValue]] | None = None) -> None:
        """Parse and check a text.

        Args:
            text: The expression.
            functions: More functions that it may call, by name: plain ones, not coroutines. They get copies
                of JSON values and return JSON values. An exception in them is a problem of the evaluation.

        Raises:
            ExpressionError: Everything that is wrong with the text, each with its line and column.
            ConfigurationError: A function cannot be called from an expression.
        """
        if not isinstance(text, str):
            raise ExpressionError(shown(text), (ExpressionProblem("an expression is text"),))
        if len(text) > MAX_CHARACTERS:  # before any other work on the text
            message = f"it has {len(text):,} characters; at most {MAX_CHARACTERS:,} are allowed"
            raise ExpressionError(shown(text), (ExpressionProblem(message),))
        self.text = text.replace("\r\n", "\n").replace("\r", "\n").strip()
        source = Source(self.text)
        try:
            tree = parsed(source)
        except CannotParse as error:
            raise ExpressionError(self.text, (error.problem,)) from None
        compiler = Compiler(source, _with_functions(functions or {}))
        self._code = compiler.code(tree)
        if compiler.problems:
            found = sorted(compiler.problems, key=lambda problem: (problem.line, problem.column))
            raise ExpressionError(self.text, tuple(found))
        self.names = frozenset(compiler.names)
        self.paths = MappingProxyType(compiler.paths)
        self._variables = compiler.variables

    def test(self, data: Mapping[str, object]) -> Outcome:
        """Return an `Outcome`: whether the expression holds as a condition, and why.

        A value of any type counts as true or false as in Python. Missing keys and problems do not raise: then
        the condition does not hold, and `missing` or `problem` of the outcome says so.

        Args:
            data: JSON data by name. A mapping that is not a dict is copied into one; the values in it have to
                be of the types of JSON themselves.
        """
        evaluation = self._evaluation(data)
        missing = problem = None
        holds = False
        try:
            holds = self._ended(evaluation, bool)
        except Missing as stop:
            missing = stop.path
        except Problem as stop:
            problem = str(stop)
        read = {position: shown(value) for position, value in evaluation.read.items()}
        return Outcome(self.text, holds, missing, problem, read)

    def evaluate(self, data: Mapping[str, object]) -> JsonValue:
        """Return the value of the expression, as JSON data that shares nothing with the given data.

        Raises:
            ExpressionError: It cannot be evaluated with this data. `missing` names a missing key.
        """
        evaluation = self._evaluation(data)
        try:
            return self._ended(evaluation, lambda value: _copied(evaluation, value, "the result"))
        except Missing as stop:
            raise ExpressionError(self.text, (), stop.path) from None
        except Problem as stop:
            raise ExpressionError(self.text, (ExpressionProblem(str(stop)),)) from stop.__cause__

    def _evaluation(self, data: Mapping[str, object]) -> Evaluation:
        return Evaluation(data if type(data) is dict else dict(data), self._variables)

    def _ended(self, evaluation: Evaluation, end: Callable[[Value], _T]) -> _T:
        try:
            return end(self._code(evaluation))
        except RuntimeError as error:  # the stack was nearly full, or another thread changed the data
            raise Problem(f"it was interrupted: {error}") from error

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Expression) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)


def _with_functions(functions: Mapping[str, Callable[..., JsonValue]]) -> Mapping[str, Function]:
    for name, function in functions.items():
        option = f"functions[{name!r}]"
        if not name.isidentifier() or name.startswith("__"):
            raise ConfigurationError(option, function, "a name that can be called")
        if name in FUNCTIONS or name == "has":
            raise ConfigurationError(option, function, "another name: every expression has this function")
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise ConfigurationError(option, function, "a plain function")
    return {**FUNCTIONS, **{name: _as_function(name, function) for name, function in functions.items()}}


def _as_function(name: str, function: Callable[..., JsonValue]) -> Function:
    """Wrap a function: it gets copies, may return only JSON, and its exceptions become problems."""

    def call(evaluation: Evaluation, *arguments: Value) -> Value:
        given = [_copied(evaluation, argument, f"an argument of {name}()") for argument in arguments]
        try:
            result = function(*given)
        except Exception as error:
            told = traceback.format_exception_only(error)[-1].strip()
            raise Problem(f"{name}() raised {told}") from error
        return _copied(evaluation, result, f"what {name}() returned")

    return Function(call, *_arity(function))


def _arity(function: Callable[..., JsonValue]) -> tuple[int, int | None]:
    """Return how many arguments a function takes by position: at least, and at most."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some functions written in C have no signature
        return 0, None
    by_position = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    least = sum(1 for one in by_position if one.default is one.empty)
    return least, None if any(one.kind is one.VAR_POSITIONAL for one in parameters) else len(by_position)


def _copied(evaluation: Evaluation, value: object, what: str, depth: int = 0) -> JsonValue:
    """Return a copy of a value as plain JSON data, with lists for tuples. Each item in it costs a step.

    `what` names the value in problems.
    """
    if depth > MAX_DATA_DEPTH:
        raise Problem(f"{what} is nested more than {MAX_DATA_DEPTH} deep")
    if type(value) is dict:
        evaluation.check_keys(value)
        evaluation.take_items(len(value))
        return {key: _copied(evaluation, item, what, depth + 1) for key, item in value.items()}
    if type(value) is list or type(value) is tuple:
        evaluation.take_items(len(value))
        return [_copied(evaluation, item, what, depth + 1) for item in value]
    return cast("JsonValue", plain(value, what))
