"""Entries of a log whose payloads went through a codec, as they were before."""

from __future__ import annotations

from dataclasses import replace

from fastroai.store.entries import (
    AnyEntry,
    OnceDone,
    RequestEnded,
    RunOpened,
    RunResumed,
    StepOutput,
    ToolEnded,
)
from fastroai.store.payloads import PayloadCodec, unseal


def unseal_entry(entry: AnyEntry, codec: PayloadCodec) -> AnyEntry:
    """An entry with its payload decoded; as it is, if it has none."""
    match entry:
        case RunOpened() | RunResumed():
            return replace(entry, inputs={name: unseal(value, codec) for name, value in entry.inputs.items()})
        case StepOutput():
            return replace(entry, output=unseal(entry.output, codec))
        case RequestEnded():
            return replace(entry, response=unseal(entry.response, codec))
        case ToolEnded():
            return replace(entry, result=unseal(entry.result, codec), retry=unseal(entry.retry, codec))
        case OnceDone():
            return replace(entry, result=unseal(entry.result, codec))
        case _:
            return entry
