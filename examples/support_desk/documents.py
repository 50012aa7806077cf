"""From a folder of files to tickets: read, decode, clean, shorten."""

import codecs
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = (".txt", ".text", ".md", ".eml")
"""What counts as a text file in a folder."""

LONGEST = 12_000
"""Characters of a ticket that are sent to a model. Of a longer one, the beginning and the end."""

_UNICODE_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROLS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff]")
"""Terminal sequences, such as colours, and control characters other than tab and end of line."""


class FolderError(Exception):
    """A folder that cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Document:
    """A file as it was found."""

    name: str
    content: bytes

    @property
    def title(self) -> str:
        """Its name as it is shown."""
        return printable(self.name.removesuffix(".txt"))


@dataclass(frozen=True)
class Ticket:
    """A document as the agents get it."""

    text: str
    """Empty if there is nothing to answer."""
    encoding: str
    notes: tuple[str, ...] = ()
    """What was done to the text that a reader should know of."""


def read_folder(folder: Path) -> list[Document]:
    """The text files of a folder, by name. Hidden files and subfolders are left alone.

    Raises:
        FolderError: no such folder, no text file in it, or one that cannot be read.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if _is_text_file(path))
    except OSError as error:
        raise FolderError(f"cannot read the folder {str(folder)!r}: {error.strerror}") from error
    if not paths:
        raise FolderError(
            f"no text file in {str(folder)!r}; expected files that end in {', '.join(SUFFIXES)}"
        )
    return [Document(path.name, _read(path)) for path in paths]


def prepare(document: Document) -> Ticket:
    """The text of a document: whatever its encoding, no control characters, about `LONGEST` at most."""
    text, encoding = _decode(document.content)
    notes = [] if encoding in ("utf-8", "utf-8-sig") else [f"read as {encoding}"]
    if unreadable := text.count("\ufffd"):
        notes.append(f"unreadable characters: {unreadable}")
    text, controls = _CONTROLS.subn("", text.replace("\r\n", "\n").replace("\r", "\n"))
    text = text.strip()
    if controls and text:
        notes.append(f"control sequences removed: {controls}")
    if (left_out := len(text) - LONGEST) > 0:
        tail = LONGEST // 4
        gap = f"\n\n[... {left_out:,} characters left out here ...]\n\n"
        text = text[: LONGEST - tail] + gap + text[-tail:]
        notes.append(f"shortened by {left_out:,} characters")
    return Ticket(text, encoding, tuple(notes))


def printable(text: str) -> str:
    """A line that may go to a terminal: file names, and what models say, could steer it otherwise."""
    return "".join("?" if unicodedata.category(char) in ("Cc", "Cs") else char for char in text)


def _decode(content: bytes) -> tuple[str, str]:
    """By its byte order mark, else UTF-8, else Windows' of Western Europe, which fits nearly anything."""
    for mark, encoding in _UNICODE_MARKS:
        if content.startswith(mark):
            return content.decode(encoding, errors="replace"), encoding
    try:
        return content.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return content.decode("cp1252", errors="replace"), "cp1252"


def _is_text_file(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FolderError(
            f"cannot read {str(path)!r}: {error.strerror}; move it away or make it readable"
        ) from error
