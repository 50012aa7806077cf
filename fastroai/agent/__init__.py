"""Agents with exact cost: `FastroAgent`, its responses, and the meter for plain PydanticAI agents.

Each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.agent.agent import FastroAgent as FastroAgent
    from fastroai.agent.config import AgentConfig as AgentConfig
    from fastroai.agent.deferred import AskPeople as AskPeople
    from fastroai.agent.hooks import AfterDispatch as AfterDispatch
    from fastroai.agent.hooks import BeforeDispatch as BeforeDispatch
    from fastroai.agent.hooks import Dispatch as Dispatch
    from fastroai.agent.requests.metering import Metered as Metered
    from fastroai.agent.step import AgentStep as AgentStep
    from fastroai.agent.step import AgentStepWrapper as AgentStepWrapper
    from fastroai.calls.response import ChatResponse as ChatResponse
    from fastroai.calls.response import StreamChunk as StreamChunk
    from fastroai.calls.stream import ChatStream as ChatStream
    from fastroai.calls.stream import EventStream as EventStream
    from fastroai.calls.stream import ResponseEvent as ResponseEvent
else:  # a type checker would take any name, if it saw `__getattr__`
    lazy_names(__name__, unlisted=["AfterDispatch", "BeforeDispatch"])
