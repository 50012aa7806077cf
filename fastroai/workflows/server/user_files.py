"""Files of this user: the store of flows, and the key that server processes on one store share."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Final

from fastroai.errors import ConfigurationError, MissingExtraError
from fastroai.store.opening import kind_and_place

KEY_VARIABLE: Final = "FASTROAI_MCP_KEY"
"""The environment variable that can hold the key, instead of a file."""

_SHORTEST_KEY: Final = 32
"""Minimum number of characters in a key; the MCP SDK takes no shorter one."""
_FOLDER: Final = 0o700
_FILE: Final = 0o600


def user_store() -> str:
    """Return the path of this user's own store of flows. The file is made if it does not exist.

    It is in the user's data folder, and no other user can read it.

    Raises:
        ConfigurationError: the file cannot be made.
        MissingExtraError: platformdirs is not installed.
    """
    return private_file(_home() / "workflows.db")


def private_file(path: str | Path) -> str:
    """Return the path of a file, which is made if it does not exist. Only its owner can read a new file.

    Raises:
        ConfigurationError: the file cannot be made.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, _FILE))
    except OSError as error:
        expected = f"a file that can be written ({error.strerror}); --store names another one"
        raise ConfigurationError("store", str(path), expected) from error
    return str(path)


def sealing_key(place: str, key_file: Path | None = None) -> str:
    """Return the key with which all server processes on a store seal text that clients send back to them.

    The key is in `key_file`, or else in the environment variable `FASTROAI_MCP_KEY`. If neither is given, it
    is in a file beside the store: for a SQLite file `runs.db` in `runs.db.key`, for another database in the
    user's data folder. A missing file is made, with a new key.

    Raises:
        ConfigurationError: the key is too short, or others can read its file.
        MissingExtraError: platformdirs is not installed.
    """
    if key_file is None and (given := os.environ.get(KEY_VARIABLE)):
        return _checked(given, KEY_VARIABLE, "the environment")
    if key_file is None:
        kind, where = kind_and_place(place)
        key_file = Path(f"{where}.key") if kind == "sqlite" else _home() / "mcp.key"
    try:
        return _kept_in(key_file)
    except OSError as error:
        expected = f"a file that can be read and written ({error.strerror})"
        raise ConfigurationError("key_file", str(key_file), expected) from error


def _home() -> Path:
    try:
        from platformdirs import user_data_path
    except ImportError as error:
        raise MissingExtraError("the default store of flows", "workflows", "platformdirs") from error
    folder = user_data_path("fastroai", appauthor=False)
    try:
        folder.mkdir(mode=_FOLDER, parents=True, exist_ok=True)
        folder.chmod(_FOLDER)
    except OSError as error:
        expected = f"a folder that can be written ({error.strerror}); --store names another place"
        raise ConfigurationError("store", str(folder), expected) from error
    return folder


def _kept_in(file: Path) -> str:
    if not file.exists():
        # Under another name first: a process that starts at the same time finds the whole file or none.
        new = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
        with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _FILE), "w") as written:
            written.write(secrets.token_hex(_SHORTEST_KEY))
        try:
            os.link(new, file)
        except FileExistsError:
            pass  # another process was faster
        finally:
            new.unlink()
    if os.name == "posix" and (mode := stat.S_IMODE(file.stat().st_mode)) & 0o077:
        expected = f"a file that only its owner can read, and not of mode {mode:o}: chmod 600"
        raise ConfigurationError("key_file", str(file), expected)
    return _checked(file.read_text().strip(), "key_file", str(file))


def _checked(key: str, option: str, where: str) -> str:
    if len(key) < _SHORTEST_KEY:
        expected = f"at least {_SHORTEST_KEY} random characters, and not {len(key)}: secrets.token_hex()"
        raise ConfigurationError(option, where, expected)
    return key
