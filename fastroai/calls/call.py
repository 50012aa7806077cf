"""One agent call as a value, and what a step can ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from fastroai.errors import ConfigurationError
from fastroai.runtime import Classifier, RetryPolicies
from fastroai.runtime.labels import NO_LABELS, Labels

if TYPE_CHECKING:
    from pydantic_ai import (
        AgentCapability,
        AgentModelSettings,
        AgentRetries,
        AgentSpec,
        CancellationToken,
        Conversation,
        UsageLimits,
    )
    from pydantic_ai.agent import EventStreamHandler
    from pydantic_ai.agent.abstract import AgentMetadata
    from pydantic_ai.messages import ModelMessage, UserContent
    from pydantic_ai.models import Model
    from pydantic_ai.output import OutputSpec
    from pydantic_ai.tools import DeferredToolResults
    from pydantic_ai.toolsets import AbstractToolset
    from pydantic_ai.usage import RunUsage

    from fastroai.calls.response import ChatResponse
    from fastroai.calls.stream import ChatStream
    from fastroai.tracing import Tracer
    from fastroai.usage.limits import Limits

Prompt: TypeAlias = "str | Sequence[UserContent] | None"
"""What PydanticAI takes as a prompt: text, or text and other content."""

OutputT = TypeVar("OutputT")
OutputT_co = TypeVar("OutputT_co", covariant=True)


@dataclass(slots=True, kw_only=True)
class AgentCall:
    """Everything that one agent call is made with: PydanticAI's run arguments and FastroAI's own.

    Nobody changes it; making a frozen one takes longer.

    Internal to the library: `FastroAgent.run` and `StepContext.run` have it all as real parameters.
    The types of `deps`, `instructions` and the like are checked there, where the editor sees them.
    """

    prompt: Prompt
    output_type: OutputSpec[Any] | None = None
    conversation: Conversation | None = None
    message_history: Sequence[ModelMessage] | None = None
    deferred_tool_results: DeferredToolResults | None = None
    conversation_id: str | None = None
    run_id: str | None = None
    model: Model | str | None = None
    instructions: object = None
    deps: object = None
    model_settings: AgentModelSettings[Any] | None = None
    usage_limits: UsageLimits | None = None
    cancellation_token: CancellationToken | None = None
    usage: RunUsage | None = None
    metadata: AgentMetadata[Any] | None = None
    retries: int | AgentRetries | None = None
    toolsets: Sequence[AbstractToolset[Any]] | None = None
    event_stream_handler: EventStreamHandler[Any] | None = None
    capabilities: Sequence[AgentCapability[Any]] | None = None
    workspace: object = None
    spec: dict[str, Any] | AgentSpec | None = None
    tracer: Tracer | None = None
    timeout: float | None = None
    """Seconds for this attempt, said for this call; `None` for the agent's own setting and the default."""
    default_timeout: float | None = None
    """Seconds that the step's configuration allows an agent call; the agent's own may be shorter."""
    request_retries: int | None = None
    """Extra attempts at each request; `None` for the agent's own setting."""
    request_retry_delay: float | None = None
    """Seconds; the base of the backoff between attempts at a request; `None` for that of all requests."""
    retry: RetryPolicies | None = None
    """What holds for each request instead of `request_retries` and `request_retry_delay`."""
    classifiers: tuple[Classifier, ...] = ()
    limits: Limits | None = None
    labels: Labels = NO_LABELS
    call: str | None = None
    """What tells this call from others of the same attempt at a step, where a step makes it."""
    attempt: int = 1
    before: Callable[[AgentCall], Awaitable[AgentCall]] | None = None
    """Makes a streamed call ready when its stream is first read."""
    after: Callable[[Sequence[ModelMessage]], None] | None = None
    """Takes the new messages of a streamed call that came to its end."""

    def for_attempt(self, attempt: int) -> AgentCall:
        """The same call, tried again."""
        return self if attempt == self.attempt else replace(self, attempt=attempt)


@runtime_checkable
class AgentLike(Protocol[OutputT_co]):
    """What `StepContext.run` can ask: a `FastroAgent`."""

    def dispatch(self, call: AgentCall) -> Coroutine[Any, Any, ChatResponse[OutputT_co]]:
        """Make one attempt at a call."""
        ...

    def dispatch_stream(self, call: AgentCall) -> ChatStream[OutputT_co]:
        """Make a call whose answer is streamed."""
        ...


def check_agent(agent: object) -> None:
    """Refuse what is not a `FastroAgent`, and say what to do about it. Raises `ConfigurationError`."""
    # As isinstance(agent, AgentLike) does, which looks all names of the protocol up each time.
    if not (callable(getattr(agent, "dispatch", None)) and callable(getattr(agent, "dispatch_stream", None))):
        raise no_agent(agent)


def no_agent(agent: object) -> ConfigurationError:
    """Return the error for an object that is not a `FastroAgent`."""
    from pydantic_ai.agent import AbstractAgent

    expected = "a FastroAgent"
    if isinstance(agent, AbstractAgent):
        expected = "a FastroAgent; wrap the PydanticAI agent: FastroAgent(agent=agent)"
    return ConfigurationError("agent", agent, expected)  # pyright: ignore[reportUnknownArgumentType]
