"""Whether an answer has ended, by its finish reason. `tests/versions` has the reasons of all SDKs."""

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage

from fastroai.agent.answer_checks import is_measured
from fastroai.usage.facts.finish_reasons import has_ended


@pytest.mark.parametrize(
    ("provider", "reason", "ended"),
    [
        ("anthropic", "pause_turn", True),
        ("google", "OTHER", True),
        ("google", "FINISH_REASON_UNSPECIFIED", False),
        ("openai", "in_progress", False),
        ("openai", "queued", False),
        ("xai", "REASON_INVALID", False),
        ("xai", "queued", False),
        ("openai", "steered", True),
        ("anthropic", "a new one", True),
        ("someone-else", "in_progress", True),
    ],
)
def test_the_usage_of_an_answer_is_its_bill_once_it_has_ended(
    provider: str, reason: str, ended: bool
) -> None:
    response = ModelResponse(
        parts=[TextPart("Once")],
        usage=RequestUsage(input_tokens=5, output_tokens=5),
        provider_details={"finish_reason": reason},
    )
    assert has_ended(provider, reason) == ended
    assert is_measured(response, streamed=True, system=provider) == ended
