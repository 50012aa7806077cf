"""Width and height of an image, read from the first bytes of its file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fastroai.usage.facts.images import Size


def image_size(data: bytes, media_type: str) -> Size | None:
    """Return the size of a PNG, JPEG, GIF or WebP image; `None` if it cannot be told.

    The size is read where decoders read it. A file that is not of its media type has no size.
    """
    reader = _READERS.get(media_type)
    try:
        size = None if reader is None else reader(data)
    except IndexError:  # the file is shorter than it should be
        return None
    return size if size is not None and size.width > 0 and size.height > 0 else None


def _png(data: bytes) -> Size | None:
    """https://www.w3.org/TR/png-3/#11IHDR: the first chunk, after a signature of 8 bytes."""
    if data[:8] != b"\x89PNG\r\n\x1a\n" or data[12:16] != b"IHDR" or len(data) < 24:
        return None
    return Size(int.from_bytes(data[16:20]), int.from_bytes(data[20:24]))


def _gif(data: bytes) -> Size | None:
    """https://www.w3.org/Graphics/GIF/spec-gif89a.txt: the logical screen, after a signature of 6 bytes."""
    if data[:6] not in (b"GIF87a", b"GIF89a") or len(data) < 10:
        return None
    return Size(int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little"))


_NO_FRAMES: Final = frozenset({0xC4, 0xC8, 0xCC})
"""Markers of JPEG in the range of frame markers that begin no frame: tables, and a reserved one."""


def _jpeg(data: bytes) -> Size | None:
    """https://www.w3.org/Graphics/JPEG/itu-t81.pdf, B.1 and B.2.2: the first frame, after other segments."""
    if data[:2] != b"\xff\xd8":
        return None
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # a byte to fill up
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in _NO_FRAMES:
            if len(data) < at + 9:
                return None
            return Size(int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7]))
        elif marker == 0x01 or 0xD0 <= marker <= 0xDA:  # no segments, the end, or the picture without a frame
            return None
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return None


def _webp(data: bytes) -> Size | None:
    """https://developers.google.com/speed/webp/docs/riff_container: the first chunk, of three kinds."""
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP" or len(data) < 30:
        return None
    kind = data[12:16]
    if kind == b"VP8X":
        return Size(1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little"))
    if kind == b"VP8L" and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        return Size(1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = int.from_bytes(data[26:28], "little"), int.from_bytes(data[28:30], "little")
        return Size(width & 0x3FFF, height & 0x3FFF)
    return None


_READERS: Final[dict[str, Callable[[bytes], Size | None]]] = {
    "image/png": _png,
    "image/jpeg": _jpeg,
    "image/gif": _gif,
    "image/webp": _webp,
}
