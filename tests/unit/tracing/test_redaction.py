"""What `set_redaction` takes, and what it does to log records, attributes and values."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import logfire
import pytest
from logfire.testing import TestExporter
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import fastroai
from fastroai.errors import ConfigurationError
from fastroai.tracing import LogfireTracer, redacted, set_redaction
from fastroai.tracing.attributes import COST_USD, TAGS
from fastroai.tracing.redaction import LOGGERS, redacted_attributes, redacted_json


@pytest.fixture(autouse=True)
def unredacted_again() -> Iterator[None]:
    yield
    set_redaction(None)


async def asynchronous(text: str) -> str:
    return text


@pytest.mark.parametrize(
    ("redact", "expected"),
    [
        ("secret", "regular expressions, in a list"),
        (b"secret", "regular expressions, in a list"),
        (7, "regular expressions, in a list"),
        ([], "None to show everything"),
        (["("], r"a regular expression: missing \), unterminated subpattern"),
        ([re.compile(b"a")], "a regular expression for texts"),
        ([7], "a regular expression for texts"),
        (asynchronous, "must not be async"),
    ],
)
def test_invalid_redactors_are_refused(redact: Any, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        set_redaction(redact)
    assert redacted("secret") == "secret"


def test_patterns_and_functions_redact_until_none_is_set() -> None:
    set_redaction(["a+", re.compile("B", re.IGNORECASE)])
    assert redacted("caab") == "c[redacted][redacted]"
    set_redaction(str.upper)
    assert redacted("caab") == "CAAB"
    set_redaction(None)
    assert redacted("caab") == "caab"


def test_every_logger_of_the_package_is_redacted() -> None:
    names = set()
    for path in Path(fastroai.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("getLogger"):
                (name,) = call.args
                if isinstance(name, ast.Constant):
                    names.add(name.value)
                else:
                    assert path.name == "redaction.py", f"{path}: give getLogger a text"
    assert names - {"fastroai.tracing"} == set(LOGGERS), "the lines of tracers are redacted before"


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records = list[logging.LogRecord]()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler, logger = Kept(), logging.getLogger("fastroai.store")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


class Unshowable:
    def __str__(self) -> str:
        raise RuntimeError("of secret")


def test_a_handler_sees_no_part_of_a_record_as_it_was(kept: Kept) -> None:
    set_redaction(["secret"])
    extra = {
        "who": "secret",
        "nested": {"secret": ("secret", {"secret"}, 1.5, None)},
        "error": ValueError("secret"),
        "unshowable": Unshowable(),
        "number": 7,
    }
    try:
        raise ValueError("of secret")
    except ValueError:
        logging.getLogger("fastroai.store").warning(
            "about %s: %d%%", "secret", 9, exc_info=True, stack_info=True, extra=extra
        )
    (record,) = kept.records
    assert record.getMessage() == "about [redacted]: 9%"
    assert record.exc_info is None
    assert "ValueError: of [redacted]" in logging.Formatter().format(record)
    known = record.__dict__
    assert known["who"] == known["error"] == known["unshowable"] == "[redacted]"
    assert known["nested"] == {"[redacted]": ["[redacted]", ["[redacted]"], 1.5, None]}
    assert known["number"] == 7
    assert known["levelname"] == "WARNING"


def test_a_message_whose_arguments_do_not_fit_is_not_shown(kept: Kept) -> None:
    set_redaction(["other"])
    logging.getLogger("fastroai.store").warning("%d lines", "secret")
    assert kept.records[0].getMessage() == "[redacted]"


def test_without_redaction_records_are_as_they_were(kept: Kept) -> None:
    set_redaction(["secret"])
    set_redaction(None)
    logging.getLogger("fastroai.store").warning("about %s", "secret")
    assert kept.records[0].args == ("secret",)
    assert not logging.getLogger("fastroai.store").filters


def test_attributes_keep_their_kinds_and_amounts_their_digits() -> None:
    set_redaction([r"\w"])
    shown = redacted_attributes(
        {"a": "b", TAGS: ("b", "-"), "n": 1, "f": 0.5, "t": True, "numbers": [1, 2], COST_USD: "0.12"}
    )
    assert shown == {
        "a": "[redacted]", TAGS: ("[redacted]", "-"), "n": 1, "f": 0.5, "t": True, "numbers": [1, 2],
        COST_USD: "0.12",
    }  # fmt: skip


def test_keys_that_are_redacted_alike_are_numbered() -> None:
    set_redaction(["[ab]@c"])
    value: Any = {"a@c": 1, "b@c": ["a@c", {"d": None}], "e": True}
    assert redacted_json(value) == {
        "[redacted]": 1,
        "[redacted] 2": ["[redacted]", {"d": None}],
        "e": True,
    }


async def test_logfire_shows_a_redacted_failure_at_the_same_level() -> None:
    exporter = TestExporter()
    instance = logfire.configure(
        local=True,
        send_to_logfire=False,
        console=False,
        metrics=False,
        additional_span_processors=[SimpleSpanProcessor(exporter)],
    )
    tracer = LogfireTracer(instance)
    for redact in (None, ["secret"]):
        set_redaction(redact)
        with pytest.raises(ValueError, match="secret"):
            async with tracer.span(f"redacts {redact}"):
                raise ValueError("secret")
    ended = [span for span in exporter.exported_spans if "logfire.level_num" in (span.attributes or {})]
    levels = {(span.attributes or {})["logfire.level_num"] for span in ended if span.events}
    assert levels == {17}
    assert len([span for span in ended if span.events]) == 2
    instance.shutdown(flush=False)
