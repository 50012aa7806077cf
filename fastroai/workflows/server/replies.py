"""Answers in the form of the protocol: typed results of tools, and errors for arguments that do not fit."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase
from mcp_types import CallToolResult, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import BaseModel, ConfigDict, JsonValue, RootModel, ValidationError, create_model
from pydantic.json_schema import models_json_schema

from fastroai.errors import nearest_hint
from fastroai.workflows.answers import (
    Answer,
    AuditAnswer,
    Committed,
    ErrorAnswer,
    IterationAnswer,
    NextAnswer,
    NoTimeout,
    error,
)
from fastroai.workflows.spec.problems import cut

PREFIX: Final = "fastroai_"
"""Prefix of the names of all tools."""
OTHER_PREFIX: Final = "stratum_"
"""Prefix under which agents may know most of these tools from Stratum."""
SCHEMAS: Final = "fastroai://answer-schemas"
"""URI of the resource with the JSON Schemas of all answers."""

_MOST_PROBLEMS: Final = 20
"""Maximum number of arguments that one error names."""

AN_OBJECT: Final = ConfigDict(json_schema_extra={"type": "object"})
"""Makes the schema of an output an object: clients by versions of the protocol before 2026 take no other."""


class NextResult(RootModel[NextAnswer]):
    """What is to be done next, or how the flow has ended."""

    model_config = AN_OBJECT


class TimeoutResult(RootModel[NextAnswer | NoTimeout]):
    """What is to be done after a gate has run out of time, or that none has."""

    model_config = AN_OBJECT


class IterationResult(RootModel[IterationAnswer | ErrorAnswer]):
    """Whether a loop goes on."""

    model_config = AN_OBJECT


class CommitResult(RootModel[Committed | ErrorAnswer]):
    """The checkpoint that was set."""

    model_config = AN_OBJECT


class AuditResult(RootModel[AuditAnswer | ErrorAnswer]):
    """Everything that happened in a flow."""

    model_config = AN_OBJECT


def reply(answer: Answer) -> CallToolResult:
    """Return an answer as the result of a tool, both as data and as text."""
    data = answer.to_json()
    text = TextContent(type="text", text=json.dumps(data, ensure_ascii=False))
    is_error = isinstance(answer, ErrorAnswer)
    return CallToolResult(content=[text], structured_content=data, is_error=is_error)


def unknown_tool(name: str, known: tuple[str, ...]) -> CallToolResult:
    """Return the result of a call of a tool that is not there; it names the one that the caller may mean."""
    name = cut(name)
    said = PREFIX + name.removeprefix(OTHER_PREFIX)
    hint = f" Here, it is {said}." if said in known else nearest_hint(name, known)
    return reply(error("unknown_tool", f"there is no tool {name!r}.{hint}", available=known))


def schemas(tools: Iterable[AnswerTool]) -> dict[str, JsonValue]:
    """Return the JSON Schemas of all answers of some tools, by name in `$defs`."""
    models: list[type[BaseModel]] = [tool.fn_metadata.output_model for tool in tools]
    _, schema = models_json_schema([(one, "validation") for one in dict.fromkeys(models)])
    return schema


def _in_brief(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return what each kind of answer has at least, of the JSON Schema of a tool's answers.

    Clients get the schemas of all tools at once, and resolve no reference to another document. So the whole
    schemas, of which most are those of several tools, are in a resource.
    """
    kinds = [schema["$defs"][one["$ref"].rpartition("/")[2]] for one in schema.get("anyOf", ())] or [schema]
    return {
        "type": "object",
        "description": f"{schema['description']} All fields are in the resource {SCHEMAS}.",
        "oneOf": [
            {
                "title": kind["title"],
                "properties": {
                    "status": {
                        key: kind["properties"]["status"][key]
                        for key in ("const", "enum")
                        if key in kind["properties"]["status"]
                    }
                },
                "required": kind["required"],
            }
            for kind in kinds
        ],
    }


class _NoOthers(ArgModelBase):
    """Arguments whose names are all known."""

    model_config = ConfigDict(extra="forbid")


class AnswerTool(Tool):
    """A tool that refuses unknown arguments, and reports invalid arguments in an answer, as other errors."""

    @classmethod
    def of(
        cls, function: Callable[..., Awaitable[CallToolResult | InputRequiredResult]], hints: ToolAnnotations
    ) -> AnswerTool:
        """Return a tool made of a function. The docstring of the function tells agents what the tool does."""
        name, description = f"{PREFIX}{function.__name__}", inspect.getdoc(function)
        tool = cls.from_function(function, name=name, description=description, annotations=hints)
        assert isinstance(tool, cls)
        strict = create_model(name, __base__=(_NoOthers, tool.fn_metadata.arg_model))
        tool.fn_metadata.arg_model = strict
        tool.parameters = strict.model_json_schema(by_alias=True)
        assert tool.fn_metadata.output_schema is not None
        tool.fn_metadata.output_schema = _in_brief(tool.fn_metadata.output_schema)
        return tool

    async def run(
        self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False
    ) -> Any:
        """See `Tool.run`."""
        try:
            return await super().run(arguments, context, convert_result)
        except ToolError as raised:
            cause = raised.__cause__
            if isinstance(raised, UnexpectedToolError) or not isinstance(cause, ValidationError):
                raise
            return reply(error("invalid_input", self._told(cause)))

    def _told(self, invalid: ValidationError) -> str:
        problems = invalid.errors(include_url=False, include_context=False, include_input=False)
        told = [
            f"{'.'.join(str(part) for part in one['loc'])[:200]}: {one['msg'][:500]}"
            for one in problems[:_MOST_PROBLEMS]
        ]
        if len(problems) > _MOST_PROBLEMS:
            told.append(f"... and {len(problems) - _MOST_PROBLEMS} more")
        known = ", ".join(self.parameters["properties"])
        return f"invalid arguments of {self.name}: {'; '.join(told)}. It takes {known}."
