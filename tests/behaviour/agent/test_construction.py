"""What an agent is built from, and what of it reaches the provider."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from typing import Any

import pytest
from pydantic_ai import Agent, ModelSettings, RunContext
from pydantic_ai.exceptions import ModelHTTPError, UserError
from pydantic_ai.models import Model
from pydantic_ai.models.test import TestModel

from fastroai import AgentConfig, CostCalculator, FastroAgent
from fastroai.errors import ConfigurationError, UnknownModelError, UnpricedModelError
from fastroai.testing import Fault, ModelServer, Reply, Usage

SAMPLED = ["openai:gpt-4o-mini", "openai-chat:gpt-4o-mini", "anthropic:claude-haiku-4-5"]
"""Models that take a temperature."""


def bodies(server: ModelServer) -> list[dict[str, Any]]:
    """What the server was sent."""
    return [entry.body for entry in server.ledger.entries]


def sampling(body: dict[str, Any]) -> dict[str, Any]:
    """The settings of a request, under one name for each."""
    names = {"max_output_tokens": "max_tokens", "max_completion_tokens": "max_tokens"}
    wanted = ("temperature", "max_tokens", "top_p", "seed")
    return {names.get(key, key): value for key, value in body.items() if names.get(key, key) in wanted}


@pytest.fixture
def environment(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that are built from a reference reach the server."""
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)


# --- what is sent ---


async def test_what_is_not_given_is_not_sent(server: ModelServer, model: Model, reference: str) -> None:
    await FastroAgent(model).run("?")
    await FastroAgent(model, config=AgentConfig()).run("?")
    await Agent(model).run("?")
    mine, configured, bare = bodies(server)
    assert mine == configured == bare
    # Anthropic demands a limit; PydanticAI sends the model's own.
    assert sampling(mine) == ({"max_tokens": 64_000} if reference.startswith("anthropic") else {})
    assert not {"instructions", "system", "tools", "response_format", "text"} & mine.keys()
    assert not any(message.get("role") in ("system", "developer") for message in mine.get("messages", []))


@pytest.mark.parametrize("reference", SAMPLED)
async def test_what_is_given_is_sent(server: ModelServer, model: Model) -> None:
    await FastroAgent(model, temperature=0.0, max_tokens=77).run("?")
    await FastroAgent(model, model_settings={"temperature": 0.3, "top_p": 0.5}, max_tokens=9).run("?")
    await FastroAgent(model, temperature=0.1, max_tokens=1).run("?", model_settings={"temperature": 0.9})
    assert [sampling(body) for body in bodies(server)] == [
        {"temperature": 0.0, "max_tokens": 77},
        {"temperature": 0.3, "top_p": 0.5, "max_tokens": 9},
        {"temperature": 0.9, "max_tokens": 1},
    ]


@pytest.mark.parametrize("reference", SAMPLED)
async def test_settings_that_are_computed_for_each_run_go_with_the_short_forms(
    server: ModelServer, model: Model
) -> None:
    def settings(context: RunContext[float]) -> ModelSettings:
        return {"temperature": context.deps}

    config = AgentConfig(model_settings={"top_p": 0.5, "temperature": 1.0})
    agent = FastroAgent(model, config=config, model_settings=settings, max_tokens=5, deps_type=float)
    await agent.run("?", deps=0.25)
    assert sampling(bodies(server)[0]) == {"temperature": 0.25, "top_p": 0.5, "max_tokens": 5}


async def test_instructions_and_system_prompt_are_passed_through_as_what_they_are(
    server: ModelServer, model: Model
) -> None:
    options: dict[str, Any] = {"instructions": "Be brief.", "system_prompt": ("You are Ada.", "You count.")}
    mine, bare = FastroAgent(model, **options), Agent(model, **options)
    history = (await mine.run("one")).all_messages()
    await mine.run("two", message_history=history)
    bare_history = (await bare.run("one")).all_messages()
    await bare.run("two", message_history=bare_history)
    first, second, bare_first, bare_second = bodies(server)
    assert first == bare_first
    assert without_ids(second) == without_ids(bare_second)
    assert "Be brief." in json.dumps(second)
    assert json.dumps(second).count("You are Ada.") == 1


def without_ids(body: dict[str, Any]) -> str:
    """A body as text, less the ids that the server gave its earlier answers."""
    return re.sub(r"(msg|resp|req|call)_\w+", "id", json.dumps(body))


# --- which model ---


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("named", "protocol", "name"),
    [
        ("gpt-5-mini", "openai-responses", "gpt-5-mini"),
        ("openai:gpt-5-mini", "openai-responses", "gpt-5-mini"),
        ("openai-chat:gpt-5-mini", "openai-chat", "gpt-5-mini"),
        ("claude-haiku-4-5", "anthropic", "claude-haiku-4-5"),
        ("anthropic:claude-haiku-4-5", "anthropic", "claude-haiku-4-5"),
    ],
)
@pytest.mark.parametrize("given", ["positionally", "by name", "in the config", "for the call"])
async def test_a_reference_means_its_provider(
    server: ModelServer, named: str, protocol: str, name: str, given: str
) -> None:
    match given:
        case "positionally":
            response = await FastroAgent(named).run("?")
        case "by name":
            response = await FastroAgent(model=named).run("?")
        case "in the config":
            response = await FastroAgent(config=AgentConfig(model=named)).run("?")
        case _:
            response = await FastroAgent(TestModel()).run("?", model=named)
    [entry] = server.ledger.entries
    assert (entry.protocol, entry.model) == (protocol, name)
    assert response.model == name
    assert response.provider == ("anthropic" if protocol == "anthropic" else "openai")
    assert response.cost_usd > 0


