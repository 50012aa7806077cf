"""One agent call as a value, and the protocol of the agents that a step can call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from fastroai.errors import ConfigurationError
from fastroai.records import Duration
from fastroai.runtime import Classifier, RetryPolicies
from fastroai.runtime.labels import NO_LABELS, Labels

if TYPE_CHECKING:
    from pydantic_ai.agent import EventStreamHandler
    from pydantic_ai.messages import ModelMessage, UserContent
    from pydantic_ai.output import OutputSpec
    from typing_extensions import Unpack

    from fastroai.calls.options import PassedOptions, RequestOptions
    from fastroai.calls.response import ChatResponse
    from fastroai.calls.stream import ChatStream
    from fastroai.runtime.facts import Asks
    from fastroai.tracing import Tracer
    from fastroai.usage.limits import Limits

Prompt: TypeAlias = "str | Sequence[UserContent] | None"
"""A prompt of PydanticAI: text, or text and other content."""

OutputT = TypeVar("OutputT")
OutputT_co = TypeVar("OutputT_co", covariant=True)


def _no_options() -> PassedOptions[Any]:
    return {}


@dataclass(slots=True, kw_only=True)
class AgentCall:
    """The arguments of one agent call: PydanticAI's run arguments and FastroAI's own.

    A call is never changed. It is not frozen only because a frozen one takes longer to make.

    Internal to the library. The types of `deps`, `instructions` and the like are checked where people give
    them: in the signatures of `FastroAgent.run` and `StepContext.run`.
    """

    prompt: Prompt
    deps: object = None
    message_history: Sequence[ModelMessage] | None = None
    output_type: OutputSpec[Any] | None = None
    options: PassedOptions[Any] = field(default_factory=_no_options)
    """PydanticAI's other run options, those that were given, as they are passed on to it."""
    event_stream_handler: EventStreamHandler[Any] | None = None
    tracer: Tracer | None = None
    timeout: Duration | None = None
    """Seconds for this attempt, set for this call; `None` for the agent's own setting or the default."""
    default_timeout: float | None = None
    """Seconds that the step's configuration allows an agent call; the agent's own may be shorter."""
    request_retries: int | None = None
    """Extra attempts at each request; `None` for the agent's own setting."""
    request_retry_delay: float | None = None
    """Base of the backoff between attempts at a request, in seconds; `None` for the default of requests."""
    retry: RetryPolicies | None = None
    """Retry policies of each request, in place of `request_retries` and `request_retry_delay`."""
    classifiers: tuple[Classifier, ...] = ()
    limits: Limits | None = None
    labels: Labels = NO_LABELS
    call: str | None = None
    """Name or number of this call within the attempt at a step; `None` if no step makes the call."""
    attempt: int = 1
    asks: Asks | None = None
    """What a typed function declares for the call; `None` for what the agent declares."""
    before: Callable[[AgentCall], Awaitable[AgentCall]] | None = None
    """Function that prepares a streamed call when its stream is first read."""
    after: Callable[[Sequence[ModelMessage]], None] | None = None
    """Function that is given the new messages of a streamed call that came to its end."""

    def for_attempt(self, attempt: int) -> AgentCall:
        """Return the same call with this number of the attempt."""
        return self if attempt == self.attempt else replace(self, attempt=attempt)

    def with_options(self, **options: Unpack[RequestOptions[Any]]) -> AgentCall:
        """Return the same call with these options of PydanticAI in place of its own."""
        return replace(self, options={**self.options, **options})


@runtime_checkable
class AgentLike(Protocol[OutputT_co]):
    """An agent that `StepContext.run` can call: a `FastroAgent`."""

    def dispatch(self, call: AgentCall) -> Coroutine[Any, Any, ChatResponse[OutputT_co]]:
        """Make one attempt at a call."""
        ...

    def dispatch_stream(self, call: AgentCall) -> ChatStream[OutputT_co]:
        """Make a call whose answer is streamed."""
        ...


def check_agent(agent: object) -> None:
    """Refuse an object that is not a `FastroAgent`. Raises `ConfigurationError`, which says what to do."""
    # isinstance(agent, AgentLike) does the same, but looks up all names of the protocol each time.
    if not (callable(getattr(agent, "dispatch", None)) and callable(getattr(agent, "dispatch_stream", None))):
        raise no_agent(agent)


def no_agent(agent: object) -> ConfigurationError:
    """Return the error for an object that is not a `FastroAgent`."""
    from pydantic_ai.agent import AbstractAgent

    expected = "a FastroAgent"
    if isinstance(agent, AbstractAgent):
        expected = "a FastroAgent; wrap the PydanticAI agent: FastroAgent(agent=agent)"
    return ConfigurationError("agent", agent, expected)  # pyright: ignore[reportUnknownArgumentType]
