import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pictures import gif, jpeg, png, webp

from fastroai.usage.bounding.image_sizes import image_size
from fastroai.usage.facts.images import Size

sides = st.integers(1, 16_000)


@given(sides, sides, st.sampled_from(["VP8 ", "VP8L", "VP8X"]))
def test_the_size_is_read_from_the_file(width: int, height: int, kind: str) -> None:
    size = Size(width, height)
    assert image_size(gif(width, height), "image/gif") == size
    assert image_size(jpeg(width, height), "image/jpeg") == size
    assert image_size(webp(width, height, kind), "image/webp") == size


@given(sides, sides)
def test_the_size_of_a_png_is_that_of_its_header(width: int, height: int) -> None:
    assert image_size(png(width, height), "image/png") == Size(width, height)


def test_the_thumbnail_in_a_photograph_is_not_its_size() -> None:
    assert image_size(jpeg(4_000, 3_000, thumbnail=(160, 120)), "image/jpeg") == Size(4_000, 3_000)


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (png(10, 10), "image/jpeg"),
        (jpeg(10, 10), "image/png"),
        (gif(10, 10), "image/webp"),
        (b"\x89PNG\r\n\x1a\n" + b"0" * 50_000, "image/png"),
        (png(0, 10), "image/png"),
        (b"\xff\xd8\xff\xd9", "image/jpeg"),
        (b"\xff\xd8" + b"\xff\xe1\xff\xff", "image/jpeg"),
        (b"\xff\xd8no marker", "image/jpeg"),
        (b"RIFF\0\0\0\0WEBPVP9 " + b"\0" * 20, "image/webp"),
        (b"", "image/gif"),
        (b"<svg/>", "image/svg+xml"),
    ],
)
def test_what_cannot_be_read_has_no_size(data: bytes, media_type: str) -> None:
    assert image_size(data, media_type) is None


@given(st.binary(max_size=200), st.sampled_from(["image/png", "image/jpeg", "image/gif", "image/webp"]))
def test_no_file_breaks_it(data: bytes, media_type: str) -> None:
    for begun in (b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF", b"GIF89a"):
        image_size(begun + data, media_type)


@given(sides, sides, st.data())
def test_a_file_that_is_cut_has_its_size_or_none(width: int, height: int, data: st.DataObject) -> None:
    whole = jpeg(width, height)
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    assert image_size(cut, "image/jpeg") in (None, Size(width, height))
