"""Look at every page of the built site in Chromium: `make browser-check`.

At both widths, no page may be wider than its window, and axe must find nothing. In the wide window, no code
may be cut off. Every internal link must lead to a page and an element. Lighthouse must give 100 for
accessibility and best practices. `build/browser-check` keeps a picture of each page at each width.
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from os import environ
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import unquote, urldefrag, urljoin

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, sync_playwright

ROOT: Final = Path(__file__).parents[1]
PICTURES: Final = ROOT / "build" / "browser-check"
LIGHTHOUSE: Final = ROOT / "build" / "lighthouse"
WIDE, NARROW = 1400, 420
VERSION: Final = "latest"
"""The folder of the site under its address, as mike publishes it."""

_MOST_MS: Final = 300_000

_TOO_WIDE: Final = """() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    const wide = [...document.querySelectorAll("body *")].filter(
        (one) => one.getBoundingClientRect().right > width + 1 && one.checkVisibility());
    return wide.slice(0, 3).map((one) => one.outerHTML.slice(0, 120));
}"""
_CUT: Final = """() => [...document.querySelectorAll("pre > code")]
    .filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1)
    .map((one) => one.textContent.trim().split("\\n").reduce((a, b) => a.length > b.length ? a : b))"""
_LINKS: Final = """() => [...document.querySelectorAll("a[href]")].map((one) => one.href)"""
_IDS: Final = """() => [...document.querySelectorAll("[id], a[name]")].map((one) => one.id || one.name)"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Write nothing: the check reports what is missing."""


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve a built site as mike publishes it: with its version in the path, beside a list of versions."""
    with TemporaryDirectory() as folder:
        Path(folder, VERSION).symlink_to(site)
        versions = [{"version": VERSION, "title": VERSION, "aliases": []}]
        Path(folder, "versions.json").write_text(json.dumps(versions), encoding="utf-8")
        handler = functools.partial(_Quiet, directory=folder)
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/{VERSION}/"
        finally:
            server.shutdown()


class Check:
    """What is found on the pages of a site."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.problems = 0
        self._links: dict[str, set[str]] = {}
        self._ids: dict[str, set[str]] = {}
        self._axe = Axe()

    def found(self, problem: str) -> None:
        """Count and print a problem."""
        self.problems += 1
        print(problem, flush=True)

    def look_at(self, page: Page, name: str, width: int) -> None:
        """Look at one page in a window of one width."""

        def found(problem: str) -> None:
            self.found(f"{name or 'index'} at {width}: {problem}")

        page.goto(self.address + name, wait_until="load")
        for element in page.evaluate(_TOO_WIDE):
            found(f"wider than the window: {element}")
        for violation in self._axe.run(page).response["violations"]:
            targets = ", ".join(str(node["target"][0]) for node in violation["nodes"][:3])
            found(f"axe: {violation['id']}: {violation['help']}: {targets}")
        if width == WIDE:
            for line in page.evaluate(_CUT):
                found(f"code is cut off: {line!r}")
            self._links[name] = {link for link in page.evaluate(_LINKS) if link.startswith(self.address)}
            self._ids[page.url] = set(page.evaluate(_IDS))
        picture = PICTURES / str(width) / f"{name.strip('/').replace('/', '-') or 'index'}.png"
        page.screenshot(path=picture, full_page=True)

    def follow_links(self, site: Path) -> None:
        """Follow the links of the pages that were looked at, within the site."""
        for name, links in self._links.items():
            for link in links:
                url, anchor = urldefrag(urljoin(self.address, link))
                file = site / unquote(url.removeprefix(self.address).partition("?")[0])
                if not (file.is_file() or (file / "index.html").is_file()):
                    self.found(f"{name}: {link} leads nowhere")
                elif anchor and url in self._ids and unquote(anchor) not in self._ids[url]:
                    self.found(f"{name}: {link}: the page has no such element")

    def ask_lighthouse(self, name: str, chromium: str) -> None:
        """Ask Lighthouse about a page."""
        command = [str(LIGHTHOUSE / "node_modules" / ".bin" / "lighthouse"), self.address + name, "--quiet"]
        options = ["--only-categories=accessibility,best-practices", "--output=json"]
        flags = "--chrome-flags=--headless --no-sandbox"
        environment = {**environ, "CHROME_PATH": chromium}
        done = subprocess.run([*command, *options, flags], capture_output=True, text=True, env=environment)
        if done.returncode:
            self.found(f"{name}: Lighthouse failed: {done.stderr.strip()[-300:]}")
            return
        report = json.loads(done.stdout)
        for category in report["categories"].values():
            if category["score"] != 1:
                wrong = [
                    f"{audit['id']} ({report['audits'][audit['id']]['title']})"
                    for audit in category["auditRefs"]
                    if audit["weight"] and report["audits"][audit["id"]]["score"] == 0
                ]
                self.found(f"{name}: Lighthouse: {category['id']} {category['score']}: {wrong}")


def main() -> None:
    """Check the site, and exit with 1 if there are problems."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("--pages", default="", help="only pages whose path begins with this")
    parser.add_argument("--no-lighthouse", action="store_true")
    options = parser.parse_args()
    site: Path = options.site.resolve()
    chromium = environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("Chromium is not installed: make browser installs it")
    names = sorted(
        str(file.parent.relative_to(site)).replace(".", "", 1) + "/" * (file.parent != site)
        for file in site.rglob("index.html")
        if "http-equiv" not in file.read_text(encoding="utf-8")[:1000]  # pages that moved
    )
    names = [name for name in names if name.startswith(options.pages)]
    shutil.rmtree(PICTURES, ignore_errors=True)
    for width in (WIDE, NARROW):
        (PICTURES / str(width)).mkdir(parents=True)
    with served(site) as address, sync_playwright() as playwright:
        check = Check(address)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for width in (WIDE, NARROW):
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.set_default_timeout(_MOST_MS)
            page.on("pageerror", lambda error: check.found(f"script: {error}"))
            for name in names:
                check.look_at(page, name, width)
            page.close()
        browser.close()
        if not options.pages:
            check.follow_links(site)
        if not options.no_lighthouse:
            for name in names:
                check.ask_lighthouse(name, chromium)
    print(f"{len(names)} pages, {check.problems} problems")
    sys.exit(bool(check.problems))


if __name__ == "__main__":
    main()
