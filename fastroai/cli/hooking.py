"""`mcp hook`: an event of a coding agent."""

from __future__ import annotations

import sys
from datetime import datetime

from fastroai.cli.exits import complain
from fastroai.workflows.server.install.hooks import MAX_BYTES, answered


def hook(name: str, client: str) -> None:
    """See `app`. A hook must never fail its client, so every error is only printed."""
    try:
        said = sys.stdin.buffer.read(MAX_BYTES + 1)
        print(answered(name, client, said, datetime.now()), end="")
    except Exception as error:
        complain(f"hook {name}: {error}")
