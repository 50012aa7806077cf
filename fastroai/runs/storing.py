"""Conversion of facts for a store: values become JSON by their declared types, and go through a codec."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from fastroai.contracts import adapter_of
from fastroai.errors import ConfigurationError, ValueNotStorable
from fastroai.runtime.facts import StepFinished
from fastroai.steps import ConversationState
from fastroai.steps.conversation import state_in
from fastroai.store.reading.as_json import as_json
from fastroai.store.record.payloads import PayloadCodec, seal
from fastroai.store.record.values import value_to_json


def checked_output(step_id: str, output: object, declared: Any) -> object:
    """Return an output from outside, converted to its declared type, such as a text to a date.

    Raises:
        ConfigurationError: the output is not of the declared type.
    """
    adapter = None if declared is None else adapter_of(declared)
    try:
        return output if adapter is None else adapter.validate_python(output)
    except ValidationError as error:
        raise ConfigurationError(
            "output", output, f"what step {step_id!r} gives, by its declared type: {error}"
        ) from error


def stored_finish(
    fact: StepFinished, declared: Any, codec: PayloadCodec | None, *, nested: bool = False
) -> StepFinished:
    """Return an output as it is stored; `nested` if it is the output of a pipeline or graph that is a step.

    Raises:
        ValueNotStorable: the output cannot be stored.
        RunStoreUnavailable: the codec fails.
    """
    output, what = fact.output, f"the output of step {fact.step_id!r}"
    if isinstance(output, ConversationState):
        declared = state_in(declared)
    if nested and fact.conversation == "incomplete":
        # This entry is only for people: the step inside that gave the output has it under its own place.
        return replace(fact, output=seal(as_json(output), codec))
    try:
        stored = value_to_json(output, declared, what)
    except ValueNotStorable:
        if fact.conversation != "incomplete":
            raise
        # The data of an incomplete conversation need not fit the declared type yet.
        stored = value_to_json(output, ConversationState, what)
    sealed = seal(stored, codec)
    return fact if sealed is output else replace(fact, output=sealed)
