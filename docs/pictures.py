"""Take the screenshots of the docs anew, from the runs of the demo: `make pictures`. It needs Chromium."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
from os import environ
from pathlib import Path
from time import sleep
from typing import Final

import uvicorn
from playwright.sync_api import sync_playwright

from fastroai.viewer import viewer

ROOT: Final = Path(__file__).parents[1]
STORE: Final = ROOT / "out" / "demo" / "runs.db"
PICTURES: Final = {
    "viewer-runs": "/runs",
    "viewer-run": "/runs/ticket-2",
    "viewer-step": "/runs/ticket-2?step=read",
}
_TOKEN: Final = "only-for-these-pictures"


def main() -> None:
    """Run the demo, serve the viewer, and take a picture of each page."""
    subprocess.run([sys.executable, "-m", "demo"], cwd=ROOT / "examples", check=True)
    chromium = environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(viewer(STORE, token=_TOKEN), log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
        while not server.started:
            sleep(0.05)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1200, "height": 900})
            page.goto(f"{address}/?token={_TOKEN}")
            for name, path in PICTURES.items():
                page.goto(address + path)
                page.wait_for_load_state("load")
                page.screenshot(path=ROOT / "docs" / "images" / f"{name}.png")
            browser.close()
        server.should_exit = True


if __name__ == "__main__":
    main()
