"""What an installation has written, and the files as they were before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from fastroai.errors import ConfigurationError
from fastroai.workflows.server.install.text_files import digest, remove, text_of, write_text

FOLDER: Final = Path(".fastroai", "install")
"""Where the record and the backups of a project are."""

_PRIVATE: Final = 0o600
"""Mode of the record and of backups: configuration can have secrets."""


class Written(BaseModel):
    """A file that was written."""

    model_config = ConfigDict(extra="forbid")

    digest: str
    """Of its text after it was written."""
    has_backup: bool
    """Whether there was a file before."""


class _Clients(BaseModel):
    model_config = ConfigDict(extra="forbid")

    clients: dict[str, dict[str, Written]] = {}


class Record:
    """Which files were written, by client and path, with backups of those that were there before.

    It says what was written, never where to write: paths come from the clients alone, so that a record
    that somebody has put into a project leads nowhere else.
    """

    def __init__(self, root: Path, folder: Path, is_project: bool) -> None:
        """Read the record that is in a folder below `root`.

        Raises:
            ConfigurationError: it is not readable.
        """
        self._root, self._folder, self._is_project = root, folder, is_project
        self._path = folder / "record.json"
        text = text_of(root, self._path)
        try:
            self._clients = (_Clients() if text is None else _Clients.model_validate_json(text)).clients
        except ValidationError as error:
            expected = f"a record that FastroAI has written ({error.error_count()} problems); remove it"
            raise ConfigurationError("file", str(self._path), expected) from error

    def files(self, client: str) -> Mapping[str, Written]:
        """Return what was written for a client, by path."""
        return self._clients.get(client, {})

    def is_as_written(self, client: str, path: str, text: str) -> bool:
        """Return whether a file has the text that it was given."""
        written = self.files(client).get(path)
        return written is not None and written.digest == digest(text)

    def backup(self, client: str, path: str) -> str | None:
        """Return a file as it was before; `None` if there was none.

        Raises:
            ConfigurationError: the backup is gone, or cannot be read.
        """
        written = self.files(client).get(path)
        if written is None or not written.has_backup:
            return None
        place = self._backup_path(client, path)
        backup = text_of(self._root, place)
        if backup is None:
            expected = f"the backup of {path}; without it, take out by hand what FastroAI has added"
            raise ConfigurationError("file", str(place), expected)
        return backup

    def note(self, client: str, path: str, text: str, original: str | None) -> None:
        """Note what a file is about to be given, and keep the original of it.

        Raises:
            ConfigurationError: the backup cannot be written.
        """
        place = self._backup_path(client, path)
        if original is None:
            self._drop(place)
        else:
            write_text(self._root, place, original, _PRIVATE)
        files = self._clients.setdefault(client, {})
        files[path] = Written(digest=digest(text), has_backup=original is not None)

    def forget(self, client: str, path: str) -> None:
        """Remove a file from the record, and its backup.

        Raises:
            ConfigurationError: the backup cannot be removed.
        """
        files = self._clients.get(client, {})
        if files.pop(path, None) is not None:
            self._drop(self._backup_path(client, path))
        if not files:
            self._clients.pop(client, None)

    def keep(self) -> None:
        """Write the record; remove it if nothing is on record.

        Raises:
            ConfigurationError: it cannot be written.
        """
        ignore = self._folder / ".gitignore"
        if not self._clients:
            self._drop(self._path)
            if self._is_project:
                self._drop(ignore)
            return
        if self._is_project and text_of(self._root, ignore) is None:
            write_text(self._root, ignore, "*\n")
        text = _Clients(clients=self._clients).model_dump_json(indent=2) + "\n"
        if text_of(self._root, self._path) != text:
            write_text(self._root, self._path, text, _PRIVATE)

    def _backup_path(self, client: str, path: str) -> Path:
        parts = Path(path)
        return self._folder / "backups" / client / parts.relative_to(parts.anchor)

    def _drop(self, path: Path) -> None:
        if text_of(self._root, path) is not None:
            remove(self._root, path)
