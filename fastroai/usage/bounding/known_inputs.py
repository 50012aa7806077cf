"""Input tokens that providers reported for earlier requests: bounds for later requests that begin alike.

A request that begins with the same tools, instructions, settings and messages as an earlier one begins
with no more tokens than the earlier one had in all. That holds where a provider tokenizes the same
beginning the same way each time, as cached prefixes require (`ProviderFacts.same_prefix`), within limits:

- The same model at the same URL, within an hour: later, an alias may name another model.
- Everything is in the request, and nothing is named by a URL, which can bring something else each time.
- Thoughts of the model are dropped from turns that are over. So a beginning with thoughts counts only for
  requests that continue the whole measured request: then no dropped thoughts come back.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from pydantic_ai.messages import (
    FileUrl,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    UploadedFile,
)
from pydantic_core import PydanticSerializationError, to_json

from fastroai.usage.bounding.pieces import pieces
from fastroai.usage.bounding.surface import unlisted_in_parameters
from fastroai.usage.facts.settings import DROP_INPUT, SAY_NO_INPUT, SERVER_SIDE_INPUT_SETTINGS

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

    from fastroai.usage.prices.hosts import Host

_REMEMBERED: Final = 16_384
"""The most beginnings that are remembered, of some hundred bytes each."""
_SECONDS: Final = 3_600.0
_DROPS_INPUT: Final = SERVER_SIDE_INPUT_SETTINGS | DROP_INPUT.names
"""Settings with which the reported input may differ from the input in the messages."""
_NOT_SENT: Final = {"timestamp", "run_id", "conversation_id"}


@dataclass(frozen=True, slots=True)
class KnownBeginning:
    """A beginning of a request, and an upper bound on its tokens."""

    messages: int
    """The number of its messages, as `separated`, besides tools and instructions."""
    tokens: int


class KnownInputs:
    """Token counts that providers reported, by beginning of a request. Threads can share one instance."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[int, float]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._known)

    def note(self, messages: Sequence[ModelMessage], digests: Sequence[bytes], input_tokens: int) -> None:
        """Remember the input tokens reported for a request with these messages and `beginnings`."""
        if input_tokens <= 0 or not messages or not isinstance(messages[-1], ModelRequest):
            return  # after an answer, the count may be that of the request before
        messages = separated(messages)
        thoughts, now, last = False, self._clock(), len(messages)
        with self._lock:
            for number, digest in enumerate(digests):
                thoughts = thoughts or (number > 0 and _holds_thoughts(messages[number - 1]))
                if thoughts and number < last:
                    continue
                known, noted = self._known.pop(digest, (input_tokens, now))
                # A whole request has the tokens that were reported for it. A beginning has no more than any
                # request that begins with it. The lowest count stays known for an hour after its request.
                lowest = known < input_tokens and number < last and now - noted <= _SECONDS
                self._known[digest] = (known, noted) if lowest else (input_tokens, now)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)

    def longest(self, digests: Sequence[bytes]) -> KnownBeginning | None:
        """Return the longest of the `beginnings` of a request whose tokens are known; `None` for none."""
        found, now = None, self._clock()
        with self._lock:
            for number, digest in enumerate(digests):
                known = self._known.get(digest)
                if known is not None and now - known[1] <= _SECONDS:
                    found = KnownBeginning(number, known[0])
        return found


KNOWN_INPUTS: Final = KnownInputs()
"""The token counts of this process."""


def separated(messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
    """Return the messages with the system prompt apart, since all calls of an agent begin with it."""
    first = messages[0] if messages else None
    if not isinstance(first, ModelRequest):
        return messages
    system = [part for part in first.parts if isinstance(part, SystemPromptPart)]
    others = [part for part in first.parts if not isinstance(part, SystemPromptPart)]
    if not system or not others:
        return messages
    return [replace(first, parts=system), replace(first, parts=others), *messages[1:]]


def comparable(parameters: ModelRequestParameters) -> dict[str, object]:
    """Return the fields of parameters as they are hashed: sets have another order in each process."""
    return {
        name: sorted(value) if isinstance(value, set | frozenset) else value
        for name, value in vars(parameters).items()
        if not name.startswith("_")
    }


def beginnings(
    host: Host,
    model: Model,
    messages: Sequence[ModelMessage],
    settings: ModelSettings | None,
    parameters: ModelRequestParameters,
) -> Iterator[bytes]:
    """Yield a digest of tools, instructions and settings alone, then with one message more each time.

    The messages are those that `separated` returns. Yields none where the request does not show all its
    input, or its count says nothing of other requests.
    """
    messages = separated(messages)
    given: Mapping[str, object] = {**(model.settings or {}), **(settings or {})}
    if host.rules is None or host.rules.same_prefix is None:
        return
    if parameters.native_tools or any(given.get(setting) is not None for setting in _DROPS_INPUT):
        return
    if any(unlisted_in_parameters(parameters)):
        return
    asked = {name: value for name, value in given.items() if name not in SAY_NO_INPUT.names}
    instructions: set[str | None] = set()
    if parameters.instruction_parts is None:  # instructions of one of the last two requests are sent
        requests = [message for message in messages if isinstance(message, ModelRequest)]
        instructions = {message.instructions for message in requests[-2:]}
    if len(instructions) > 1:
        return
    served_by = [type(model).__qualname__, host.provider, host.url, model.model_name]
    base = [*served_by, asked, comparable(parameters), list(instructions)]
    try:
        digest = hashlib.blake2b(to_json(base, inf_nan_mode="constants"), digest_size=16)
    except PydanticSerializationError:  # such as a tool's metadata, which cannot be compared
        return
    yield digest.digest()
    for message in messages:
        # An unknown piece, a URL or an uploaded file may name input that is not part of the message.
        if any(
            piece.kind == "unknown" or isinstance(piece.item, FileUrl | UploadedFile)
            for piece in pieces([message])
        ):
            return
        try:
            digest.update(ModelMessagesTypeAdapter.dump_json([message], exclude=_VOLATILE))
        except (PydanticSerializationError, ValueError):  # such a request cannot be sent either
            return
        yield digest.digest()


_VOLATILE: Final[Mapping[str, Any]] = {
    "__all__": {**dict.fromkeys(_NOT_SENT, True), "parts": {"__all__": {"timestamp": True}}}
}


def _holds_thoughts(message: ModelMessage) -> bool:
    """Return whether an answer has a part that is kept or dropped depending on the messages after it."""
    return isinstance(message, ModelResponse) and any(
        not isinstance(part, TextPart | ToolCallPart) or part.provider_details for part in message.parts
    )
