"""Read and write the files of a client: always whole files, and never through a symbolic link."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from fastroai.errors import ConfigurationError

MAX_BYTES: Final = 10_000_000
"""Maximum number of bytes in a file that is edited. Claude Code's own file can be a few megabytes."""


def text_of(root: Path, path: Path) -> str | None:
    """Return the text of a file below `root`, unchanged; `None` if there is no file.

    Raises:
        ConfigurationError: something on the way is a symbolic link, it is no ordinary file, it is too large,
            it cannot be read, or it is not UTF-8.
    """
    _refuse_links(root, path)
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(mode):
        raise ConfigurationError("file", str(path), "an ordinary file")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError("file", str(path), f"a file that can be read ({error.strerror})") from error
    if len(data) > MAX_BYTES:
        raise ConfigurationError("file", str(path), f"at most {MAX_BYTES:,} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError("file", str(path), f"UTF-8; byte {error.start} is not") from error


def check_writable(root: Path, path: Path) -> None:
    """Check that a file can be written or removed, before any file is changed.

    Raises:
        ConfigurationError: the file is read-only, or its folder is.
    """
    _refuse_links(root, path)
    if path.exists() and not path.stat().st_mode & stat.S_IWUSR:
        raise ConfigurationError("file", str(path), "a file that can be written; it is read-only: chmod u+w")
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise ConfigurationError("file", str(path), f"a folder at {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigurationError("file", str(path), f"a folder that can be written, which {folder} is not")


def write_text(root: Path, path: Path, text: str, mode: int | None = None) -> None:
    """Write a file below `root`, so that it has the old or the new text at any moment. Its mode stays.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    check_writable(root, path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if mode is None:
            mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
        new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with open(new, "xb", opener=_private if mode is not None else None) as opened:
                opened.write(text.encode("utf-8"))
            if mode is not None:
                new.chmod(mode)
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(
            "file", str(path), f"a file that can be written ({error.strerror})"
        ) from error


def remove(root: Path, path: Path) -> None:
    """Remove a file below `root`, and folders that are empty after that.

    Raises:
        ConfigurationError: the file cannot be removed.
    """
    check_writable(root, path)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(
            "file", str(path), f"a file that can be removed ({error.strerror})"
        ) from error
    for folder in path.parents:
        if folder == root or not folder.is_relative_to(root):
            return
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return  # it has other files


def digest(text: str) -> str:
    """Return the digest by which a text is recognised."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _refuse_links(root: Path, path: Path) -> None:
    # The root itself may be a link: the user has named it.
    for one in (path, *path.parents):
        if one == root:
            return
        if one.is_symlink():
            expected = (
                f"a file or folder, and not a symbolic link (to {os.readlink(one)}); replace the link, or "
                "choose other things to set up with --part"
            )
            raise ConfigurationError("file", str(one), expected)
    raise ConfigurationError("file", str(path), f"a file in {root}")
