"""What is printed, without what differs at each run: times, durations, sizes, ports and random ids."""

from __future__ import annotations

import re

VARYING = {
    r" that waited \S+ s for budgets and limits": "",
    r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])": "<id>",
    r"\[[0-9a-f]{8}\]": "[<id>]",
    r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?! UTC|\+)": "<time>",
    r" *\+?\b(\d[\d,.]* ms|\d+\.\d+ s|\d+ s(?= left))\b": " <duration>",
    r"[\d,]+ bytes as it is stored": "<size> as it is stored",
    r"127\.0\.0\.1:\d+": "127.0.0.1:<port>",
    r"server\.port=\d+": "server.port=<port>",
    r"(?m)^requests wait for .*\n": "",
}
"""Patterns, and what stands for them. Dates with their zone are those that a page sets.

The first and the last say that something has taken long, so on slow machines alone.
"""


def without_what_varies(text: str) -> str:
    """Replace what differs at each run. If there is something, columns may be as wide as they like."""
    stable = text
    for pattern, name in VARYING.items():
        stable = re.sub(pattern, name, stable)
    return text if stable == text else re.sub(r"(?<=\S) {2,}", "  ", stable)
