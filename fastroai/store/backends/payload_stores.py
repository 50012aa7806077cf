"""Stores of large values that a store of runs refers to: in folders, and wherever `fsspec` reaches."""

from __future__ import annotations

import asyncio
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from fastroai.errors import ConfigurationError, MissingExtraError, RunStoreUnavailable
from fastroai.store.backends.address import Address
from fastroai.store.backends.kept_at import KeptAt
from fastroai.store.backends.workers import Workers

T = TypeVar("T")

_AT_ONCE: Final = 4
"""Number of threads that read and write."""
_OWNER_READS_AND_WRITES: Final = 0o600
_OWNER_ENTERS: Final = 0o700
_ADVICE: Final = "see that the place of the payloads can be reached, read and written"


@runtime_checkable
class PayloadStore(Protocol):
    """A store of large values of runs: `FilePayloadStore`, `FsspecPayloadStore`, or one that you write.

    `OffloadingRunStore` uses it. A payload is bytes, under a name that is computed from them. Payloads are in
    groups, one for each key of the store of runs. Names of groups and payloads are made of the digits 0 to 9
    and the letters a to f. A payload is stored whole or not at all; once `put` has returned, it survives a
    power failure. A `delete` that is interrupted may leave payloads, which `forget_orphans` of that store
    deletes later.

    Raises:
        RunStoreUnavailable: from every operation, if the place cannot be reached, read or written.
    """

    async def put(self, group: str, name: str, payload: bytes) -> None:
        """Store a payload under a name in a group, and make the group if it does not exist.

        If the name exists in the group, its payload has the same bytes: an implementation may keep those.

        Raises:
            RunStoreUnavailable: the place of the payloads cannot be reached, read or written.
        """
        ...

    async def get(self, group: str, name: str) -> bytes | None:
        """Return the bytes of a payload; `None` if the group has no payload with this name.

        Raises:
            RunStoreUnavailable: the place of the payloads cannot be reached, read or written.
        """
        ...

    async def groups(self) -> Mapping[str, datetime]:
        """Return all groups: for the name of each, the time in UTC at which it was made or last changed.

        Raises:
            RunStoreUnavailable: the place of the payloads cannot be reached, read or written.
        """
        ...

    async def delete(self, group: str) -> None:
        """Delete a group, which belongs to one key of the store of runs, with all payloads in it.

        Nothing happens if it does not exist.

        Raises:
            RunStoreUnavailable: the place of the payloads cannot be reached, read or written.
        """
        ...


class _InThreads(ABC, KeptAt):
    """A `PayloadStore` of blocking operations, in threads: file systems on a network are slow."""

    def __init__(self) -> None:
        self._workers = Workers(_AT_ONCE)

    async def put(self, group: str, name: str, payload: bytes) -> None:
        """Write a payload to the file `name` in the folder `group`. An existing file is replaced.

        When this returns, the payload is completely stored.

        Raises:
            ConfigurationError: `group` or `name` is empty, or a path.
            RunStoreUnavailable: the place of the payloads cannot be reached, read or written.
        """
        await self._call(partial(self._put, _plain_name(group), _plain_name(name), payload))

    async def get(self, group: str, name: str) -> bytes | None:
        """Return the bytes of a payload; `None` if the group has no payload with this name.

        Raises:
            ConfigurationError: `group` or `name` is empty, or a path.
            RunStoreUnavailable: the place of the payloads cannot be reached or read.
        """
        return await self._call(partial(self._get, _plain_name(group), _plain_name(name)))

    async def groups(self) -> Mapping[str, datetime]:
        """Return all groups: for the name of each, the time in UTC at which something in it last changed.

        Raises:
            RunStoreUnavailable: the place of the payloads cannot be reached or read.
        """
        return await self._call(self._groups)

    async def delete(self, group: str) -> None:
        """Delete a group, which belongs to one key of the store of runs, with all payloads in it.

        Nothing happens if it does not exist.

        Raises:
            ConfigurationError: `group` is empty, or a path.
            RunStoreUnavailable: the place of the payloads cannot be reached, read or written.
        """
        await self._call(partial(self._delete, _plain_name(group)))

    @abstractmethod
    def _put(self, group: str, name: str, payload: bytes) -> None: ...

    @abstractmethod
    def _get(self, group: str, name: str) -> bytes | None: ...

    @abstractmethod
    def _groups(self) -> Mapping[str, datetime]: ...

    @abstractmethod
    def _delete(self, group: str) -> None: ...

    async def _call(self, call: Callable[[], T]) -> T:
        try:
            return await asyncio.wrap_future(self._workers.submit(call))
        except Exception as error:  # a file system of fsspec can raise anything
            failure = error
        reason = f"{type(failure).__name__}: {failure}"
        if self._address is None or not self._address.is_told_by(failure):
            raise RunStoreUnavailable(repr(self), reason, _ADVICE) from failure
        raise RunStoreUnavailable(repr(self), self._address.hide(reason), _ADVICE)


