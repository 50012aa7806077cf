"""What the notebook of the docs looks like in JupyterLab, which `make pictures` installs beside the rest."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Final

from notebook import NOTEBOOK
from playwright.sync_api import Browser, Page

JUPYTER: Final = Path(os.environ.get("JUPYTER", ".venv/jupyter/bin/jupyter")).absolute()
_SECONDS: Final = 120
_SETTINGS: Final = {"notification": {"fetchNews": "false"}}
_WITHOUT_FRAME: Final = "/doc/tree/{}?reset"


def take(browser: Browser, pictures: Path) -> None:
    """Take a picture of a run in the notebook, in the light and in the dark theme."""
    for theme in ("Light", "Dark"):
        with jupyter_lab(theme) as address:
            page = browser.new_page(viewport={"width": 1200, "height": 820})
            page.goto(address + _WITHOUT_FRAME.format(NOTEBOOK.name), timeout=_SECONDS * 1000)
            page.wait_for_selector(".jp-RenderedHTMLCommon", state="attached", timeout=_SECONDS * 1000)
            _show(page, "result.trace")
            page.screenshot(path=pictures / f"notebook-{theme.lower()}.png")
            page.close()


def _show(page: Page, code: str) -> None:
    """Move to the cell with this code. JupyterLab draws only the cells that are seen."""
    notebook = page.locator(".jp-WindowedPanel-outer, .jp-Notebook").first
    for _ in range(100):
        cell = page.locator(".jp-CodeCell").filter(has_text=code).first
        if cell.count():
            sleep(2)  # what is above may still grow
            cell.evaluate("cell => cell.scrollIntoView({block: 'start'})")
            sleep(2)
            return
        notebook.evaluate("panel => panel.scrollTop += 300")
        sleep(0.2)
    raise LookupError(f"no cell of {NOTEBOOK.name} has the code {code!r}")


@contextmanager
def jupyter_lab(theme: str) -> Iterator[str]:
    """Serve the notebook, as one that the reader trusts, and yield the address."""
    with TemporaryDirectory() as folder:
        shutil.copy(NOTEBOOK, folder)
        settings = Path(folder, ".settings", "@jupyterlab", "apputils-extension")
        settings.mkdir(parents=True)
        for name, values in {**_SETTINGS, "themes": {"theme": f"JupyterLab {theme}"}}.items():
            (settings / f"{name}.jupyterlab-settings").write_text(json.dumps(values))
        environment = {
            **os.environ,
            "JUPYTERLAB_SETTINGS_DIR": f"{folder}/.settings",
            "JUPYTER_DATA_DIR": f"{folder}/.data",
        }
        jupyter = [str(JUPYTER)]
        subprocess.run([*jupyter, "trust", f"{folder}/{NOTEBOOK.name}"], env=environment, check=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        options = ["--allow-root", "--no-browser", f"--port={port}", "--IdentityProvider.token="]
        server = subprocess.Popen(
            [*jupyter, "lab", *options, f"--ServerApp.root_dir={folder}"],
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield _answering(f"http://127.0.0.1:{port}")
        finally:
            server.terminate()
            server.wait()


def _answering(address: str) -> str:
    until = monotonic() + _SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{address}/api").close()
            return address
        except OSError:
            if monotonic() > until:
                raise
            sleep(0.5)