@pytest.mark.parametrize("given", ["to the agent", "in the config", "for the call"])
async def test_a_reference_whose_provider_cannot_be_told_names_the_candidates(given: str) -> None:
    with pytest.raises(UnknownModelError, match="'groq:llama-3.3-70b-versatile'") as caught:
        match given:
            case "to the agent":
                FastroAgent("llama-3.3-70b-versatile")
            case "in the config":
                FastroAgent(config=AgentConfig(model="llama-3.3-70b-versatile"))
            case _:
                await FastroAgent(TestModel()).run("?", model="llama-3.3-70b-versatile")
    assert caught.value.reference == "llama-3.3-70b-versatile"
    assert isinstance(caught.value, ValueError)


async def test_an_agent_without_a_model_says_so_when_it_is_run() -> None:
    with pytest.raises(UserError, match="model"):
        await FastroAgent().run("?")


def test_a_missing_key_is_reported_when_the_agent_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UserError, match="OPENAI_API_KEY"):
        FastroAgent("openai:gpt-5-mini")


async def test_a_deferred_model_is_looked_up_on_the_first_run(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    agent = FastroAgent("gpt-5-mini", defer_model_check=True)
    with pytest.raises(UserError, match="OPENAI_API_KEY"):
        await agent.run("?")
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    assert (await agent.run("?")).output == "echo: ?"


# --- config ---


async def test_a_config_says_what_the_constructor_does_not(server: ModelServer) -> None:
    config = AgentConfig(
        model=server.model("openai:gpt-4o-mini"),
        name="configured",
        instructions="Be brief.",
        system_prompt="You are Ada.",
        temperature=0.2,
        max_tokens=50,
        model_settings={"top_p": 0.9},
    )
    agent = FastroAgent(config=config)
    await agent.run("?")
    [body] = bodies(server)
    assert agent.name == agent.agent.name == "configured"
    assert sampling(body) == {"temperature": 0.2, "max_tokens": 50, "top_p": 0.9}
    assert "Be brief." in json.dumps(body)
    assert "You are Ada." in json.dumps(body)


async def test_what_the_constructor_is_given_wins_over_the_config(server: ModelServer) -> None:
    config = AgentConfig(
        model="openai:no-such-model",
        name="configured",
        instructions="Be verbose.",
        system_prompt="You are Bob.",
        temperature=0.2,
        max_tokens=50,
        model_settings={"top_p": 0.9, "seed": 1},
    )
    agent = FastroAgent(
        server.model("openai-chat:gpt-4o-mini"),
        config=config,
        name="given",
        instructions="Be brief.",
        system_prompt="You are Ada.",
        temperature=0.0,
        max_tokens=5,
        model_settings={"top_p": 0.1},
    )
    await agent.run("?")
    [body] = bodies(server)
    assert agent.name == "given"
    assert sampling(body) == {"temperature": 0.0, "max_tokens": 5, "top_p": 0.1, "seed": 1}
    assert "Be brief." in json.dumps(body)
    assert "You are Ada." in json.dumps(body)
    assert "verbose" not in json.dumps(body)


async def test_request_retries_timeout_and_budget_come_from_the_config_too(server: ModelServer) -> None:
    unknown = server.model("openai:my-own-model")
    config = AgentConfig(request_retries=0, cost_budget=1_000_000)
    server.fail_next(1, Fault.status(500))
    with pytest.raises(ModelHTTPError):
        await FastroAgent(server.model("openai:gpt-5-mini"), config=config).run("?")
    assert len(server.ledger.entries) == 1
    with pytest.raises(UnpricedModelError):
        await FastroAgent(unknown, config=config).run("?")
    server.script(Reply(fault=Fault.hang()))
    with pytest.raises(TimeoutError):
        await FastroAgent(server.model("openai:gpt-5-mini"), config=AgentConfig(timeout=0.3)).run("?")


async def test_prices_come_from_the_config_too(server: ModelServer) -> None:
    server.script(Reply("ok", usage=Usage(100, 10)))
    prices = CostCalculator(pricing_overrides={"my-own-model": {"input_per_mtok": 10, "output_per_mtok": 0}})
    config = AgentConfig(cost_calculator=prices)
    response = await FastroAgent(server.model("openai:my-own-model"), config=config).run("?")
    assert response.cost_microcents == 1_000


def test_a_config_is_a_value_that_agents_can_share() -> None:
    config = AgentConfig(model=TestModel(), max_tokens=3)
    assert config == AgentConfig(model=config.model, max_tokens=3)
    first, second = FastroAgent(config=config), FastroAgent(config=config, name="second")
    assert (first.name, second.name) == ("agent", "second")
    assert repr(second) == "FastroAgent(name='second')"


# --- what cannot be meant ---


@pytest.mark.parametrize("option", ["temprature", "max_token", "retry", "verbose"])
async def test_a_misspelt_option_is_a_type_error(option: str) -> None:
    wrong: dict[str, Any] = {option: 1}
    with pytest.raises(TypeError, match=option):
        FastroAgent(TestModel(), **wrong)
    with pytest.raises(TypeError, match=option):
        AgentConfig(**wrong)
    agent = FastroAgent(TestModel())
    for call in (agent.run, agent.run_sync, agent.run_stream, agent.run_stream_events):
        with pytest.raises(TypeError, match=option):
            call("?", **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"timeout": "5"},
        {"max_tokens": 0},
        {"max_tokens": 1.5},
        {"request_retries": -1},
        {"request_retries": True},
        {"cost_budget": 0},
        {"cost_budget": -1},
    ],
    ids=repr,
)
async def test_an_option_that_cannot_be_meant_is_refused_when_it_is_given(wrong: dict[str, Any]) -> None:
    [option] = wrong
    with pytest.raises(ConfigurationError, match=f"{option}="):
        FastroAgent(TestModel(), **wrong)
    with pytest.raises(ConfigurationError, match=f"{option}="):
        AgentConfig(**wrong)


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"request_retries": -1}, {"cost_budget": 0}], ids=repr)
async def test_an_option_of_a_call_that_cannot_be_meant_is_refused_before_any_request(
    server: ModelServer, wrong: dict[str, Any]
) -> None:
    [option] = wrong
    agent = FastroAgent(server.model("openai:gpt-5-mini"))
    with pytest.raises(ConfigurationError, match=f"{option}="):
        await agent.run("?", **wrong)
    with pytest.raises(ConfigurationError, match=f"{option}="):
        async for _ in agent.run_stream("?", **wrong):
            pass
    with pytest.raises(ConfigurationError, match=f"{option}="):
        async for _ in agent.run_stream_events("?", **wrong):
            pass
    assert server.ledger.entries == ()