class FilePayloadStore(_InThreads):
    """A `PayloadStore` in a folder: a file for each payload, in a subfolder for each group.

    The folder is made when it is first needed. Only the owner can enter the folders and read the files that
    the store makes (modes 0700 and 0600). Each file is completely on the disk before the store of runs refers
    to it, so a power failure leaves no broken reference.

    Raises:
        ConfigurationError: `folder` is not a path.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Set the folder, which is made when it is first needed.

        Raises:
            ConfigurationError: `folder` is no path.
        """
        if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
            raise ConfigurationError("folder", folder, "the path of a folder")
        self._folder = Path(os.path.abspath(os.fspath(folder)))
        super().__init__()

    def __repr__(self) -> str:
        return f"FilePayloadStore({str(self._folder)!r})"

    def _put(self, group: str, name: str, payload: bytes) -> None:
        folder = self._folder / group
        # The folder itself first: folders that are made as parents can be entered as the umask says.
        self._folder.mkdir(mode=_OWNER_ENTERS, parents=True, exist_ok=True)
        folder.mkdir(mode=_OWNER_ENTERS, exist_ok=True)
        written = folder / f"{name}.{secrets.token_hex(8)}.part"
        try:
            with open(written, "xb", opener=_for_owner) as file:
                file.write(payload)
                file.flush()
                os.fsync(file.fileno())
            written.replace(folder / name)
        except BaseException:
            with suppress(OSError):
                written.unlink()
            raise
        for changed in (folder, self._folder, self._folder.parent):
            _sync(changed)

    def _get(self, group: str, name: str) -> bytes | None:
        try:
            return (self._folder / group / name).read_bytes()
        except FileNotFoundError:
            return None

    def _groups(self) -> Mapping[str, datetime]:
        found = {}
        with suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # deleted meanwhile
                    found[entry.name] = datetime.fromtimestamp(entry.stat().st_mtime, UTC)
        return found

    def _delete(self, group: str) -> None:
        with suppress(FileNotFoundError):
            rmtree(self._folder / group)


def _plain_name(name: str) -> str:
    """Return the name of a group or of a payload. Raises `ConfigurationError` if it leads elsewhere."""
    if not name or name in (".", "..") or "/" in name or os.sep in name or "\0" in name:
        raise ConfigurationError("name", name, "the name of a file or folder, without a path")
    return name


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, _OWNER_READS_AND_WRITES)


def _sync(folder: Path) -> None:
    """Sync a folder, so that its list of files survives a power failure. Windows cannot sync folders."""
    if os.name == "posix":
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


class FsspecPayloadStore(_InThreads):
    """A `PayloadStore` on a file system of `fsspec`: S3, Google Cloud, Azure. Needs the extra `fsspec`.

        payloads = FsspecPayloadStore("s3://bucket/runs", profile="runs")

    `options` are those of the file system in `fsspec`. Its package, such as `s3fs`, must be installed too.
    Object stores write an object whole or not at all. On other file systems, a payload can stay incomplete:
    then reading the run raises `RunCorrupt`. Wrong credentials or a missing bucket may show only at the first
    operation, as `RunStoreUnavailable`.

    Raises:
        ConfigurationError: `fsspec` cannot open the URL, or the package of its file system is not installed.
        MissingExtraError: `fsspec` is not installed.
    """

    def __init__(self, url: str, **options: Any) -> None:
        """Connect to the file system of `url`. `options` are those of that file system in `fsspec`.

        Raises:
            ConfigurationError: `fsspec` does not know what the URL names.
            MissingExtraError: `fsspec` is not installed (the extra `fsspec`).
        """
        try:
            import fsspec  # type: ignore[import-untyped]
        except ImportError as error:
            raise MissingExtraError("FsspecPayloadStore", "fsspec", "fsspec") from error
        if not isinstance(url, str):
            raise ConfigurationError(
                "url", type(url).__name__, "a URL as fsspec takes it, such as s3://bucket/runs"
            )
        self._address = address = Address(
            url, *(value for value in options.values() if isinstance(value, str))
        )
        unknown = ""
        try:
            self._files, self._root = fsspec.core.url_to_fs(url, **options)
        except Exception as error:  # a file system can raise anything
            unknown = address.hide(f"{type(error).__name__}: {error}")
        if unknown:  # not from the first error, which may quote a password
            expected = f"a URL that fsspec can open, of a file system that is installed: {unknown}"
            raise ConfigurationError("url", address.shown, expected)
        self._shown = address.shown
        super().__init__()

    def __repr__(self) -> str:
        return f"FsspecPayloadStore({self._shown!r})"

    def _path(self, *parts: str) -> str:
        return "/".join((self._root.rstrip("/"), *parts))

    def _put(self, group: str, name: str, payload: bytes) -> None:
        self._files.makedirs(self._path(group), exist_ok=True)
        self._files.pipe_file(self._path(group, name), payload)

    def _get(self, group: str, name: str) -> bytes | None:
        try:
            payload: bytes = self._files.cat_file(self._path(group, name))
        except FileNotFoundError:
            return None
        return payload

    def _groups(self) -> Mapping[str, datetime]:
        found: dict[str, datetime] = {}
        self._files.invalidate_cache()
        for path in self._files.find(self._root):
            group = path.rpartition("/")[0].rpartition("/")[2]
            changed = _time_of(self._files, path)
            found[group] = max(found.get(group, changed), changed)
        return found

    def _delete(self, group: str) -> None:
        self._files.invalidate_cache()
        with suppress(FileNotFoundError):
            self._files.rm(self._path(group), recursive=True)


def _time_of(files: Any, path: str) -> datetime:
    """Return when a file was written; now, if the file system does not say, so that the file is not old."""
    try:
        changed: datetime = files.modified(path)
    except NotImplementedError:
        return datetime.now(UTC)
    return changed if changed.tzinfo else changed.replace(tzinfo=UTC)
