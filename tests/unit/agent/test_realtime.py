"""Realtime sessions and direct decisions: refused inside of runs, unless money is set aside for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any, cast

import httpx2
import pytest
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.decision import DecisionModel, DecisionRequest, NoulAnswer, NoulQuestion
from pydantic_ai.models.system_one import SystemOneModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.system_one import SystemOneProvider
from pydantic_ai.realtime import RealtimeModel
from pydantic_ai.realtime.codec import CancelResponse
from pydantic_ai.realtime.openai import OpenAIRealtimeModel
from websockets.asyncio.server import ServerConnection, serve

from fastroai import Budget, CostCalculator, FastroAgent, budget_scope, spend
from fastroai.agent import Metered
from fastroai.errors import ConfigurationError, UnmeteredRequestError

pytestmark = pytest.mark.filterwarnings("ignore:Capability `Metered` implements:UserWarning")


class OpenAI:
    """OpenAI's Realtime API on this machine: it opens sessions, and keeps what it is sent."""

    def __init__(self) -> None:
        self.sessions = 0
        self.heard: list[str] = []

    async def __call__(self, connection: ServerConnection) -> None:
        self.sessions += 1
        session = {"type": "realtime", "model": "gpt-realtime", "id": "s", "object": "realtime.session"}
        await connection.send(json.dumps({"type": "session.created", "event_id": "e", "session": session}))
        async for message in connection:
            event = json.loads(message)
            self.heard.append(event["type"])
            if event["type"] == "session.update":
                answer = {"type": "session.updated", "event_id": "e", "session": event["session"] | session}
                await connection.send(json.dumps(answer))

    @asynccontextmanager
    async def model(self) -> AsyncIterator[RealtimeModel]:
        async with serve(self, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            client = AsyncOpenAI(api_key="k", base_url=f"http://127.0.0.1:{port}/v1")
            yield OpenAIRealtimeModel("gpt-realtime", provider=OpenAIProvider(openai_client=client))
            await client.close()


ANYTHING: dict[str, Any] = {
    "messages": [],
    "model_settings": None,
    "model_request_parameters": ModelRequestParameters(),
}


async def test_a_session_is_refused_in_a_run_before_it_is_opened() -> None:
    provider = OpenAI()
    async with provider.model() as plain, budget_scope(Budget(usd=1)) as scope:
        model = Metered().realtime_model(plain)
        with pytest.raises(UnmeteredRequestError, match=r"gpt-realtime cannot be counted in .*spend\(\)"):
            async with model.connect(**ANYTHING):
                pass
    assert (provider.sessions, scope.records) == (0, ())


async def test_outside_of_runs_a_session_is_as_it_was() -> None:
    provider = OpenAI()
    async with provider.model() as plain:
        model = Metered().realtime_model(plain)
        assert isinstance(model, OpenAIRealtimeModel)
        assert (model.model_id, model.profile) == (plain.model_id, plain.profile)
        async with model.connect(**ANYTHING) as connection:
            await connection.send("hello")
    assert provider.sessions == 1


async def test_a_session_is_paid_for_with_what_is_set_aside() -> None:
    provider = OpenAI()
    async with provider.model() as plain, budget_scope(Budget(usd=1)) as scope:
        model = Metered().realtime_model(plain)
        async with spend("0.50", model="openai:gpt-realtime") as purchase:
            async with model.connect(**ANYTHING) as connection:
                await connection.send("hello")
            purchase.settle("0.21")
    assert provider.sessions == 1
    assert scope.usage.cost_usd == Decimal("0.21")


async def test_a_session_from_outside_cannot_speak_in_a_run_and_can_stop_speaking() -> None:
    provider = OpenAI()
    async with (
        provider.model() as plain,
        Metered().realtime_model(plain).connect(**ANYTHING) as connection,
        budget_scope(Budget(usd=1)),
    ):
        with pytest.raises(UnmeteredRequestError):
            await connection.send("hello")
        await connection.send(CancelResponse())
        async with spend("0.50"):
            await connection.send("hello")
            late = asyncio.create_task(_after(released := asyncio.Event(), connection))
        released.set()
        with pytest.raises(UnmeteredRequestError):
            await late
    assert provider.heard.count("conversation.item.create") == 1


async def _after(released: asyncio.Event, connection: Any) -> None:
    """Speak once the money that was set aside is no longer."""
    await released.wait()
    await connection.send("still there?")


@pytest.mark.parametrize("call", ["answer_webrtc_offer", "create_client_secret"])
async def test_what_lets_a_browser_begin_a_session_is_refused_in_a_run(call: str) -> None:
    provider = OpenAI()
    async with provider.model() as plain, budget_scope(Budget(usd=1)):
        model = Metered().realtime_model(plain)
        with pytest.raises(UnmeteredRequestError):
            await getattr(model, call)(*(["v=0"] if call == "answer_webrtc_offer" else []))


async def test_a_cancelled_session_in_spend_counts_what_was_set_aside() -> None:
    provider, opened = OpenAI(), asyncio.Event()

    async def talk(model: RealtimeModel) -> None:
        async with spend("0.50"), model.connect(**ANYTHING):
            opened.set()
            await asyncio.Event().wait()

    async with provider.model() as plain, budget_scope(Budget(usd=1)) as scope:
        task = asyncio.create_task(talk(Metered().realtime_model(plain)))
        await opened.wait()
        task.cancel()
        await asyncio.wait([task])
    assert (scope.usage.committed_usd, scope.usage.cost_complete) == (Decimal("0.50"), False)


def agents() -> list[Agent[Any, Any]]:
    mine: Agent[Any, Any] = Agent("test", capabilities=[Metered()])
    return [mine, FastroAgent("test").agent]


@pytest.mark.parametrize("agent", agents(), ids=["plain", "fastro"])
async def test_a_session_of_a_metered_agent_is_refused_in_a_run(agent: Agent[Any, Any]) -> None:
    provider = OpenAI()
    async with provider.model() as plain:
        async with agent.realtime(plain).session():
            pass
        async with budget_scope(Budget(usd=1)) as scope:
            with pytest.raises(UnmeteredRequestError):
                async with agent.realtime(plain).session():
                    pass
            with pytest.raises(UnmeteredRequestError):
                await agent.realtime(plain).create_client_secret()
            async with spend("0.50") as purchase, agent.realtime(plain).session() as session:
                await session.send("hello")
                purchase.settle("0.10")
    assert provider.sessions == 2
    assert scope.usage.cost_usd == Decimal("0.10")


async def test_a_session_of_an_agent_without_a_meter_is_refused_where_its_model_has_one() -> None:
    provider = OpenAI()
    async with provider.model() as plain:
        talk = Agent("test").realtime(Metered().realtime_model(plain))
        async with talk.session() as session, budget_scope(Budget(usd=1)):
            with pytest.raises(UnmeteredRequestError):
                await session.send("hello")


@pytest.mark.parametrize("wrong", [None, 3, Agent("test")])
def test_what_is_no_realtime_model_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="'provider:model', or a PydanticAI RealtimeModel"):
        Metered().realtime_model(wrong)


