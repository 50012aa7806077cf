"""The demo: what it says is so, and the viewer shows its runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from support.fork_server import Program

from fastroai.store import RunHistory, SQLiteRunStore

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A copy of the demo, whose runs are beside it."""
    shutil.copytree(ROOT / "examples/demo", tmp_path / "examples/demo")
    return tmp_path / "examples"


async def test_the_demo_tells_a_true_story(examples: Path) -> None:
    code, out, err = Program("-m", "demo", folder=examples).end()
    assert (code, err) == (0, "")
    said = " ".join(out.split())
    assert "1 request sent" in said
    assert "Mia says yes" in said
    assert "make view shows these runs on http://127.0.0.1:" in said
    assert "The refund of $340 is approved" in said
    counted = re.findall(r"(\S+): \$[\d.]+ for (\d+) requests .*?; the server counts (\d+) and", said)
    assert len(counted) == 2
    for _, ours, theirs in counted:
        assert ours == theirs

    store = SQLiteRunStore(examples.parent / "out/demo/runs.db")
    runs = {run.run_id: run for run in await RunHistory(store).list()}
    assert {name: run.status for name, run in runs.items()} == {
        "ticket-1": "finished",
        "ticket-1-cheap": "failed",
        "ticket-2": "finished",
        "ticket-3": "paused",
        "night-shift": "finished",
    }
    night = await RunHistory(store).trace("night-shift")
    assert night.was_resumed
    assert night.usage.request_count <= 11  # two for each of five tickets, and one that the kill cut off
    await store.aclose()


def test_there_is_nothing_to_view_before_the_demo(examples: Path) -> None:
    assert Program("-m", "demo", "view", folder=examples).end() == (
        2,
        "",
        "there are no runs yet: make demo\n",
    )
