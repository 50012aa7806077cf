"""Facts as a store has them: their values as JSON, through the types that are declared, and a codec."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastroai.errors import ValueNotStorable
from fastroai.runtime.facts import StepFinished
from fastroai.steps import ConversationState
from fastroai.steps.conversation import state_in
from fastroai.store.payloads import PayloadCodec, seal
from fastroai.store.telling import as_json
from fastroai.store.values import value_to_json


def stored_finish(
    fact: StepFinished, declared: Any, codec: PayloadCodec | None, *, nested: bool = False
) -> StepFinished:
    """An output as it is stored; `nested` if it is that of a pipeline or graph, run as a step.

    Raises:
        ValueNotStorable: it cannot be stored.
        RunStoreUnavailable: the codec fails.
    """
    output, what = fact.output, f"the output of step {fact.step_id!r}"
    if isinstance(output, ConversationState):
        declared = state_in(declared)
    if nested and fact.conversation == "incomplete":
        # For people: the step inside that has given it finds it under its own place.
        return replace(fact, output=seal(as_json(output), codec))
    try:
        stored = value_to_json(output, declared, what)
    except ValueNotStorable:
        if fact.conversation != "incomplete":
            raise
        stored = value_to_json(output, ConversationState, what)  # what it gathered so far need not fit
    return replace(fact, output=seal(stored, codec))
