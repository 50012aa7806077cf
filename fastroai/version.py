"""The distribution that this is: its name, its version, and why it does not start beside its namesake."""

from __future__ import annotations

import os
import sys
from typing import Final

__version__ = "0.1.0.dev0"

DISTRIBUTION: Final = "fastroai-runs"
"""The name to install: that of `pyproject.toml`. What is imported is `fastroai`."""

_NAMESAKE: Final = "fastroai"
"""The name of another project's distribution, which has the same import name."""
_OUR_ENTRY_POINT: Final = "fastroai.testing.pytest_plugin"


def refuse_namesake() -> None:
    """Refuse to start if the other distribution that is imported as `fastroai` is installed.

    It reads only the names in the folders of `sys.path`: the import of `importlib.metadata` would take longer
    than the rest of `import fastroai`.

    Raises:
        ImportError: it is installed.
    """
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue  # Python skips such entries too
        for name in names:
            if name.startswith(f"{_NAMESAKE}-") and name.endswith((".dist-info", ".egg-info")):
                _refuse(folder, name)


def _refuse(folder: str, name: str) -> None:
    from importlib.metadata import PathDistribution
    from pathlib import Path

    other = PathDistribution(Path(folder, name))
    is_editable = '"editable": true' in (other.read_text("direct_url.json") or "")
    if is_editable and _OUR_ENTRY_POINT in (other.read_text("entry_points.txt") or ""):
        return  # a checkout of ours, from before the distribution had its own name: it has no files here
    raise ImportError(
        f"the distribution {_NAMESAKE!r} is installed in {folder!r}. It has the import name of "
        f"{DISTRIBUTION!r}, so each replaces files of the other. "
        f"Run: pip uninstall --yes {_NAMESAKE} {DISTRIBUTION} — and install {DISTRIBUTION!r} again"
    )
