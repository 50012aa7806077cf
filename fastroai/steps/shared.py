"""Objects that the steps of a run share besides outputs, such as clients; and the logger of a step."""

from __future__ import annotations

import logging
from collections import ChainMap
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from fastroai.errors import ConfigurationError
from fastroai.steps.outputs import is_instance, type_name

T = TypeVar("T")

_logger: Final = logging.getLogger("fastroai.run")

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter


class Shared(ChainMap[str, Any]):
    """The mapping that was given as `execute(context=...)`, by reference. Nested pipelines have it too.

    It lives as long as the caller keeps it, is not stored, and is not locked: steps run side by side.
    """

    @classmethod
    def of(cls, values: MutableMapping[str, Any] | None) -> Shared:
        """Return a `Shared` around a mapping, or the mapping itself if it is one.

        Raises `ConfigurationError` for anything else.
        """
        if values is None:
            return cls()
        if isinstance(values, Shared):
            return values
        if not isinstance(values, MutableMapping):
            raise ConfigurationError("context", values, "a mutable mapping of names to what steps share")
        return cls(values)

    def typed(self, key: str, value_type: type[T]) -> T:
        """Return the value under a key, which must be of this type.

        Raises:
            KeyError: there is no such key.
            TypeError: the value is of another type.
        """
        try:
            value = self[key]
        except KeyError:
            known = ", ".join(map(repr, self)) or "nothing"
            raise KeyError(f"the context has no {key!r}; it has {known}") from None
        if not is_instance(value, value_type):
            raise TypeError(
                f"{key!r} in the context is a {type(value).__name__}, not a {type_name(value_type)}"
            )
        return cast("T", value)


class StepLogger(_Adapter):
    """Adds facts about a step, such as `step_id`, to each record; `extra=` comes on top."""

    def __init__(self, facts: Mapping[str, object]) -> None:
        super().__init__(_logger, facts)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Merge `extra`, which the adapter of the standard library would replace."""
        given: Mapping[str, object] = kwargs.get("extra") or {}
        return msg, {**kwargs, "extra": {**(self.extra or {}), **given}}
