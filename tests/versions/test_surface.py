"""Whether `usage/facts/surface.py` lists the public surface of the installed PydanticAI, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, get_args

import pydantic_ai.messages as messages
import pytest
from pydantic_ai import native_tools
from pydantic_ai.messages import InstructionPart, ModelRequest, ModelResponse
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from fastroai.usage.facts.source import Names
from fastroai.usage.facts.surface import (
    CONTENTS,
    MESSAGES,
    NATIVE_TOOLS,
    PARAMETERS,
    REQUEST_PARTS,
    RESPONSE_PARTS,
    USAGE_FIELDS,
)
from fastroai.usage.prices.rate_card import UNITS


def classes(union: Any) -> Iterator[type[Any]]:
    """The classes in a union of annotated classes, which may itself be annotated or an alias."""
    if isinstance(union, type):
        yield union
    elif hasattr(union, "__value__"):
        yield from classes(union.__value__)
    else:
        for each in get_args(union):
            yield from classes(each)


def public(cls: type[Any]) -> set[str]:
    return {one.name for one in fields(cls) if not one.name.startswith("_")}


def by_kind(union: Any, of: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for cls in classes(union):
        if hasattr(cls, of):
            found[getattr(cls, of)] = found.get(getattr(cls, of), set()) | public(cls)
    return found


def tools() -> dict[str, set[str]]:
    kinds = [cls for cls in vars(native_tools).values() if isinstance(cls, type)]
    abstract = native_tools.AbstractNativeTool
    return {cls.kind: public(cls) for cls in kinds if issubclass(cls, abstract) and cls is not abstract}


@pytest.mark.parametrize(
    ("listed", "installed"),
    [
        (REQUEST_PARTS, by_kind(messages.ModelRequestPart, "part_kind")),
        (RESPONSE_PARTS, by_kind(messages.ModelResponsePart, "part_kind")),
        (CONTENTS, by_kind(messages.UserContent, "kind")),
        (MESSAGES, {"request": public(ModelRequest), "response": public(ModelResponse)}),
        (
            PARAMETERS,
            {
                cls.__name__: public(cls)
                for cls in (ModelRequestParameters, ToolDefinition, InstructionPart, OutputObjectDefinition)
            },
        ),
        (NATIVE_TOOLS, tools()),
    ],
    ids=["REQUEST_PARTS", "RESPONSE_PARTS", "CONTENTS", "MESSAGES", "PARAMETERS", "NATIVE_TOOLS"],
)
def test_every_public_field_is_listed(
    listed: Mapping[str, Names], installed: Mapping[str, set[str]], request: pytest.FixtureRequest
) -> None:
    missing = {
        kind: sorted(names - (listed[kind].names if kind in listed else set()))
        for kind, names in installed.items()
    }
    left_out = {"web_search": ["provider_settings"]}  # anything, so that the price of a search is not known
    unlisted = {kind: names for kind, names in missing.items() if names and names != left_out.get(kind)}
    assert not unlisted, (
        f"add these to {request.node.callspec.id} in fastroai/usage/facts/surface.py, once the account "
        "counts them or you know that they add nothing to a bill"
    )


def test_every_field_of_usage_is_a_unit_or_listed() -> None:
    unlisted = public(RequestUsage) - UNITS - USAGE_FIELDS.names
    assert not unlisted, "add these to USAGE_FIELDS in fastroai/usage/facts/surface.py, or price them"
