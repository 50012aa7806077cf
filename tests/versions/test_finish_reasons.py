"""Whether each finish reason that PydanticAI and the SDKs know is known as an end, or as one that goes on."""

import importlib.util
import json
import pkgutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import botocore
import pydantic_ai.models
import pydantic_ai.providers
import pytest
from anthropic.types.beta import BetaStopReason
from botocore.loaders import Loader
from cohere.types import ChatFinishReason
from google.genai.types import FinishReason as GoogleFinishReason
from mistralai.client.models import ChatCompletionChoiceFinishReason
from openai.types.chat.chat_completion import Choice
from openai.types.responses import ResponseStatus
from openai.types.responses.response import IncompleteDetails
from xai_sdk.proto import sample_pb2

from fastroai.usage.facts.finish_reasons import GOES_ON, PROVIDERS

TABLE = "fastroai/usage/facts/finish_reasons.py"

CHAT = "stop length tool_calls content_filter function_call"
CLAUDE = (
    "end_turn max_tokens stop_sequence tool_use compaction refusal model_context_window_exceeded "
    "pause_turn"  # a turn that pauses has ended for the bill, and output up to a refusal is billed
)
ENDED = {
    "anthropic": CLAUDE,
    "bedrock": f"{CLAUDE} guardrail_intervened content_filtered malformed_model_output malformed_tool_use",
    "cohere": "COMPLETE STOP_SEQUENCE MAX_TOKENS TOOL_CALL ERROR TIMEOUT",
    "google": "STOP MAX_TOKENS SAFETY RECITATION LANGUAGE OTHER BLOCKLIST PROHIBITED_CONTENT SPII "
    "MALFORMED_FUNCTION_CALL IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT IMAGE_OTHER NO_IMAGE IMAGE_RECITATION "
    "UNEXPECTED_TOOL_CALL TOO_MANY_TOOL_CALLS MISSING_THOUGHT_SIGNATURE MALFORMED_RESPONSE ESCALATION "
    "PUP_LIMITED_DISABLED CONTINUATION MODEL_ARMOR",
    "groq": CHAT,
    "huggingface": f"{CHAT} eos_token stop_sequence",
    "mistral": "stop length model_length error tool_calls",
    "openai": f"{CHAT} completed failed cancelled incomplete max_output_tokens max_messages steered",
    "openrouter": f"{CHAT} error",
    "xai": "REASON_MAX_LEN REASON_MAX_CONTEXT REASON_STOP REASON_TOOL_CALLS REASON_TIME_LIMIT",
    "zai": f"{CHAT} sensitive model_context_window_exceeded network_error",  # the last ends an answer early
}
"""Reasons of answers that have ended, by provider: their usage is complete, and is billed."""


def reasons_of(provider: str) -> set[str]:
    known = set(ENDED[provider].split())
    return known.union(*(api.names for api in GOES_ON.get(provider, ())))


def test_no_reason_is_an_end_and_goes_on() -> None:
    for provider in ENDED:
        assert not [api for api in GOES_ON.get(provider, ()) if api.names & set(ENDED[provider].split())]


def literals(annotation: Any) -> set[str]:
    """The strings of a type that is made of literals."""
    if isinstance(annotation, str):
        return {annotation}
    return {reason for part in get_args(annotation) for reason in literals(part)}


def mapping_modules() -> Iterator[ModuleType]:
    """The modules of PydanticAI's models that map reasons; some others need an SDK that is not installed."""
    package = pydantic_ai.models
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", onerror=lambda _: None):
        spec = importlib.util.find_spec(found.name)
        if spec is not None and spec.origin is not None and "FINISH_REASON" in Path(spec.origin).read_text():
            yield importlib.import_module(found.name)


def reason_maps() -> dict[str, set[str]]:
    """The reasons that PydanticAI maps, by the module that does it."""
    found: dict[str, set[str]] = {}
    for module in mapping_modules():
        name = module.__name__.removeprefix("pydantic_ai.models.").partition(".")[0]
        for attribute, value in vars(module).items():
            if "FINISH_REASON" in attribute and attribute.endswith("MAP") and isinstance(value, dict):
                found.setdefault(name, set()).update(map(spelled, value))
    return found


def spelled(reason: object) -> str:
    """A key of a map of PydanticAI; xAI's are numbers."""
    return sample_pb2.FinishReason.Name(reason) if isinstance(reason, int) else str(reason)


MAPPED = reason_maps()


def test_pydantic_ai_has_the_maps_that_are_looked_for() -> None:
    assert MAPPED.keys() >= {
        "anthropic", "bedrock", "cohere", "google", "groq", "huggingface", "mistral", "openai", "openrouter",
        "xai", "zai",
    }  # fmt: skip


@pytest.mark.parametrize("provider", MAPPED)
def test_every_reason_that_pydantic_ai_maps_has_a_line(provider: str) -> None:
    missing = MAPPED[provider] - reasons_of(provider)
    assert not missing, f"add to {provider!r} here, or in {TABLE} if it is no end: {sorted(missing)}"


def bedrock_reasons() -> Iterable[str]:
    loader = Loader(extra_search_paths=[str(Path(botocore.__file__).parent / "data")])
    model: Any = loader.load_service_model("bedrock-runtime", "service-2")
    reasons: list[str] = json.loads(json.dumps(model["shapes"]["StopReason"]["enum"]))
    return reasons


@pytest.mark.parametrize(
    ("provider", "known"),
    [
        ("anthropic", literals(BetaStopReason)),
        ("bedrock", set(bedrock_reasons())),
        ("cohere", literals(ChatFinishReason)),
        ("google", {reason.value for reason in GoogleFinishReason}),
        ("mistral", literals(ChatCompletionChoiceFinishReason)),
        ("openai", literals(Choice.model_fields["finish_reason"].annotation)),
        ("openai", literals(ResponseStatus)),
        ("openai", literals(IncompleteDetails.model_fields["reason"].annotation)),
        ("xai", set(sample_pb2.FinishReason.keys())),
    ],
)
def test_every_reason_of_an_sdk_has_a_line(provider: str, known: set[str]) -> None:
    assert len(known) > 2
    missing = known - reasons_of(provider)
    assert not missing, f"add to {provider!r} here, or in {TABLE} if it is no end: {sorted(missing)}"


def test_every_provider_of_pydantic_ai_has_a_line() -> None:
    modules = {module.name for module in pkgutil.iter_modules(pydantic_ai.providers.__path__)}
    providers = {name.replace("_", "-") for name in modules if not name.startswith("_")} - {"gateway"}
    missing = providers - PROVIDERS
    assert not missing, f"add to PROVIDERS in {TABLE}: {sorted(missing)}"
