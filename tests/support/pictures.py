"""The beginnings of image files of any size, as their formats have them."""

from __future__ import annotations

import struct
import zlib


def png(width: int, height: int) -> bytes:
    """A PNG file; a whole one, where it is small."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"" if width * height > 1_000_000 else (b"\0" + b"\0" * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def gif(width: int, height: int) -> bytes:
    """A GIF file without a picture."""
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + b";"


def jpeg(width: int, height: int, *, thumbnail: tuple[int, int] = (160, 120)) -> bytes:
    """A JPEG file, with another one as a thumbnail in its metadata, as cameras write them."""
    inside = b"Exif\0\0" + _jpeg(*thumbnail)
    exif = b"\xff\xe1" + struct.pack(">H", len(inside) + 2) + inside
    return b"\xff\xd8" + exif + b"\xff" + _jpeg(width, height)[2:]


def _jpeg(width: int, height: int) -> bytes:
    table = b"\xff\xc4" + struct.pack(">H", 4) + b"\0\0"
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\1\x11\0"
    return b"\xff\xd8" + table + frame + b"\xff\xda" + b"\0" * 20 + b"\xff\xd9"


def webp(width: int, height: int, kind: str = "VP8 ") -> bytes:
    """A WebP file: `VP8 ` is lossy, `VP8L` lossless, `VP8X` extended."""
    data = {
        "VP8 ": b"\x30\1\0\x9d\x01\x2a" + struct.pack("<HH", width, height),
        "VP8L": b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14),
        "VP8X": b"\0\0\0\0" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"),
    }[kind] + b"\0" * 12
    chunk = kind.encode() + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk
