"""Durations as text for people."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Return a duration, given in seconds, as text, such as `340 ms`, `12.5 s` or `1:04:09`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
