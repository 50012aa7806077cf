"""What a program shows in a terminal, as a drawing: it runs in a pseudo-terminal."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyte
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

COLUMNS: Final = 92
_NAMES: Final = {"brown": "yellow", "default": "default"}
"""Colours that pyte and rich call by other names."""


def shown(command: Sequence[str], folder: Path, rows: int, part: float) -> pyte.Screen:
    """Run a program, and return the screen after a part of its writes: 0.5 is the middle, 1 the end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(command, cwd=folder, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    written = list[bytes]()
    while chunk := _read(ours):
        written.append(chunk)
    os.close(ours)
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, command)
    screen = pyte.Screen(COLUMNS, rows)
    pyte.ByteStream(screen).feed(b"".join(written[: round(len(written) * part)]))
    return screen


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when the program has ended
        return b""


def as_svg(screen: pyte.Screen, title: str) -> str:
    """Return a drawing of a screen."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    lines = [_line(screen, row) for row in range(screen.lines)]
    while lines and not lines[-1].plain.strip():
        lines.pop()
    console.print(Text("\n").join(lines))
    return console.export_svg(title=title, theme=DIMMED_MONOKAI, unique_id="terminal")


def _line(screen: pyte.Screen, row: int) -> Text:
    line = Text()
    for column in range(screen.columns):
        cell = screen.buffer[row][column]
        colour = _NAMES.get(cell.fg, cell.fg)
        if len(colour) == 6 and all(digit in "0123456789abcdef" for digit in colour):
            colour = f"#{colour}"
        line.append(cell.data, Style(color=colour.replace("bright", "bright_"), bold=cell.bold))
    line.rstrip()
    return line
