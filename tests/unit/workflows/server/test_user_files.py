"""The user's own store, and the key that server processes share."""

from __future__ import annotations

import multiprocessing
import os
import stat
from pathlib import Path

import platformdirs
import pytest

from fastroai.errors import ConfigurationError
from fastroai.workflows.server.user_files import private_file, sealing_key, user_store


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(platformdirs, "user_data_path", lambda *_, **__: tmp_path / "data")
    monkeypatch.delenv("FASTROAI_MCP_KEY", raising=False)
    return tmp_path / "data"


def test_the_own_store_is_a_file_that_only_its_user_can_read(home: Path) -> None:
    before = os.umask(0)
    try:
        assert user_store() == str(home / "workflows.db")
    finally:
        os.umask(before)
    assert (mode(home), mode(home / "workflows.db")) == (0o700, 0o600)


def test_a_folder_of_data_that_others_could_read_is_closed_to_them(home: Path) -> None:
    home.mkdir(mode=0o755)
    user_store()
    assert mode(home) == 0o700


def test_a_store_that_is_there_stays_as_it_is(home: Path) -> None:
    Path(user_store()).write_text("runs")
    assert Path(user_store()).read_text() == "runs"


def test_a_place_that_cannot_be_written_is_told_with_the_option_for_another_one(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigurationError, match=r"No such file.*--store"):
        private_file(tmp_path / "missing" / "runs.db")


def test_the_key_is_beside_a_file_store_and_only_its_user_can_read_it(tmp_path: Path, home: Path) -> None:
    store = tmp_path / "runs.db"
    key = sealing_key(str(store))
    assert len(key) >= 32
    assert (tmp_path / "runs.db.key").read_text() == key
    assert mode(tmp_path / "runs.db.key") == 0o600
    assert sealing_key(f"sqlite:///{store}") == key, "each server on the store has the same one"
    assert sealing_key(str(tmp_path / "other.db")) != key


def test_the_key_of_a_database_is_in_the_data_folder(home: Path) -> None:
    key = sealing_key("redis://localhost:6379/0")
    assert (home / "mcp.key").read_text() == key == sealing_key("postgresql://db/runs")


def test_a_key_of_the_environment_or_a_named_file_is_taken(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "shared.key"
    kept = sealing_key("redis://localhost:6379/0", named)
    assert named.read_text() == kept
    monkeypatch.setenv("FASTROAI_MCP_KEY", "e" * 32)
    assert sealing_key("redis://localhost:6379/0") == "e" * 32
    assert sealing_key("redis://localhost:6379/0", named) == kept, "the option is the more specific one"
    assert not (home / "mcp.key").exists()


def test_a_key_that_is_too_short_is_refused_and_not_shown(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTROAI_MCP_KEY", "tooshort")
    with pytest.raises(ConfigurationError, match="at least 32 random characters, and not 8") as raised:
        sealing_key("runs.db")
    assert "tooshort" not in str(raised.value)
    (named := tmp_path / "empty.key").touch(0o600)
    with pytest.raises(ConfigurationError, match="and not 0"):
        sealing_key("runs.db", named)


def test_a_key_that_others_can_read_is_refused(tmp_path: Path, home: Path) -> None:
    named = tmp_path / "shared.key"
    named.write_text("k" * 40)
    named.chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        sealing_key("runs.db", named)


def test_a_key_that_cannot_be_kept_is_told(tmp_path: Path, home: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        sealing_key("runs.db", tmp_path / "missing" / "key")


def _key_of(place: str) -> str:
    return sealing_key(place)


@pytest.mark.slow
def test_processes_that_start_together_agree_on_one_key(tmp_path: Path, home: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        keys = pool.map(_key_of, [str(tmp_path / "runs.db")] * 16, chunksize=1)
    assert len(set(keys)) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs.db.key"], "nothing is left behind"
