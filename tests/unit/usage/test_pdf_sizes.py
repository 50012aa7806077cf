import sys
from io import BytesIO

import pytest
from pypdf import PdfWriter
from support.documents import pdf

from fastroai.usage.bounding.pdf_sizes import PdfSizes, read_pdf
from fastroai.usage.facts.documents import PdfSize


def test_each_page_has_the_bytes_of_its_text() -> None:
    assert read_pdf(pdf("Hello", "", "x" * 5_000)) == PdfSize((5, 0, 5_000))


def test_notes_on_a_page_are_text_of_it() -> None:
    assert read_pdf(pdf("Hello", note="see below")) == PdfSize((14,))


@pytest.mark.parametrize("claims", [0, 1, 900])
def test_pages_are_counted_whatever_the_file_says_of_their_number(claims: int) -> None:
    assert read_pdf(pdf("a", "b", "c", claims=claims)) == PdfSize((1, 1, 1))


def test_what_cannot_be_read_has_no_size() -> None:
    locked = PdfWriter()
    locked.append(BytesIO(pdf("Hello")))
    locked.encrypt("secret", algorithm="RC4-128")
    file = BytesIO()
    locked.write(file)
    for data in (b"", b"%PDF-1.4", b"GIF89a", pdf("Hello")[:200], file.getvalue()):
        assert read_pdf(data) is None


@pytest.mark.slow
def test_what_no_provider_takes_has_no_size() -> None:
    assert read_pdf(pdf(*["x"] * 1_000)) is not None
    assert read_pdf(pdf(*["x"] * 1_001)) is None
    assert read_pdf(pdf("x" * 2_000_001, "x" * 2_000_001)) is None


def test_without_pypdf_there_is_no_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    assert read_pdf(pdf("Hello")) is None


def test_the_sizes_that_were_read_last_are_kept() -> None:
    sizes = PdfSizes(kept=2)
    first, second, third, damaged = pdf("1"), pdf("22"), pdf("333"), b"%PDF"
    assert not sizes.is_read(first)
    sizes.prepare(first)
    sizes.prepare(second)
    assert (sizes.size(first), sizes.is_read(first)) == (PdfSize((1,)), True)
    sizes.prepare(third)
    assert [sizes.size(one) for one in (first, second, third)] == [PdfSize((1,)), None, PdfSize((3,))]
    sizes.prepare(damaged)
    assert (sizes.size(damaged), sizes.is_read(damaged)) == (None, True)
