"""The table of what first requests need says what is measured."""

from pathlib import Path

import fastroai
from benchmarks.first_requests import markdown

PAGE = Path(fastroai.__file__).parents[1] / "docs" / "reference" / "bounds.md"


async def test_the_table_of_first_requests_is_the_one_that_is_measured() -> None:
    measured = await markdown()
    assert measured in PAGE.read_text(), f"put these lines into {PAGE.name}:\n{measured}"
