"""A virtual environment with a wheel, and with nothing else but what its metadata demands.

The distributions that it demands are linked from the environment of the tests, so that nothing is fetched.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, PathDistribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

Demanded = tuple[str, frozenset[str]]
"""The name of a distribution, and the extras that are demanded of it."""


class EmptyEnvironment:
    """A virtual environment with one wheel, and beside it what each extra brings."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        self.environment = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")
        }
        venv.create(folder, with_pip=False, symlinks=True)
        self.python = folder / "bin" / "python"
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "--disable-pip-version-check"]
        install = ["install", "--quiet", "--no-index", "--no-deps", str(wheel)]
        subprocess.run([*pip, *install], check=True, timeout=120, env=self.environment)
        (self.site,) = folder.glob("lib/python*/site-packages")
        (metadata,) = self.site.glob("*.dist-info")
        self.distribution: Distribution = PathDistribution(metadata)
        self._core = dict(_closure(self.distribution, frozenset()))
        for one in self._core.values():
            _link(one, self.site)

    def _with(self, extra: str) -> Path:
        """The folder of what an extra brings besides."""
        folder = self.folder / "extras" / extra
        if not folder.exists():
            brought = dict(_closure(self.distribution, frozenset({extra})))
            for name in brought.keys() - self._core.keys():
                _link(brought[name], folder)
        return folder

    def run(
        self, *command: str, cwd: Path, extra: str | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment in a folder without the source tree."""
        environment = self.environment
        if extra is not None:
            environment = {**environment, "PYTHONPATH": str(self._with(extra))}
        return subprocess.run(
            [str(self.folder / "bin" / command[0]), *command[1:]],
            cwd=cwd,
            input=stdin,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )


def _closure(root: Distribution, extras: frozenset[str]) -> Iterator[tuple[str, Distribution]]:
    """The distributions that are demanded, directly or not, without the first."""
    first = canonicalize_name(root.name)
    todo: list[tuple[Distribution, frozenset[str]]] = [(root, extras)]
    seen: set[Demanded] = set()
    while todo:
        found, wanted = todo.pop()
        for requirement in _requirements(found.requires or (), wanted):
            name = canonicalize_name(requirement.name)
            one = (name, frozenset(requirement.extras))
            if one in seen:
                continue
            seen.add(one)
            needed = root if name == first else _installed(requirement)
            todo.append((needed, one[1]))
            if name != first:
                yield name, needed


def _requirements(lines: Iterable[str], extras: frozenset[str]) -> Iterator[Requirement]:
    for line in lines:
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def _installed(requirement: Requirement) -> Distribution:
    try:
        found = distribution(requirement.name)
    except PackageNotFoundError as error:
        raise AssertionError(f"the tests do not install {requirement}") from error
    assert requirement.specifier.contains(found.version, prereleases=True), (
        f"{found.version} for {requirement}"
    )
    return found


def _link(found: Distribution, site: Path) -> None:
    for file in found.files or ():
        if ".." in file.parts:  # commands, whose first line names another Python
            continue
        link = site / file
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(str(file.locate()))
