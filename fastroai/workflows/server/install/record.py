"""The record of an installation: the files that it has written, and backups of earlier files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from fastroai.errors import ConfigurationError
from fastroai.workflows.server.install.text_files import digest, remove, text_of, write_text

FOLDER: Final = Path(".fastroai", "install")
"""The folder of a project for the record and the backups."""

_PRIVATE: Final = 0o600
"""Mode of the record and of backups: configuration can have secrets."""


class Written(BaseModel):
    """A file that was written."""

    model_config = ConfigDict(extra="forbid")

    digest: str
    """Digest of the text that was written."""
    has_backup: bool
    """Whether the file existed before."""


class _Clients(BaseModel):
    model_config = ConfigDict(extra="forbid")

    clients: dict[str, dict[str, Written]] = {}


class Record:
    """The files that were written, by client and path, with backups of files that existed before.

    The record never says where to write: paths come from the clients alone. So a record that somebody has put
    into a project leads nowhere else.
    """

    def __init__(self, root: Path, folder: Path, is_project: bool) -> None:
        """Read the record in a folder below `root`.

        Raises:
            ConfigurationError: the record is not readable.
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
        """Return the files that were written for a client, by path."""
        return self._clients.get(client, {})

    def is_as_written(self, client: str, path: str, text: str) -> bool:
        """Return whether a text of a file is the one that was written."""
        written = self.files(client).get(path)
        return written is not None and written.digest == digest(text)

    def backup(self, client: str, path: str) -> str | None:
        """Return the text of a file from before the setup; `None` if there was no file.

        Raises:
            ConfigurationError: the backup is gone, or cannot be read.
        """
        written = self.files(client).get(path)
        if written is None or not written.has_backup:
            return None
        place = self._backup_path(client, path)
        backup = text_of(self._root, place)
        if backup is None:
            expected = f"the backup of {path}; without it, remove by hand what FastroAI has added"
            raise ConfigurationError("file", str(place), expected)
        return backup

    def note(self, client: str, path: str, text: str, original: str | None) -> None:
        """Note the text that is about to be written to a file, and back up its original.

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
        """Write the record; remove it if it has no files.

        Raises:
            ConfigurationError: the record cannot be written.
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
