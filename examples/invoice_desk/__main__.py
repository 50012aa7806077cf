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
        # Streams of events do not end by themselves, so the end must not wait for them: after these seconds
        # they are cut. Browsers reconnect, to the next process or to another worker, and miss nothing.
        port = int(os.environ.get("PORT", "8000"))
        uvicorn.run("invoice_desk.app:app", port=port, workers=2, timeout_graceful_shutdown=3)


if __name__ == "__main__":
    main()
