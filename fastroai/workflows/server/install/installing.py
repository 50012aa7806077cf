"""Setting a client up, and undoing the setup: all changes are worked out before any file is written."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from fastroai.workflows.server.install.clients import Client, Target
from fastroai.workflows.server.install.record import Record
from fastroai.workflows.server.install.setup_parts import KINDS, Kind, Part
from fastroai.workflows.server.install.text_files import check_writable, remove, text_of, write_text


@dataclass(frozen=True, slots=True)
class Change:
    """A file that is written, removed or kept."""

    path: Path
    before: str | None
    after: str | None
    kept: str = ""
    """Why the user's own entry stays in the file, and ours is left out; empty if ours is in it."""
    original: str | None = None
    """The text of the file without anything of ours; `None` if there was no file."""

    @property
    def is_needed(self) -> bool:
        """Whether the file gets another text, or is removed."""
        return self.before != self.after

    @property
    def word(self) -> str:
        """One word for what happens to the file: kept, unchanged, created, removed or changed."""
        if not self.is_needed:
            return "kept" if self.kept else "unchanged"
        return "created" if self.before is None else "removed" if self.after is None else "changed"

    def diff(self) -> str:
        """Return the change as a unified diff."""
        lines = difflib.unified_diff(
            (self.before or "").splitlines(keepends=True),
            (self.after or "").splitlines(keepends=True),
            "/dev/null" if self.before is None else str(self.path),
            "/dev/null" if self.after is None else str(self.path),
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class Setup:
    """The setup of a client: its target, and the record of earlier setups."""

    client: Client
    target: Target
    record: Record

    @property
    def is_on_record(self) -> bool:
        """Whether the client is set up: its parts were installed, and not removed since."""
        return bool(self.record.files(self.client.name))

    def install(self, kinds: Sequence[Kind] = KINDS) -> list[Change]:
        """Work out the changes that add the client's parts to its files. Nothing is written.

        Raises:
            ConfigurationError: a file is broken, or cannot be read or written.
        """
        return [
            self._addition(path, parts, [part for part in parts if part.kind in kinds])
            for path, parts in self._files(kinds)
        ]

    def uninstall(self, keep_skills: bool = False) -> list[Change]:
        """Work out the changes that take the client's parts out of its files. Nothing is written.

        Raises:
            ConfigurationError: a file is broken, or cannot be read or written.
        """
        kinds: list[Kind] = [kind for kind in KINDS if not (keep_skills and kind == "skills")]
        return [self._removal(path, parts) for path, parts in self._files(kinds)]

    def write(self, changes: Iterable[Change], is_removal: bool = False) -> None:
        """Write changes. A setup writes backups and the record first; a removal updates them last.

        Raises:
            ConfigurationError: a file cannot be written.
        """
        needed = [one for one in changes if one.is_needed]
        if not is_removal:
            for one in needed:
                self.record.note(self.client.name, self._key(one.path), one.after or "", one.original)
            self.record.keep()
        for one in needed:
            root = self._root_of(one.path)
            if one.after is None:
                remove(root, one.path)
            else:
                write_text(root, one.path, one.after)
        if is_removal:
            for one in changes:
                self.record.forget(self.client.name, self._key(one.path))
            self.record.keep()

    # --- working out changes ---

    def _files(self, kinds: Sequence[Kind]) -> Iterator[tuple[Path, list[Part]]]:
        """Yield the files that have parts of some kinds, each with all its parts."""
        parts = sorted(self.client.parts(self.target), key=lambda one: one.path)
        for path, grouped in groupby(parts, lambda one: one.path):
            same = list(grouped)
            if any(part.kind in kinds for part in same):
                yield path, same

    def _addition(self, path: Path, parts: Sequence[Part], wanted: Sequence[Part]) -> Change:
        text = text_of(self._root_of(path), path)
        is_ours = self._is_ours(path, text)
        original = self._backup(path)
        if not is_ours:
            # An entry of the same name that is not on record is the user's, and comes back at the end.
            original = _without(parts, text, original if self._is_on_record(path) else text)
        after = text
        for part in wanted:
            after = part.put(after, original, is_ours)
        kept = "" if after is None else "; ".join(filter(None, (one.kept(after, original) for one in wanted)))
        return self._checked(Change(path, text, after, kept=kept, original=original))

    def _removal(self, path: Path, parts: Sequence[Part]) -> Change:
        text = text_of(self._root_of(path), path)
        if self._is_ours(path, text):
            return self._checked(Change(path, text, self._backup(path)))
        after = _without(parts, text, self._backup(path))
        kept = "" if after is None else "; ".join(filter(None, (one.kept(after, after) for one in parts)))
        return self._checked(Change(path, text, after, kept=kept))

    def _checked(self, change: Change) -> Change:
        if change.is_needed:
            check_writable(self._root_of(change.path), change.path)
        return change

    # --- the record ---

    def _key(self, path: Path) -> str:
        # Paths in the record of a project are relative to it, so that the project can be moved.
        root = self.target.root
        return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()

    def _root_of(self, path: Path) -> Path:
        root = self.target.root
        return root if path.is_relative_to(root) else self.client.home(root)

    def _is_ours(self, path: Path, text: str | None) -> bool:
        return text is not None and self.record.is_as_written(self.client.name, self._key(path), text)

    def _is_on_record(self, path: Path) -> bool:
        return self._key(path) in self.record.files(self.client.name)

    def _backup(self, path: Path) -> str | None:
        return self.record.backup(self.client.name, self._key(path))


def _without(parts: Sequence[Part], text: str | None, original: str | None) -> str | None:
    for part in parts:
        text = None if text is None else part.take_out(text, original)
    return text
