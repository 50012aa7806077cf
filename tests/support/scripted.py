"""A model that answers by plan: exact usage, failures, streams, and a log of what was really sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import (
    FinishReason,
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.profiles import ModelProfile, ModelProfileSpec
from pydantic_ai.profiles.anthropic import AnthropicModelProfile
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage


@dataclass
class Answer:
    """What the model does with one request; `failure` before it, or after the first chunk of a stream."""

    output_tokens: int
    input_tokens: int = 100
    seconds: float = 0.0
    chunks: int = 3
    tool_call: ToolCallPart | None = None
    failure: BaseException | None = None
    breaks: bool = False
    cut: bool = False

    @property
    def usage(self) -> RequestUsage:
        return RequestUsage(input_tokens=self.input_tokens, output_tokens=self.output_tokens)

    @property
    def finish_reason(self) -> FinishReason:
        return "length" if self.cut else "tool_call" if self.tool_call else "stop"


def _limited_to(output_tokens: int) -> ModelProfileSpec:
    limited: ModelProfile = AnthropicModelProfile(anthropic_max_output_tokens=output_tokens)
    return limited


Plan = Callable[[str, list[ModelMessage], int | None], Answer]
"""From the model's name, the messages and `max_tokens` to what is answered."""


class ScriptedModel(Model):
    """Asks a plan what to answer."""

    def __init__(self, plan: Plan, name: str = "paid", *, longest_answer: int | None = None) -> None:
        super().__init__(profile=None if longest_answer is None else _limited_to(longest_answer))
        self.plan, self.name = plan, name

    @property
    def model_name(self) -> str:
        return self.name

    @property
    def system(self) -> str:
        return "scripted"

    def _answer(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> Answer:
        given, _ = self.prepare_request(settings, parameters)
        return self.plan(self.name, messages, (given or {}).get("max_tokens"))

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        answer = self._answer(messages, model_settings, model_request_parameters)
        await asyncio.sleep(answer.seconds)
        if answer.failure is not None:
            raise answer.failure
        return ModelResponse(
            parts=[answer.tool_call or TextPart("answer")],
            usage=answer.usage,
            model_name=self.name,
            provider_name=self.system,
            finish_reason=answer.finish_reason,
        )

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        answer = self._answer(messages, model_settings, model_request_parameters)
        if answer.failure is not None and not answer.breaks:
            await asyncio.sleep(answer.seconds)
            raise answer.failure
        yield ScriptedStream(model_request_parameters, _name=self.name, _answer=answer)


@dataclass
class ScriptedStream(StreamedResponse):
    """The chunks of one answer; usage and finish reason come with the last."""

    _name: str = ""
    _answer: Answer = field(default_factory=lambda: Answer(0))
    _started: datetime = field(default_factory=lambda: datetime.now(UTC))

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        answer = self._answer
        for _ in range(answer.chunks):
            await asyncio.sleep(answer.seconds / answer.chunks)
            for event in self._parts_manager.handle_text_delta(vendor_part_id="text", content="word "):
                yield event
            if answer.failure is not None:
                raise answer.failure
        if (call := answer.tool_call) is not None:
            yield self._parts_manager.handle_tool_call_part(
                vendor_part_id="call",
                tool_name=call.tool_name,
                args=call.args,
                tool_call_id=call.tool_call_id,
            )
        self._usage, self.finish_reason = answer.usage, answer.finish_reason

    async def close_stream(self) -> None: ...

    @property
    def model_name(self) -> str:
        return self._name

    @property
    def provider_name(self) -> str:
        return "scripted"

    @property
    def provider_url(self) -> None:
        return None

    @property
    def timestamp(self) -> datetime:
        return self._started
