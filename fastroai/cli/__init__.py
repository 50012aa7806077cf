"""The command line, `fastroai`. It needs the extra `cli`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

__all__ = ["main"]

_INTERRUPTED: Final = 130
"""Exit code, as in `exits`, whose import can be what is interrupted."""


def main() -> None:
    """Run the command that `sys.argv` says, and exit with its code.

    An interrupt is one line, also while modules are being imported. Afterwards, another one ends the process
    at once, without the traceback of what Python does at its exit, such as waiting for threads.
    """
    code: object = None
    try:
        _run()
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except SystemExit as ended:
        code = ended.code
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if code == _INTERRUPTED:
        print("fastroai: interrupted", file=sys.stderr)
    raise SystemExit(code)


def _run() -> None:
    from fastroai.cli.exits import USAGE

    try:
        import rich  # noqa: F401  # pyright: ignore[reportUnusedImport]
        import typer  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError:
        from fastroai.errors import MissingExtraError

        error = MissingExtraError("the command line", "cli", "typer and rich")
        print(f"fastroai: {error}", file=sys.stderr)
        raise SystemExit(USAGE) from None
    from fastroai.cli.app import app

    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")  # the first run of an agent would print one
    app(prog_name="fastroai")
