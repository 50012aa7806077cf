"""How names stand in places, such as `write@1/inner/check`."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote


@lru_cache(maxsize=1024)
def quoted(name: str) -> str:
    """A name without `/`, `@`, `#` and what else has a meaning there."""
    return quote(name, safe=" [](),.:;+-_")
