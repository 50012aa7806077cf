"""The objects that options name: `module:attribute` of the user's code, JSON, stores, ages."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import traceback
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from fastroai.errors import ConfigurationError, nearest_hint

if TYPE_CHECKING:
    from pydantic import JsonValue

    from fastroai.store.record.payloads import PayloadCodec

_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def import_target(option: str, target: str) -> object:
    """Return the object that `module:attribute` names. Modules of the current directory come first.

    Raises:
        ConfigurationError: there is no such object, or the module cannot be imported.
    """
    module_name, colon, path = target.partition(":")
    if not (module_name and colon and path):
        raise ConfigurationError(option, target, "module:attribute, as in app.pipelines:support")
    found: object = import_module(option, target, module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            hint = nearest_hint(name, [known for known in dir(found) if not known.startswith("_")])
            raise ConfigurationError(option, target, f"an attribute of {module_name!r}.{hint}")
        found = getattr(found, name)
    return found


def imported(target: str) -> Sequence[object]:
    """Return the object that `--import module:attribute` names, or all those of a module.

    Raises:
        ConfigurationError: there is no such object, or the module cannot be imported.
    """
    if ":" in target:
        return [import_target("--import", target)]
    return [*vars(import_module("--import", target, target)).values()]


def import_module(option: str, target: str, name: str) -> ModuleType:
    """Return the module that an option names in `target`. Modules of the current directory come first.

    Raises:
        ConfigurationError: the module cannot be imported.
    """
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise ConfigurationError(
            option, target, f"a module that can be imported; {_reason(error)}"
        ) from error


def _reason(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    here = os.getcwd()
    own = [one for one in frames if one.filename.startswith(here) and "site-packages" not in one.filename]
    last = (own or frames)[-1]
    where = (
        "" if last.filename.startswith("<frozen") else f" ({Path(last.filename).name}, line {last.lineno})"
    )
    return f"{type(error).__name__}: {error}{where}"


def codec_at(target: str | None) -> PayloadCodec | None:
    """Return the codec that `--codec` names.

    Raises:
        ConfigurationError: the object is not a codec.
    """
    if target is None:
        return None
    from fastroai.store.record.payloads import PayloadCodec

    found = import_target("--codec", target)
    if isinstance(found, type) or not isinstance(found, PayloadCodec):
        raise ConfigurationError("--codec", target, "an object with encode(bytes) and decode(bytes)")
    return found


def json_value(option: str, text: str) -> JsonValue:
    """Return the value of JSON text, or of the file that is named after `@`.

    Raises:
        ConfigurationError: the text is not JSON, or there is no such file.
    """
    try:
        source = Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text
        value: JsonValue = json.loads(source)
    except (OSError, ValueError) as error:
        raise ConfigurationError(option, text, f"JSON, or @file; {error}") from error
    except RecursionError as error:
        raise ConfigurationError(option, text, "JSON that is nested less deeply") from error
    return value


def json_object(option: str, text: str | None) -> dict[str, JsonValue] | None:
    """Return the value of JSON text, as `json_value` does; it has to be an object."""
    value = None if text is None else json_value(option, text)
    if value is not None and not isinstance(value, dict):
        raise ConfigurationError(option, text, 'a JSON object, as in {"name": "value"}')
    return value


def existing_place(place: str) -> str:
    """Return the store that `--store` names. A missing file is refused, as opening it would make it.

    Raises:
        ConfigurationError: the text does not name a store.
    """
    from fastroai.store.opening import kind_and_place

    kind, where = kind_and_place(place)
    if kind == "sqlite" and not Path(where).is_file():
        raise ConfigurationError("--store", place, "an existing file, or the URL of Redis or PostgreSQL")
    return place


def existing_folder(option: str, path: Path) -> Path:
    """Return a folder, with all links followed.

    Raises:
        ConfigurationError: there is no such folder.
    """
    if not path.is_dir():
        raise ConfigurationError(option, str(path), "an existing folder")
    return path.resolve()


def age(option: str, text: str) -> timedelta:
    """Return an age, such as `30d` or `12h`, as a time.

    Raises:
        ConfigurationError: the text is not an age.
    """
    match = _AGE.fullmatch(text.strip())
    if match is None:
        expected = "a number and one of s, m, h, d, w, as in 30d"
        raise ConfigurationError(option, text, expected)
    try:
        return timedelta(**{_UNITS[match[2]]: float(match[1])})
    except OverflowError as error:
        raise ConfigurationError(option, text, f"at most {timedelta.max.days} days") from error
