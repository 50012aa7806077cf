"""Answers of models as values of the declared type: how models are asked, and how their answers are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

from pydantic import JsonValue, ValidationError
from pydantic_ai import StructuredDict
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_core import from_json, to_json

from fastroai.functions.declaring.declared import DeclaredType
from fastroai.functions.declaring.opacity import ELIDED, elided, one_line_json, opaque_parts
from fastroai.functions.declaring.schemas import DIALECT, schema_of

T = TypeVar("T")

_INSIDE: Final = "response"
"""Field of the object that a model gives, for a value that is no object itself. The same as in PydanticAI."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """An answer that a model gave, as text and as a value."""

    text: str
    """The answer as text. Reading it again gives an equal output."""
    output: T


class AnswerType(Generic[T]):
    """The type of a function's answers.

    A model gives JSON, by PydanticAI's structured output, and the text of the JSON is read here. PydanticAI
    would read an answer that comes as an object by Python's rules, by which base64 is not bytes.
    """

    def __init__(self, returns: DeclaredType) -> None:
        self.returns: Final = returns
        """The declared type."""
        self._validate_json: Final = returns.adapter.validator.validate_json
        self._is_text = returns.annotation is str
        schema = schema_of(returns.annotation)
        self._is_inside = not self._is_text and schema.get("type") != "object"
        self.output_type: Any = str if self._is_text else StructuredDict(_object(schema, self._is_inside))
        """The output type for which PydanticAI asks the model."""

    def text_of(self, output: object) -> str:
        """Return an output of PydanticAI as the text of an answer."""
        if self._is_text:
            return cast("str", output)
        if self._is_inside:
            output = cast("dict[str, object]", output).get(_INSIDE, output)
        return to_json(output, inf_nan_mode="constants").decode()

    def read(self, text: str) -> T:
        """Return the value that the text of an answer stands for.

        Raises:
            ValidationError: the answer is not of the type.
        """
        if self._is_text:
            return cast("T", text)
        try:
            said: T = self._validate_json(text)
            return said
        except ValidationError as error:
            # Some models put the JSON of a value into a string, which PydanticAI allows there, too.
            if self._is_inside and text.startswith('"'):
                try:
                    inner: T = self._validate_json(from_json(text))
                    return inner
                except ValidationError:
                    pass
            raise error

    def problems(self, error: ValidationError) -> list[str]:
        """Return all problems of an answer that does not match, a text each, without its opaque parts."""
        found: list[str] = []
        for detail in self.returns.details_of(error):
            place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"])
            actual = f" (actual: {detail['input']})" if "input" in detail else ""
            found.append(f"parse: result{place}: {detail['msg']}{actual}")
        return found

    @property
    def is_no_output(self) -> str:
        """The problem of an answer that is no structured output at all."""
        return (
            "parse: result: it is empty" if self._is_text else "parse: result: it is not the JSON asked for"
        )

    def shown(self, text: str) -> str:
        """Return the text of an answer for errors, without its opaque parts."""
        if self.returns.opacity is None:
            return text
        try:
            value: JsonValue = from_json(text)
        except ValueError:
            return ELIDED
        return one_line_json(elided(value, self.returns.opacity))

    def opaque_parts(self, output: T) -> list[JsonValue]:
        """Return the opaque parts of an output as JSON."""
        return opaque_parts(self.returns.json_of(output), self.returns.opacity)


def _object(schema: dict[str, JsonValue], is_inside: bool) -> dict[str, JsonValue]:
    """Return the schema of the object that the model gives, without `$schema`: providers do not know it."""
    assert schema["$schema"] == DIALECT
    own = {name: value for name, value in schema.items() if name != "$schema"}
    if not is_inside:
        return own
    defs = {"$defs": own.pop("$defs")} if "$defs" in own else {}
    return {"type": "object", "properties": {_INSIDE: own}, "required": [_INSIDE], **defs}


def said_in(messages: Sequence[ModelMessage]) -> str:
    """Return the text of the last answer in a conversation: the arguments of a tool call, or its text."""
    last = next((message for message in reversed(messages) if isinstance(message, ModelResponse)), None)
    if last is None:
        return ""
    if not last.tool_calls:
        return last.text or ""
    call = last.tool_calls[-1]
    return call.args if isinstance(call.args, str) else call.args_as_json_str()
