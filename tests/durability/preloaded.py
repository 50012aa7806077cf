"""Libraries that are preloaded into a process, to see or change what it asks of the system."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from support.patience import PATIENCE

NEEDS_LINUX: Final = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="needs LD_PRELOAD, which is of Linux"
)


def compiled(source: str, folder: Path) -> Path:
    """The library that a file beside this one makes; without a C compiler the test is skipped."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler (cc), and there is none")
    made = (folder / source).with_suffix(".so")
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", made, Path(__file__).with_name(source)]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True, timeout=PATIENCE)
    return made
