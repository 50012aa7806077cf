"""Which fields of facts a codec seals."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from fastroai.records import RequestRecord
from fastroai.runtime.facts import AnyFact, EdgeFacts, Fact, FailureFacts, RequestPlace, Wait
from fastroai.store.unsealing import NAMES, PAYLOADS, TEXTS

FREE = ("Any", "JsonValue", "Mapping[str, Any]")
HANDLED_ALONE = {"inputs", "question", "definition"}


@pytest.mark.parametrize("fact", get_args(AnyFact))
def test_every_field_with_a_value_of_a_user_is_sealed(fact: type[Fact]) -> None:
    free = {one.name for one in fields(fact) if one.type in FREE}
    assert free - HANDLED_ALONE == set(PAYLOADS.get(fact, ()))


OF_PROGRAMS = {
    *("run_id", "forked_from", "format", "id", "kind"),
    *("step_id", "place", "part", "branch", "cause", "resume_at", "target", "budget_of"),  # ids of steps
    *("name", "wait", "waits"),  # names of questions and messages, by which they are answered and sent
    *("error_type", "failure_class", "when"),
    # What spending is reported by.
    *("model", "provider", "unpriced_units", "units", "tools", "agent", "variant", "tags", "tenant"),
    *("response_model", "response_id", "finish_reason"),
}
"""Fields with texts by which runs are found and spending is reported; the guide names them."""


@pytest.mark.parametrize(
    "part", [*get_args(AnyFact), FailureFacts, EdgeFacts, Wait, RequestPlace, RequestRecord]
)
def test_every_field_with_a_text_is_sealed_or_is_known_to_be_of_the_program(part: type[Any]) -> None:
    sealed = {*TEXTS.get(part, ()), *NAMES.get(part, ()), *PAYLOADS.get(part, ())}
    kinds = get_type_hints(part)
    texts = {one.name for one in fields(part) if _holds_text(kinds[one.name])}
    schemas = {one for one in texts if one.endswith("_schema")}
    live, numbers = {"raised", "spent_in", "written", "asked"}, {"used", "tokens"}
    assert texts - sealed - schemas - live - numbers - HANDLED_ALONE - {"options"} <= OF_PROGRAMS


def _holds_text(kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return False
    if kind is str or kind is Any or (isinstance(kind, type) and is_dataclass(kind)):
        return True
    return any(_holds_text(one) for one in get_args(kind))
