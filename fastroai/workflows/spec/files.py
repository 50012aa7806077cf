"""The files that conditions of `ensure` can ask for: those below the root of the workspace."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, final

from pydantic import JsonValue

from fastroai.expressions import Expression
from fastroai.workflows.spec.limits import MAX_FILE_BYTES


@final
class Workspace:
    """The folder that `file_exists` and `file_contains` see, with everything below it and nothing else."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._compiled = lru_cache(maxsize=1_000)(self._compile)

    def expression(self, text: str) -> Expression:
        """Return an expression that can ask for the files of this workspace."""
        return self._compiled(text)

    def _compile(self, text: str) -> Expression:
        return Expression(
            text, functions={"file_exists": self.file_exists, "file_contains": self.file_contains}
        )

    def file_exists(self, path: str) -> bool:
        """Return whether a path names a regular file.

        Raises:
            ValueError: The path is no text, or leads out of the workspace.
        """
        found = self._resolved(path)
        try:
            return stat.S_ISREG(found.stat().st_mode)
        except OSError:
            return False

    def file_contains(self, path: str, text: str) -> bool:
        """Return whether a path names a regular file that contains a text, in UTF-8.

        Raises:
            ValueError: The path is no text, or leads out of the workspace; the file is no regular file, is
                too large, or cannot be read.
        """
        if not isinstance(text, str):
            raise ValueError("the second argument is not a text")
        found = self._resolved(path)
        try:
            # Without O_NONBLOCK, to open a FIFO would wait for somebody who writes into it.
            descriptor = os.open(found, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ValueError(f"{path!r} cannot be read: {error.strerror}") from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ValueError(f"{path!r} is not a regular file")
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(MAX_FILE_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(content) > MAX_FILE_BYTES:
            raise ValueError(f"{path!r} has more than {MAX_FILE_BYTES:,} bytes")
        return text.encode(errors="surrogatepass") in content

    def _resolved(self, path: str) -> Path:
        if not isinstance(path, str) or not path or "\0" in path:
            raise ValueError("the path of a file is a text, and not empty")
        if Path(path).is_absolute():
            raise ValueError(f"{path!r} is an absolute path; expected one below the workspace")
        try:
            root = self.root.resolve()
            found = (root / path).resolve()
        except (OSError, RuntimeError) as error:  # links that lead in a circle
            raise ValueError(f"{path!r} cannot be followed") from error
        if not found.is_relative_to(root):
            raise ValueError(f"{path!r} leads out of the workspace")
        return found


def _file_exists(path: JsonValue) -> JsonValue:
    raise ValueError("there is no workspace to look for files in")


def _file_contains(path: JsonValue, text: JsonValue) -> JsonValue:
    raise ValueError("there is no workspace to look for files in")


FILE_FUNCTIONS: Final[Mapping[str, Callable[..., JsonValue]]] = {
    "file_exists": _file_exists,
    "file_contains": _file_contains,
}
"""The file functions for places without a workspace, such as the validation of a spec. They always fail."""
