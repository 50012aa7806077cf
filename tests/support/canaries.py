"""Values that notice when anything of theirs is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_UNTOUCHED = {"__new__", "__init__", "__init_subclass__", "__subclasshook__", "__class_getitem__", "__doc__"}
_MORE = (
    "__getattr__", "__call__", "__bool__", "__index__", "__int__", "__float__", "__complex__", "__iter__",
    "__next__", "__len__", "__length_hint__", "__getitem__", "__setitem__", "__delitem__", "__contains__",
    "__missing__", "__reversed__", "__enter__", "__exit__", "__await__",
    "__copy__", "__deepcopy__", "__bytes__",
    "__instancecheck__", "__subclasscheck__", "__prepare__", "__fspath__", "__get__", "__set__",
    "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__",
    "__floordiv__", "__rfloordiv__", "__mod__", "__rmod__", "__neg__", "__pos__", "__abs__", "__round__",
    "__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "__hash__",
    "__str__", "__repr__", "__format__",
)  # fmt: skip

calls: list[str] = []
_armed = False


@contextmanager
def nothing_is_called() -> Iterator[None]:
    """Fails if a method of a canary, or of its type, is called meanwhile."""
    global _armed
    calls.clear()
    _armed = True
    try:
        yield
    finally:
        _armed = False
    assert not calls, calls


def _alarm(base: type, name: str) -> Callable[..., Any]:
    def method(self: object, *arguments: Any, **named: Any) -> Any:
        if _armed:
            calls.append(f"{base.__name__}.{name}")
            raise AssertionError(calls[-1])
        return getattr(base, name)(self, *arguments, **named)

    return method


def _alarms(base: type) -> dict[str, Any]:
    names = {name for name in dir(base) if name.startswith("__")} | set(_MORE)
    namespace: dict[str, Any] = {name: _alarm(base, name) for name in names - _UNTOUCHED}
    namespace["__class__"] = property(_alarm(base, "__class__"))
    return namespace


class _Watched(type):
    """The type of canary types, which notices too."""

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        if _armed:
            calls.append("type.__name__")
            raise AssertionError(calls[-1])
        return "Canary"


for _name in (
    "__eq__",
    "__ne__",
    "__hash__",
    "__instancecheck__",
    "__subclasscheck__",
    "__call__",
    "__repr__",
):
    setattr(_Watched, _name, _alarm(type, _name))
_TYPES = [_Watched("Canary", (base,), _alarms(base)) for base in (object, str, int, float, dict, list, tuple)]


def canaries() -> list[Any]:
    """One of each kind: an object, and subclasses of the types of JSON."""
    return [kind() for kind in _TYPES]


def canary_key(text: str) -> Any:
    """A key of a dict that is found where `text` is looked up, if its own methods have a say."""
    return _TYPES[1](text)
