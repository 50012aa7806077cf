"""PDF files, as their format has them."""

from __future__ import annotations

from collections.abc import Sequence


def pdf(*pages: str, note: str = "", claims: int | None = None) -> bytes:
    """A PDF with a text on each page, and a note on the first. It `claims` to have so many pages."""
    count = len(pages)
    notes = f" /Annots [<< /Type /Annot /Subtype /Text /Rect [0 0 9 9] /Contents ({note}) >>]" if note else ""
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{' '.join(f'{4 + 2 * i} 0 R' for i in range(count))}] "
        f"/Count {count if claims is None else claims} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for index, text in enumerate(pages):
        stream = f"BT /F1 9 Tf 36 756 Td ({text}) Tj ET"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * index} 0 R "
            f"/Resources << /Font << /F1 3 0 R >> >>{'' if index else notes} >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    return _file(objects)


def _file(objects: Sequence[str]) -> bytes:
    body, starts = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        starts.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n".encode("latin-1")
    table = "".join(f"{start:010} 00000 n \n" for start in starts)
    size = len(objects) + 1
    end = f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R >>\n"
    return body + f"{end}startxref\n{len(body)}\n%%EOF\n".encode("latin-1")
