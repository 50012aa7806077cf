"""Agents with exact cost: `FastroAgent`, its responses, and the meter for plain PydanticAI agents."""

from fastroai.agent.agent import FastroAgent
from fastroai.agent.config import AgentConfig
from fastroai.agent.deferred import AskPeople
from fastroai.agent.hooks import AfterDispatch as AfterDispatch
from fastroai.agent.hooks import BeforeDispatch as BeforeDispatch
from fastroai.agent.hooks import Dispatch
from fastroai.agent.requests.metering import Metered
from fastroai.agent.step import AgentStep, AgentStepWrapper
from fastroai.calls.response import ChatResponse, StreamChunk
from fastroai.calls.stream import ChatStream, EventStream, ResponseEvent

__all__ = [
    "AgentConfig",
    "AgentStep",
    "AgentStepWrapper",
    "AskPeople",
    "ChatResponse",
    "ChatStream",
    "Dispatch",
    "EventStream",
    "FastroAgent",
    "Metered",
    "ResponseEvent",
    "StreamChunk",
]
