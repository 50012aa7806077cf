"""What is declared for calls, as hashes: what has changed of it, and what a run is to do about that."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

from fastroai.errors import ConfigurationError

OnChanged: TypeAlias = Literal["ask", "keep", "fail"]
"""What to do with an answer on record whose call is declared differently now."""

_BYTES: Final = 6


def check_on_changed(on_changed: object) -> None:
    """Refuse an invalid `on_changed`. Raises `ConfigurationError`."""
    if on_changed not in get_args(OnChanged):
        raise ConfigurationError("on_changed", on_changed, "'ask', 'keep' or 'fail'")


def digest(*parts: str | bytes) -> str:
    """Return a hash of texts, 12 hex digits. Their order matters."""
    # Python's own BLAKE2: OpenSSL, where SHA-256 comes from, takes longer to begin than to hash a prompt.
    hashed = hashlib.blake2b(digest_size=_BYTES)
    for part in parts:
        text = part.encode(errors="surrogatepass") if isinstance(part, str) else part
        hashed.update(b"%d:" % len(text))
        hashed.update(text)
    return hashed.hexdigest()


def changed_parts(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of what has changed. A part that either side does not know counts as unchanged."""
    return tuple([name for name, known in before.items() if now.get(name, known) != known])
