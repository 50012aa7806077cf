"""Which fields of facts a codec seals."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

import pytest

from fastroai.runtime.facts import AnyFact, Fact
from fastroai.store.unsealing import PAYLOADS

FREE = ("Any", "JsonValue", "Mapping[str, Any]")
NOT_OF_USERS = {"definition"}
HANDLED_ALONE = {"inputs", "question"}


@pytest.mark.parametrize("fact", get_args(AnyFact))
def test_every_field_with_a_value_of_a_user_is_sealed(fact: type[Fact]) -> None:
    free = {one.name for one in fields(fact) if one.type in FREE}
    assert free - NOT_OF_USERS - HANDLED_ALONE == set(PAYLOADS.get(fact, ()))
