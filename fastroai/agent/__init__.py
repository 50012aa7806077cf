"""Agents with exact cost: `FastroAgent`, its responses, and the meter for plain PydanticAI agents."""

from fastroai.agent.agent import FastroAgent
from fastroai.agent.config import AgentConfig
from fastroai.agent.deferred import AskPeople
from fastroai.agent.hooks import AfterDispatch, BeforeDispatch, Dispatch
from fastroai.agent.metering import Metered
from fastroai.agent.step import AgentStep, AgentStepWrapper
from fastroai.calls.response import ChatResponse, StreamChunk
from fastroai.calls.stream import ChatStream, EventStream, ResponseEvent

__all__ = [
    "AfterDispatch",
    "AgentConfig",
    "AgentStep",
    "AgentStepWrapper",
    "AskPeople",
    "BeforeDispatch",
    "ChatResponse",
    "ChatStream",
    "Dispatch",
    "EventStream",
    "FastroAgent",
    "Metered",
    "ResponseEvent",
    "StreamChunk",
]
