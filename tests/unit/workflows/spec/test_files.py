"""The files that an `ensure` sees: regular ones below the workspace, and no others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastroai.workflows.spec.files import Workspace
from fastroai.workflows.spec.limits import MAX_FILE_BYTES


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "a.md").write_text("Hällo", encoding="utf-8")
    (tmp_path / "secret").write_text("secret")
    return root


def test_files_below_the_workspace_are_seen(root: Path) -> None:
    files = Workspace(root)
    assert files.file_exists("docs/a.md")
    assert files.file_exists("docs/../docs/./a.md")
    assert files.file_contains("docs/a.md", "ällo")
    assert not files.file_contains("docs/a.md", "hello")
    assert not files.file_exists("docs/b.md")
    assert not files.file_contains("docs/b.md", "x")
    assert not files.file_exists("docs")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../secret", "leads out of the workspace"),
        ("docs/../../secret", "leads out of the workspace"),
        ("link", "leads out of the workspace"),
        ("folder/secret", "leads out of the workspace"),
        ("/etc/passwd", "is an absolute path"),
        ("", "not empty"),
        ("a\0b", "is a text"),
        (3, "is a text"),
    ],
)
def test_nothing_else_is_seen(root: Path, path: str, reason: str) -> None:
    (root / "link").symlink_to("../secret")
    (root / "folder").symlink_to(root.parent)
    for ask in (lambda: Workspace(root).file_exists(path), lambda: Workspace(root).file_contains(path, "s")):
        with pytest.raises(ValueError, match=reason):
            ask()


def test_links_that_stay_inside_are_followed_and_those_in_a_circle_are_not(root: Path) -> None:
    (root / "inner").symlink_to("docs/a.md")
    (root / "round").symlink_to("round")
    assert Workspace(root).file_exists("inner")
    assert Workspace(root).file_contains("inner", "H")
    assert not Workspace(root).file_exists("nothing/round")
    with pytest.raises(ValueError, match="round"):
        Workspace(root).file_contains("round", "x")


def test_a_workspace_may_be_a_link_itself(root: Path) -> None:
    link = root.parent / "here"
    link.symlink_to(root)
    assert Workspace(link).file_exists("docs/a.md")
    assert Workspace(str(link)).file_contains("docs/a.md", "H")


def test_only_regular_files_of_a_limited_size_are_read(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with (root / "large").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with (root / "just").open("wb") as file:
        file.seek(MAX_FILE_BYTES - 1)
        file.write(b"x")
    files = Workspace(root)
    assert not files.file_exists("pipe")
    with pytest.raises(ValueError, match="not a regular file"):
        files.file_contains("pipe", "x")
    with pytest.raises(ValueError, match="not a regular file"):
        files.file_contains("docs", "x")
    with pytest.raises(ValueError, match="more than 10,000,000 bytes"):
        files.file_contains("large", "x")
    assert files.file_contains("just", "x")
    with pytest.raises(ValueError, match="second argument"):
        files.file_contains("just", 3)  # type: ignore[arg-type]


def test_expressions_ask_for_files_here(root: Path) -> None:
    workspace = Workspace(root)
    expression = workspace.expression("file_contains(result.path, 'Hällo')")
    assert expression.test({"result": {"path": "docs/a.md"}}).holds
    assert workspace.expression(expression.text) is expression
    outcome = expression.test({"result": {"path": "../secret"}})
    assert "'../secret' leads out of the workspace" in outcome.explain()
