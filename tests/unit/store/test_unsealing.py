"""What the data in each field of a fact is, and that a codec seals it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from pydantic import JsonValue
from support.declared_facts import FACTS

from fastroai.data_kinds import DataKind
from fastroai.graphs.facts import EdgeFacts, ResolvedEdge
from fastroai.records import RequestRecord
from fastroai.runtime.fact_base import Fact, FailureFacts
from fastroai.runtime.facts import RequestPlace, Wait
from fastroai.runtime.retrying.retry import RetriesUsed
from fastroai.store.record.entries import entry_in_store, entry_to_store
from fastroai.store.record.unsealing import seal_payloads, seal_texts, unseal_entry

LIVE = {"raised", "spent_in", "written", "asked"}
"""Fields that only the process of the run has."""


class Backwards:
    """A codec that anybody can read, if they look twice."""

    def encode(self, payload: bytes) -> bytes:
        return payload[::-1]

    def decode(self, payload: bytes) -> bytes:
        return payload[::-1]


def free_of_kind(hint: Any) -> bool:
    """Whether a type can hold anything, and no annotation says what that is."""
    if get_origin(hint) is Annotated:
        return not any(isinstance(one, DataKind) for one in hint.__metadata__) and free_of_kind(
            get_args(hint)[0]
        )
    return hint is Any or hint is JsonValue or any(map(free_of_kind, get_args(hint)))


@pytest.mark.parametrize("fact", FACTS)
def test_every_field_with_a_value_of_a_user_says_so(fact: type[Fact]) -> None:
    hints = get_type_hints(fact, include_extras=True)
    free = {one.name for one in fields(fact) if free_of_kind(hints[one.name])}
    assert free - LIVE <= {"budgets"}, "which are made of limits that programs declare"


@pytest.mark.parametrize("fact", FACTS)
def test_every_fact_has_a_sentence_or_says_that_it_has_none(fact: type[Fact]) -> None:
    assert hasattr(fact, "says") == (fact.sentences is Fact.sentences)


OF_PROGRAMS = {
    "child",
    "claims",  # hashes of the names of spend limits, and random ids
    *("run_id", "forked_from", "format", "id", "kind"),
    *("step_id", "place", "part", "branch", "cause", "resume_at", "target", "budget_of"),  # ids of steps
    "scope_path",
    *("name", "wait", "waits"),  # names of questions and messages, by which they are answered and sent
    *("error_type", "failure_class", "when", "reason_code", "what"),
    *("declared", "changed"),  # names of what can be declared for calls
    # What spending is reported by.
    *("model", "provider", "unpriced_units", "units", "tools", "agent", "variant", "tags", "tenant"),
    *("response_model", "response_id", "finish_reason"),
}
"""Fields with texts by which runs are found and spending is reported; the guide names them."""


@pytest.mark.parametrize("part", [*FACTS, FailureFacts, EdgeFacts, Wait, RequestPlace, RequestRecord])
def test_every_field_with_a_text_is_sealed_or_is_known_to_be_of_the_program(part: type[Any]) -> None:
    hints = get_type_hints(part, include_extras=True)
    texts = {one.name for one in fields(part) if _holds_text(hints[one.name])}
    assert texts - LIVE - {"used", "tokens", "budgets"} <= OF_PROGRAMS


def _holds_text(hint: Any) -> bool:
    """Whether a type can hold a text of which no annotation says what it is."""
    if get_origin(hint) is Literal:
        return False
    if get_origin(hint) is Annotated:
        of_users = any(isinstance(one, DataKind) and one is not DataKind.LABEL for one in hint.__metadata__)
        return not of_users and _holds_text(get_args(hint)[0])
    if hint is str or hint is Any:
        return True
    return any(_holds_text(one) for one in get_args(hint))


def sample(hint: Any) -> Any:
    """A value of a type, in which all data of users contains `zebra`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kind = next((one for one in hint.__metadata__ if isinstance(one, DataKind)), None)
        return sample(arguments[0]) if kind is None else OF_KIND[kind]
    if origin is Literal:
        return arguments[0]
    if origin in (Union, UnionType):
        return sample(arguments[0])
    if origin is tuple or origin is Sequence:
        return (sample(arguments[0]),)
    if origin is Mapping:
        return {sample(arguments[0]): sample(arguments[1])}
    if hint is ResolvedEdge:
        return filled(EdgeFacts)
    return filled(hint) if is_dataclass(hint) else OF_TYPE[hint]


OF_KIND = {
    DataKind.PAYLOAD: {"said": "zebra"},
    DataKind.TEXT: "a zebra",
    DataKind.NAME: "the zebra",
    DataKind.LABEL: "team-1",
    DataKind.DEFINITION: {"name": "g", "kind": "graph", "steps": {"a": {"label": "zebra"}}},
}
OF_TYPE = {str: "a", int: 1, bool: True, float: 1.0, RetriesUsed: RetriesUsed()}


def filled(kind: Any) -> Any:
    """An instance in which each required field, and each with data of users, has a value."""
    hints = get_type_hints(kind, include_extras=True)
    given = {
        one.name: sample(hints[one.name])
        for one in fields(kind)
        if one.init and one.name not in LIVE and (is_required(one) or holds_data(hints[one.name]))
    }
    return kind(**given)


def is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def holds_data(hint: Any) -> bool:
    if get_origin(hint) is Annotated and any(isinstance(one, DataKind) for one in hint.__metadata__):
        return True
    if hint is ResolvedEdge:
        return True
    if isinstance(hint, type) and is_dataclass(hint):
        return any(map(holds_data, get_type_hints(hint, include_extras=True).values()))
    return any(map(holds_data, get_args(hint)))


@pytest.mark.parametrize("fact", FACTS)
def test_every_fact_goes_through_the_log_and_back_and_a_codec_hides_what_is_of_users(fact: Any) -> None:
    made = filled(fact)
    written = entry_to_store(seal_texts(seal_payloads(made, Backwards()), Backwards()))
    assert b"zebra" not in written
    assert unseal_entry(entry_in_store("r", 1, written), Backwards()) == made
    plain = entry_to_store(seal_texts(seal_payloads(made, None), None))
    assert (b"zebra" in plain) == holds_data(fact)
    assert entry_in_store("r", 1, plain) == made
