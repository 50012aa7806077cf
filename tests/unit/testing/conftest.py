import pytest
from pydantic_ai.models import Model

from fastroai.testing import ModelServer

REFERENCES = ("openai:gpt-5-mini", "openai-chat:gpt-5-mini", "anthropic:claude-haiku-4-5")


@pytest.fixture(params=REFERENCES)
def reference(request: pytest.FixtureRequest) -> str:
    """A model of each protocol."""
    value: str = request.param
    return value


@pytest.fixture
def model(model_server: ModelServer, reference: str) -> Model:
    return model_server.model(reference)
