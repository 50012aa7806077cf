"""The JSON Schema of what services send: facts, states, pages, questions, answers and problems."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any, Final

from pydantic import BaseModel, JsonValue, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from fastroai.runtime.fact_base import Fact
from fastroai.runtime.kinds import fact_classes
from fastroai.web.models import (
    GivenAnswer,
    PartialText,
    ProblemDetails,
    QuestionPage,
    Report,
    RunPage,
    RunState,
)

VERSION: Final = 1
"""Version of these shapes. It rises when a client of before could not read them any more; fields and kinds of
facts may be added without that."""

_MODELS: Final[tuple[type[BaseModel], ...]] = (
    RunState,
    RunPage,
    QuestionPage,
    Report,
    GivenAnswer,
    PartialText,
    ProblemDetails,
)
_IN_EVERY_FACT: Final[dict[str, JsonValue]] = {
    "position": {"type": "integer", "description": "the position in the log, which is the id of the event"},
    "run_id": {"type": "string"},
    "part": {"type": "string", "description": "the place of the nested pipeline; empty for the outermost"},
}


class _Open(GenerateJsonSchema):
    """Accepts any value where the schema of a type cannot be known, such as in the data of users."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaValue:
        return {}


@cache
def _schema() -> dict[str, Any]:
    definitions: dict[str, Any] = {}
    for model in _MODELS:
        made = model.model_json_schema(mode="serialization", ref_template="#/$defs/{model}")
        definitions |= made.pop("$defs", {})
        definitions[model.__name__] = made
    facts = [_add_fact(fact, definitions) for fact in fact_classes()]
    definitions["Fact"] = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in facts]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:fastroai:api:{VERSION}",
        "title": "What services on FastroAI send",
        "$defs": dict(sorted(definitions.items())),
    }


def _add_fact(fact: type[Fact], definitions: dict[str, Any]) -> str:
    """Add the schema of a kind of fact as `fact_to_json` returns it, and return its name."""
    annotation: Any = fact
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    made = adapter.json_schema(mode="serialization", ref_template="#/$defs/{model}", schema_generator=_Open)
    definitions |= made.pop("$defs", {})
    made["properties"] = {**made["properties"], "kind": {"const": fact.kind}, **_IN_EVERY_FACT}
    made["required"] = ["kind", *(one for one in made.get("required", ()) if one != "part")]
    definitions[fact.__name__] = made
    return fact.__name__


def api_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the data that the routes of `runs_router` send and take.

    It is for clients in other languages, and each call returns a new copy. `$defs` has `RunState`, `RunPage`,
    `QuestionPage`, `Report`, `GivenAnswer`, `PartialText`, `ProblemDetails`, and `Fact`: one of the kinds of
    facts that this version knows. Fields that have their defaults are left out of facts. What a service shows
    may be less: see `show` of `runs_router`.
    """
    return deepcopy(_schema())
