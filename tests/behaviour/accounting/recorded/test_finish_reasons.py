"""Why an answer ended says nothing about its bill: whatever the reason, its usage is accounted."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from google.genai.types import FinishReason
from support.recorded_account import ANSWERS, EXPECTED, billed
from support.recorded_models import build_model, settings_of, whole
from support.recorded_oracle import Json

from fastroai import FastroAgent
from fastroai.errors import records_of

CHAT = ("stop", "length", "tool_calls", "content_filter", "function_call")
REASONS: dict[str, tuple[str, ...]] = {
    "api.openai.com/v1/chat": CHAT,
    "api.openai.com/v1/responses": (
        "completed", "max_output_tokens", "content_filter", "failed", "cancelled",
    ),
    "api.anthropic.com/v1/messages": (
        "end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "compaction",
        "model_context_window_exceeded",
    ),
    "generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash:generateContent": tuple(
        reason.value for reason in FinishReason if reason is not FinishReason.FINISH_REASON_UNSPECIFIED
    ),
    "api.groq.com/openai": CHAT,
    "api.mistral.ai/v1": ("stop", "length", "model_length", "error", "tool_calls"),
    "api.cohere.com/v2": ("COMPLETE", "STOP_SEQUENCE", "MAX_TOKENS", "TOOL_CALL", "ERROR"),
    "bedrock-runtime.us-east-1.amazonaws.com/model/us.amazon.nova-pro": (
        "end_turn", "tool_use", "max_tokens", "stop_sequence", "guardrail_intervened", "content_filtered",
        "malformed_model_output", "malformed_tool_use", "model_context_window_exceeded", "something_new",
    ),
    "router.huggingface.co/together": ("stop", "length", "eos_token", "stop_sequence", "tool_calls", "new"),
    "openrouter.ai/api/v1/chat": ("stop", "length", "tool_calls", "content_filter", "error"),
    "api.z.ai/api": (*CHAT[:3], "sensitive", "model_context_window_exceeded", "network_error"),
    "api.deepseek.com/chat": CHAT,
    "api.cerebras.ai/v1": CHAT,
}  # fmt: skip


def _chat(body: Json, reason: str) -> None:
    body["choices"][0]["finish_reason"] = reason


def _responses(body: Json, reason: str) -> None:
    cut = reason in ("max_output_tokens", "content_filter")
    body["status"] = "incomplete" if cut else reason
    body["incomplete_details"] = {"reason": reason} if cut else None


def _anthropic(body: Json, reason: str) -> None:
    body["stop_reason"] = reason


def _google(body: Json, reason: str) -> None:
    body["candidates"][0]["finishReason"] = reason


def _cohere(body: Json, reason: str) -> None:
    body["finish_reason"] = reason


def _bedrock(body: Json, reason: str) -> None:
    body["stopReason"] = reason


END: dict[str, Callable[[Json, str], None]] = {
    "api.openai.com/v1/responses": _responses,
    "api.anthropic.com": _anthropic,
    "generativelanguage.googleapis.com": _google,
    "api.cohere.com": _cohere,
    "bedrock-runtime": _bedrock,
}


def recorded(place: str) -> tuple[Json, Json]:
    """The first plain answer of a place, and what is expected of it."""
    return next(
        (answer, expected)
        for answer, expected in zip(ANSWERS, EXPECTED, strict=True)
        if (answer["host"] + answer["path"]).startswith(place)
        and expected["outcome"] == "settled"
        and expected["kind"] == "request"
    )


@pytest.mark.filterwarnings("ignore::fastroai.usage.UnpricedModelWarning")
@pytest.mark.parametrize(
    ("place", "reason"), [(place, reason) for place, reasons in REASONS.items() for reason in reasons]
)
async def test_usage_that_arrived_is_settled_whatever_ended_the_answer(
    place: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, expected = recorded(place)
    answer = copy.deepcopy(answer)
    end = next((end for host, end in END.items() if place.startswith(host)), _chat)
    end(answer["response"], reason)
    model = build_model(answer, whole(answer), monkeypatch)
    agent = FastroAgent(model, request_retries=0)
    settings: Any = settings_of(answer)

    try:
        records = (await agent.run("x", model_settings=settings)).records
    except Exception as error:  # some reasons end the run; the answer was billed all the same
        records = records_of(error)

    record = billed(records)[0]
    assert (record.outcome, record.tokens.input_tokens) == ("settled", expected["tokens"]["input_tokens"])
    assert record.tokens.output_tokens == expected["tokens"]["output_tokens"]
