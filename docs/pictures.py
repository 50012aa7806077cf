"""Take the pictures of the docs: viewer, terminal and notebook (`make pictures`). It needs Chromium."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from os import environ
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from typing import Final

import notebook_picture
import terminal_picture
import uvicorn
from page_scripts import Script, blocks_of
from playwright.sync_api import Browser, sync_playwright

from fastroai.testing import ModelServer
from fastroai.viewer import viewer

ROOT: Final = Path(__file__).parents[1]
PICTURES: Final = ROOT / "docs" / "images"
STORE: Final = ROOT / "out" / "demo" / "runs.db"
DEMO: Final = {
    "viewer-runs": "/runs",
    "viewer-run": "/runs/ticket-2",
    "viewer-step": "/runs/ticket-2?step=read",
}
LEARN: Final = {
    "learn-run": ("survive.md", 9, "runs.db", "/runs/ticket-1", 900),
    "learn-rows": ("functions-and-rows.md", 9, "rows.db", "/runs/monday", 900),
    "learn-people": ("people.md", 2, "people.db", "/people/order-1182:430b240a912e", 455),
}
"""Page, number of its blocks that are run, store, path in the viewer, and height of the picture."""
_TOKEN: Final = "only-for-these-pictures"


def main() -> None:
    """Run the demo and the pages, and take the pictures."""
    subprocess.run([sys.executable, "-m", "demo"], cwd=ROOT / "examples", check=True)
    chromium = environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with TemporaryDirectory() as folder:
        for name, (page, blocks, *_) in LEARN.items():
            run(ROOT / "docs" / "learn" / page, blocks, Path(folder, name))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            take(browser, STORE, DEMO)
            for name, (_, _, store, path, height) in LEARN.items():
                take(browser, Path(folder, name, store), {name: path}, height)
            notebook_picture.take(browser, PICTURES)
            browser.close()
    screen = terminal_picture.shown([sys.executable, "support_desk"], ROOT / "examples", rows=20, part=0.6)
    (PICTURES / "terminal.svg").write_text(terminal_picture.as_svg(screen, "python support_desk"))


def run(page: Path, blocks: int, folder: Path) -> None:
    """Run the first blocks of a page, in a new folder."""
    folder.mkdir()
    text = page.read_text(encoding="utf-8")
    with ModelServer() as server, chdir(folder):
        environ.update(server.environment())
        script = Script(page, text, server)
        for block in [*blocks_of(text)][:blocks]:
            script.run(block)


def take(browser: Browser, store: Path, pictures: dict[str, str], height: int = 900) -> None:
    """Take pictures of pages of the viewer, by name and path."""
    with serving(store) as address:
        page = browser.new_page(viewport={"width": 1200, "height": height})
        page.goto(f"{address}/?token={_TOKEN}")
        for name, path in pictures.items():
            page.goto(address + path)
            page.wait_for_load_state("load")
            page.screenshot(path=PICTURES / f"{name}.png")
        page.close()


@contextmanager
def serving(store: Path) -> Iterator[str]:
    """Serve the viewer of a store, and yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(viewer(store, token=_TOKEN), log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        serving = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        serving.start()
        while not server.started:
            sleep(0.05)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        serving.join()


if __name__ == "__main__":
    main()
