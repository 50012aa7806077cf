"""Who answers: the provider that `FASTROAI_MODEL` names, or the offline model, which needs no key."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import offline_model
from desk import Agents, make_agents
from pydantic_ai.exceptions import UserError

from fastroai import CostCalculator
from fastroai.errors import UnknownModelError, UnpricedModelError
from fastroai.testing import Ledger, ModelServer

OFFLINE_READING = "openai:gpt-5-mini"
OFFLINE_WRITING = "anthropic:claude-haiku-4-5"


class ModelError(Exception):
    """A model that cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Staff:
    """The agents, and what there is to say about their models."""

    agents: Agents
    description: str
    ledger: Ledger | None
    """What the model served, as it counted itself; only the offline model tells."""


@contextmanager
def hire(reference: str | None) -> Generator[Staff, None, None]:
    """The agents with the model of a reference such as `openai:gpt-5-mini`; offline without one.

    Raises:
        ModelError: the model is unknown, has no price, or lacks a key or a package.
    """
    if reference:
        yield Staff(_real_agents(reference), f"Model: {reference}", None)
        return
    with ModelServer(latency=0.02) as server:
        offline_model.install(server)
        agents = make_agents(server.model(OFFLINE_READING), server.model(OFFLINE_WRITING))
        yield Staff(agents, _OFFLINE, server.ledger)


_OFFLINE = (
    "This is the offline model: no language model, but keyword rules that compute each answer from the "
    f"document. It stands for {OFFLINE_READING} and {OFFLINE_WRITING}: it speaks their protocols, over HTTP "
    "on this machine, and costs are at their prices, but nothing is spent. For a real model, set "
    "FASTROAI_MODEL=openai:gpt-5-mini and OPENAI_API_KEY."
)


def _real_agents(reference: str) -> Agents:
    try:
        agents = make_agents(reference, reference)
        CostCalculator().calculate_cost(reference, input_tokens=1, output_tokens=1)
    except UnpricedModelError as error:
        problem = "no price is known for it, so the budget could not hold; name a model that has a price"
        raise ModelError(f"FASTROAI_MODEL={reference}: {problem}") from error
    except (UnknownModelError, UserError, ImportError) as error:
        problem = str(error).split(". ")[0]
        raise ModelError(f"FASTROAI_MODEL={reference}: {problem}; or unset it to run offline") from error
    return agents
