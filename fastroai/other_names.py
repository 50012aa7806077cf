"""What people write who know other libraries: the error for it says what to write here."""

from __future__ import annotations

import functools
import inspect
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import FrozenInstanceError
from typing import Final, NoReturn, TypeVar, cast

from fastroai.errors import nearest_hint

_MadeT = TypeVar("_MadeT", bound=Callable[..., object])
SettingsT = TypeVar("SettingsT")

_NONE: Mapping[str, str] = {}
_TOLD: Final = 5
"""The most settings that an error names."""

OTHER_OPTIONS: Final[Mapping[str, str]] = {
    "checkpointer": "config=PipelineConfig(store=…), or run(store=…)",
    **{
        name: f"config=PipelineConfig({name}=…)"
        for name in ("store", "timeout", "total_timeout", "retries", "retry", "on_error")
    },
}
"""What pipelines and graphs have in their config, and no argument for."""

OTHER_CALLS: Final[Mapping[str, str]] = {
    "invoke": "run_sync(inputs)",
    "ainvoke": "run(inputs)",
    "astream": "stream(inputs)",
    "update_state": "fork(run_id, at=…, inputs=…, outputs=…)",
    "get_state_history": "the trace: store.trace(run_id)",
}
"""What LangGraph calls the methods of a graph that runs."""


def other_names(
    *, arguments: Mapping[str, str] = _NONE, attributes: Mapping[str, str] = _NONE
) -> Callable[[_MadeT], _MadeT]:
    """Return a decorator that adds what to write instead to the errors for unknown names.

    For those of other libraries, that is what is given here; for others, the argument whose name is nearest.
    Type checkers see the class or function unchanged, so they go on reporting these names.

    Args:
        arguments: For names of arguments that the class or function does not take, what to write here.
        attributes: For names that objects of the class do not have, what to write here.
    """

    def decorate(made: _MadeT) -> _MadeT:
        kind: object = made
        if not isinstance(kind, type):
            return cast("_MadeT", _refusing(made, made.__name__, arguments))
        if arguments or not attributes:
            setattr(kind, "__init__", _refusing(vars(kind)["__init__"], kind.__name__, arguments))  # noqa: B010
        if attributes:
            setattr(kind, "__getattr__", _missing(kind.__name__, attributes))  # noqa: B010
        return made

    return decorate


def _missing(name: str, attributes: Mapping[str, str]) -> Callable[[object, str], NoReturn]:
    """Return the `__getattr__` of a class, which raises `AttributeError`."""

    def get(self: object, attribute: str) -> NoReturn:
        here = attributes.get(attribute)
        told = "" if here is None else f"; here, it is {here}"
        message = f"{name!r} object has no attribute {attribute!r}{told}"
        raise AttributeError(message, name=attribute, obj=self)

    return get


def _refusing(
    function: Callable[..., object], name: str, arguments: Mapping[str, str]
) -> Callable[..., object]:
    """Return a function that raises `TypeError` for unknown arguments, and else calls another one."""
    code = inspect.unwrap(function).__code__
    taken = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    assert arguments.keys().isdisjoint(taken), f"{name} takes {arguments.keys() & taken}"
    assert not code.co_flags & inspect.CO_VARKEYWORDS, f"{name} takes any argument"

    @functools.wraps(function)
    def checked(*args: object, **kwargs: object) -> object:
        if not taken.issuperset(kwargs):
            unknown = next(one for one in kwargs if one not in taken)
            near = nearest_hint(unknown, taken - {"self"})
            hint = f"; here, it is {arguments[unknown]}" if unknown in arguments else near and f".{near}"
            raise TypeError(f"{name}() got an unexpected keyword argument {unknown!r}{hint}")
        return function(*args, **kwargs)

    return checked


def by_name(*meant: str) -> Callable[[type[SettingsT]], type[SettingsT]]:
    """Have a frozen dataclass say what to write where its settings are positional, or are assigned to.

    `meant` are the settings that positional values probably are, in their order. Without them, the error
    names the first ones that there are.
    """

    def decorate(cls: type[SettingsT]) -> type[SettingsT]:
        init, example = vars(cls)["__init__"], re.findall("[A-Z][a-z]+", cls.__name__)[-1].lower()

        def new(kind: type[SettingsT], *values: object, **_: object) -> SettingsT:
            if values and getattr(kind, "__init__") is init:  # noqa: B009 - a subclass may take others
                raise TypeError(
                    f"{kind.__name__} takes its settings by name: {kind.__name__}({named(kind, values)})"
                )
            return object.__new__(kind)

        def assign(self: SettingsT, name: str, value: object) -> None:
            raise FrozenInstanceError(
                f"{type(self).__name__}.{name} cannot be changed, for others may share the object; "
                f"make another one: dataclasses.replace({example}, {name}={value!r})"
            )

        # Not in the body of the class: type checkers would read the signature of `__new__`, which takes all.
        signature = inspect.signature(cls)  # of its `__init__`, as `help` shows it
        for name, value in (("__new__", new), ("__setattr__", assign), ("__signature__", signature)):
            setattr(cls, name, value)
        return cls

    def named(kind: type[object], values: Sequence[object]) -> str:
        if meant:
            return ", ".join(f"{name}={value!r}" for name, value in zip(meant, values, strict=False))
        first = itertools.islice(inspect.signature(kind).parameters, _TOLD)
        return ", ".join([*(f"{name}=…" for name in first), "…"])

    return decorate