def tool() -> None:
    """Nothing."""


@pytest.mark.parametrize(
    "option",
    [
        {"model": TestModel()},
        {"output_type": int},
        {"instructions": "Be brief."},
        {"system_prompt": "You are Ada."},
        {"deps_type": int},
        {"description": "An agent"},
        {"model_settings": {"top_p": 0.5}},
        {"temperature": 0.0},
        {"max_tokens": 5},
        {"retries": 3},
        {"validation_context": 1},
        {"tools": [tool]},
        {"toolsets": [object()]},
        {"defer_model_check": True},
        {"end_strategy": "early"},
        {"metadata": {"a": 1}},
        {"tool_timeout": 1.0},
        {"max_concurrency": 1},
        {"capabilities": [object()]},
        {"config": AgentConfig(model=TestModel())},
        {"config": AgentConfig(instructions="Be brief.")},
        {"config": AgentConfig(system_prompt="You are Ada.")},
        {"config": AgentConfig(temperature=0.0)},
    ],
    ids=", ".join,  # of the names: a repr may hold an address, which workers know differently
)
def test_an_agent_that_is_brought_along_takes_nothing_that_builds_one(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="set it on that agent"):
        FastroAgent(agent=Agent(TestModel()), **option)


async def test_an_agent_that_is_brought_along_takes_what_is_fastroais(server: ModelServer) -> None:
    plain = Agent(server.model("openai:gpt-5-mini"), name="plain")
    seen: list[str] = []
    agent = FastroAgent(
        agent=plain,
        config=AgentConfig(timeout=5, request_retries=0),
        name="mine",
        cost_budget=1_000_000,
        on_before_dispatch=lambda dispatch: seen.append(dispatch.agent_name),
    )
    assert agent.agent is plain
    response = await agent.run("?")
    assert response.output == "echo: ?"
    assert seen == [agent.name] == ["mine"]
    assert FastroAgent(agent=plain).name == "plain"


LOADED_WHERE = """
import asyncio, sys, threading
from fastroai import FastroAgent

threads = dict()

class Watch:
    def find_spec(self, name, path=None, target=None):
        threads.setdefault(name, threading.current_thread() is threading.main_thread())

async def main():
    agent = FastroAgent("openai:gpt-5-mini", defer_model_check=True)
    assert "openai" not in sys.modules
    sys.meta_path.insert(0, Watch())
    response = await agent.run("?")
    print(response.output, threads["openai"])

asyncio.run(main())
"""


async def test_the_sdk_of_a_deferred_model_is_imported_in_a_thread(server: ModelServer) -> None:
    environment = {**os.environ, **server.environment()}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LOADED_WHERE, env=environment, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    assert printed.decode().split("\n")[0] == "echo: ? False"
