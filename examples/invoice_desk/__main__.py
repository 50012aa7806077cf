"""Serves the desk on this machine, with two workers: `cd examples && python -m invoice_desk`.

Without a key of OpenAI, the model server answers in its place, and nothing is spent.
"""

import os
from contextlib import ExitStack

import uvicorn

from fastroai.testing import ModelServer
from invoice_desk import offline


def main() -> None:
    """Serve until Ctrl-C."""
    os.environ.setdefault("DESK_FOLDER", ".")
    with ExitStack() as stack:
        if "OPENAI_API_KEY" not in os.environ:
            server = stack.enter_context(ModelServer(latency=0.5))
            offline.install(server)
            os.environ.update(server.environment())
        port = int(os.environ.get("PORT", "8000"))
        uvicorn.run("invoice_desk.app:app", port=port, workers=2)


if __name__ == "__main__":
    main()
