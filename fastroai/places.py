"""Places in a run, such as `write@1/inner/check`: names of steps and pipelines, quoted, with attempts."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote, unquote


@lru_cache(maxsize=1024)
def quoted(name: str) -> str:
    """A name without `/`, `@`, `#` and what else has a meaning there."""
    return quote(name, safe=" [](),.:;+-_")


def split_attempt(place: str) -> tuple[str, int | None]:
    """A step and the attempt at it; `None` where the place is the step whatever the attempt."""
    step, at, attempt = place.rpartition("@")
    return (step, int(attempt)) if at and attempt.isdecimal() else (place, None)


def attempt_around(place: str) -> str | None:
    """The attempt that a nested step is in: `write@1` for `write@1/inner/check`. `None` for the outermost."""
    around, _, _ = place.rpartition("/")
    while around and split_attempt(around)[1] is None:
        around, _, _ = around.rpartition("/")
    return around or None


def step_name(place: str) -> str:
    """The id of the step, as it was given."""
    last = split_attempt(place)[0].rpartition("/")[2]
    return unquote(last.partition("#")[0])


def without_attempts(place: str) -> str:
    """The same for every attempt: `write/inner/check`."""
    return "/".join(split_attempt(part)[0] for part in place.split("/"))


def is_in(place: str, outer: str) -> bool:
    """Whether a place is another, or an attempt at it, or beneath it."""
    return place == outer or place.startswith((f"{outer}@", f"{outer}/"))