# --- decisions ---


class SystemOne:
    """The address of a model that decides."""

    def __init__(self) -> None:
        self.billed = 0

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.billed += 1
        names = json.loads(request.content)["questions"]
        answers = {name: {"type": "noul", "noul": 0.9} for name in names}
        usage = {"input_tokens": 20, "output_tokens": 2}
        return httpx2.Response(200, json={"model": "jev", "answers": answers, "usage": usage})

    def model(self) -> DecisionModel[Any]:
        client = httpx2.AsyncClient(transport=httpx2.MockTransport(self))
        provider = SystemOneProvider(base_url="https://decide.example.com", api_key="k", http_client=client)
        return SystemOneModel("jev", provider=provider)


QUESTION = DecisionRequest(state="It rains.", questions={"wet": NoulQuestion(instructions="Is it wet?")})


async def decide(model: Any) -> Any:
    return (await model.decide(QUESTION, {})).answers["wet"]


async def test_a_decision_of_ones_own_is_refused_in_a_run() -> None:
    provider = SystemOne()
    model = Metered().model(provider.model())
    async with budget_scope(Budget(requests=5)) as scope:
        with pytest.raises(UnmeteredRequestError, match=r"decide\(\).*output_type"):
            await decide(model)
        with pytest.raises(UnmeteredRequestError):
            await decide(Metered().model(WrapperModel(provider.model())))
    assert (provider.billed, scope.records) == (0, ())
    assert isinstance(await decide(model), NoulAnswer)


async def test_a_decision_of_ones_own_is_paid_for_with_what_is_set_aside() -> None:
    provider = SystemOne()
    async with budget_scope(Budget(usd=1)) as scope, spend("0.01") as purchase:
        assert isinstance(await decide(Metered().model(provider.model())), NoulAnswer)
        purchase.settle("0.002")
    assert scope.usage.cost_usd == Decimal("0.002")


async def test_a_decision_of_an_agent_is_a_request_of_it() -> None:
    provider = SystemOne()
    async with budget_scope(Budget(requests=5)) as scope:
        asks: Agent[Any, bool] = Agent(provider.model(), instructions="Is it wet?", output_type=bool)
        prices = CostCalculator(pricing_overrides={"jev": {"input_per_mtok": 1, "output_per_mtok": 1}})
        agent = FastroAgent(agent=asks, cost_calculator=prices)
        await agent.run("It rains.")
    assert scope.usage.request_count == provider.billed == 1


async def test_a_model_that_does_not_decide_says_so() -> None:
    model = cast(Any, Metered().model("test"))
    with pytest.raises(AttributeError, match="decide"):
        await model.decide(QUESTION, {})
