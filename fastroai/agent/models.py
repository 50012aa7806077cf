"""From a model reference to a model whose requests FastroAI alone retries, and whose headers it reads."""

from __future__ import annotations

from pydantic_ai.models import Model, infer_model

from fastroai.agent.cost_headers import read_cost_headers
from fastroai.usage import model_reference


def build_model(reference: str) -> Model:
    """The model of a reference such as `openai:gpt-5-mini`, or `gpt-5-mini` for a first-party one.

    Retries that the provider's SDK would make unseen are turned off: each of them may be billed. The costs
    that gateways state in headers are read.

    Raises:
        UnknownModelError: its provider cannot be told.
        pydantic_ai.exceptions.UserError: the provider is not set up, for example without an API key.
    """
    provider, name = model_reference(reference)
    model = infer_model(f"{provider}:{name}" if provider != name else name)
    _turn_off_sdk_retries(model)
    read_cost_headers(model.provider)
    return model


def _turn_off_sdk_retries(model: Model) -> None:
    # The clients of OpenAI, Anthropic, Groq and others are made by one generator and share this public
    # attribute. `ModelSettings["max_retries"]` would do too, at the price of a client copy for each request.
    client = getattr(model.provider, "client", None)
    if isinstance(getattr(client, "max_retries", None), int):
        client.max_retries = 0  # type: ignore[union-attr]


class ModelCache:
    """The models of references, each built once."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}

    def get(self, reference: str) -> Model:
        """The model of a reference. Raises as `build_model`."""
        if reference not in self._models:
            self._models[reference] = build_model(reference)
        return self._models[reference]
