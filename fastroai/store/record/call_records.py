"""The records of calls of typed functions, read from facts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from pydantic import TypeAdapter, ValidationError

from fastroai.errors import ConfigurationError
from fastroai.records import CallRecord
from fastroai.runtime.facts import CallEnded
from fastroai.store.record.payloads import is_sealed


@cache  # made on first use: with the first adapter, pydantic imports its plugins
def _adapter() -> TypeAdapter[CallRecord]:
    return TypeAdapter(CallRecord)


def call_record(ended: CallEnded) -> CallRecord:
    """Return the record of a call, with its output, from a fact whose payload is unsealed.

    Raises:
        ConfigurationError: the record went through a codec, which was not given, or is not a valid record.
    """
    if isinstance(ended.call, CallRecord):
        return replace(ended.call, output=ended.output)
    if is_sealed(ended.call):
        raise ConfigurationError("codec", None, "the codec of the run, which encoded its records")
    try:
        return replace(_adapter().validate_python(ended.call), output=ended.output)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        expected = f"the record of a call: {first['msg']}"
        raise ConfigurationError("call", ended.place, expected) from error
