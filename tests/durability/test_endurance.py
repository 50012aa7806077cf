"""A process that has made many runs has what it had after a few: an hour of that is `make endurance`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.patience import PATIENCE


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, which is of Linux")
@pytest.mark.slow
def test_runs_of_many_kinds_leave_no_object_task_thread_or_descriptor(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("endurance.py"), tmp_path],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
