"""Tests of an agent without mocks: a real server on this machine, which answers by script and keeps a ledger.

Run it: pytest examples/testing_your_agent.py. The fixture `model_server` comes with the extra `testing`.
"""

import pytest
from pydantic import BaseModel
from pydantic_ai.models import Model

from fastroai import FastroAgent
from fastroai.testing import Fault, ModelServer, Reply


class Ticket(BaseModel):
    category: str


def make_classifier(model: Model | str = "openai:gpt-5-mini") -> FastroAgent[object, Ticket]:
    """What is tested: in production with its default model."""
    return FastroAgent(model, output_type=Ticket, instructions="Classify the ticket.")


@pytest.mark.parametrize("reference", ["openai:gpt-5-mini", "anthropic:claude-haiku-4-5"])
def test_the_classifier_says_what_it_is(model_server: ModelServer, reference: str) -> None:
    model_server.script(Reply(data={"category": "billing"}))
    response = make_classifier(model_server.model(reference)).run_sync("I was charged twice.")
    assert response.output == Ticket(category="billing")


def test_a_busy_provider_is_asked_again_and_only_the_answer_is_paid(model_server: ModelServer) -> None:
    model_server.script(Reply(data={"category": "billing"}))
    model_server.fail_next(1, Fault.status(429, retry_after=0))
    response = make_classifier(model_server.model("openai:gpt-5-mini")).run_sync("I was charged twice.")

    refused, answered = model_server.ledger.entries
    assert (refused.status, refused.billed) == (429, False)
    assert "Classify the ticket." in str(answered.body)
    assert response.input_tokens == answered.usage.input_tokens
    assert response.usage.failed_requests == 1
