"""Places in a run, such as `write@1/inner/check`: names of steps and pipelines, quoted, with attempts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]*")
"""Names in which nothing is quoted, which is seen faster than it is done."""


@lru_cache(maxsize=1024)
def quoted(name: str) -> str:
    """Return a name with `/`, `@`, `#` and other characters quoted that have a meaning in places."""
    return name if _PLAIN.fullmatch(name) else quote(name, safe=" [](),.:;+-_")


def split_attempt(place: str) -> tuple[str, int | None]:
    """Return the step of a place, and the attempt, or `None` if the place is a step without an attempt."""
    step, at, attempt = place.rpartition("@")
    return (step, int(attempt)) if at and attempt.isdecimal() else (place, None)


def attempt_around(place: str) -> str | None:
    """Return the attempt around a nested step: `write@1` for `write@1/inner/check`; `None` if outermost."""
    around, _, _ = place.rpartition("/")
    while around and split_attempt(around)[1] is None:
        around, _, _ = around.rpartition("/")
    return around or None


def step_name(place: str) -> str:
    """Return the id of the step, as it was given."""
    last = split_attempt(place)[0].rpartition("/")[2]
    return unquote(last.partition("#")[0])


def without_visit(place: str) -> str:
    """Return the place of a step without the number of the visit: `write@1/inner/check` for `…/check#2`."""
    outer, slash, step = place.rpartition("/")
    return f"{outer}{slash}{step.partition('#')[0]}"


def without_attempts(place: str) -> str:
    """Return a place without its attempts, the same for all of them: `write/inner/check`."""
    return "/".join(split_attempt(part)[0] for part in place.split("/"))


def is_in(place: str, outer: str) -> bool:
    """Return whether a place is `outer`, an attempt at it, or beneath it."""
    return place == outer or place.startswith((f"{outer}@", f"{outer}/"))


def outwards(place: str) -> Iterator[str]:
    """Yield a place, the same without its attempt, and so each place around it."""
    while place:
        yield place
        yield split_attempt(place)[0]
        place = place.rpartition("/")[0]
