"""The templates, and how values look in them. Values are escaped; none is ever markup."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fastroai.plain_text import plain
from fastroai.store.reading.history import RunSummary
from fastroai.store.record.payloads import masked
from fastroai.tracing.redaction import redacted
from fastroai.usage import format_cost
from fastroai.viewer.streams import version_of

_TEMPLATES: Final = Path(__file__).parent / "templates"
_SEALED: Final = re.compile(r'\{\s*"\$sealed":\s*"[^"]*"\s*\}')
"""A value that went through a codec, as JSON."""
_HASH: Final = re.compile(r"\b[0-9a-f]{64}\b")
_LONGEST: Final = 20_000
"""Most characters of one value on a page."""


def environment() -> Environment:
    """Return the environment of the templates."""
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["safe_part"] = Markup  # of what these templates have made already
    made.filters.update(
        key=version_of,
        asked=asked,
        redacted=redacted,
        hashes=hashes,
        shown=shown,
        short=short,
        cost=format_cost,
        number=number,
        moment=moment,
        iso=iso,
        took=took,
        tokens=tokens,
        whole_seconds=whole_seconds,
    )
    return made


def shown(value: object, limit: int = _LONGEST) -> str:
    """Return a value of a run as text: JSON, or the text itself, without control characters and bounded."""
    text = _text(value, indent=2)
    if len(text) > limit:
        return f"{plain(text[:limit])}\n… {len(text) - limit:,} more characters"
    return plain(text)


def short(value: object, limit: int = 80) -> str:
    """Return the beginning of a value, on one line."""
    text = _text(value)
    line = " ".join(plain(text[: 4 * limit]).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def asked(question: object) -> object:
    """Return what a question says to a person: of a gate, what it decides."""
    intent = question.get("intent") if isinstance(question, Mapping) else None
    return intent or question


def hashes(text: str) -> str:
    """Return a text with the beginnings of the hashes in it: that they differ is all that they say."""
    return _HASH.sub(lambda found: f"{found[0][:8]}…", text)


def _text(value: object, indent: int | None = None) -> str:
    """Return a value as JSON, or the text itself, with a word in place of what is still encrypted."""
    if isinstance(value, str):
        return masked(value)
    told = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    return masked(_SEALED.sub('"(sealed)"', told))


def number(count: int) -> str:
    """Return a count with commas."""
    return f"{count:,}"


def tokens(run: RunSummary) -> str:
    """Return the tokens that a run has used, as far as they are known."""
    used = number(run.input_tokens + run.output_tokens)
    if run.counts_complete:
        return used
    return f"at least {used}" if run.input_tokens or run.output_tokens else "unknown"


def whole_seconds(length: timedelta | None) -> timedelta | None:
    """Return a duration in whole seconds, so that a list with running runs changes once a second."""
    return None if length is None else timedelta(seconds=int(length.total_seconds()))


def moment(at: datetime | None) -> str:
    """Return a time, in UTC."""
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def iso(at: datetime | None) -> str:
    """Return a time as HTML has it."""
    return "" if at is None else at.astimezone(UTC).isoformat(timespec="seconds")


def took(length: timedelta | None) -> str:
    """Return a duration."""
    if length is None:
        return ""
    seconds = length.total_seconds()
    if seconds < 0.001:
        return "< 1 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
