"""Replies of the server, with their usage and their faults."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Literal, TypeAlias

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]

Duration: TypeAlias = float | timedelta
"""A length of time: seconds, or a `timedelta`."""

FaultKind: TypeAlias = Literal[
    "status",
    "slow",
    "hang",
    "cut",
    "disconnect",
    "malformed",
    "wrong_schema",
    "missing_usage",
    "missing_finish_reason",
]


@dataclass(frozen=True)
class Usage:
    """The tokens of one request, or the sum of several.

    `input_tokens` and `output_tokens` are totals. `input_tokens` includes cached and audio input, and
    `output_tokens` includes reasoning and audio output, as OpenAI reports and PydanticAI counts them.
    (Anthropic reports input without the cached parts; the server subtracts there.) Two usages can be added
    with `+`.

    Raises:
        ValueError: a count is negative or not an int, or a part exceeds its total. Tokens read from and
            written to the cache are compared with the input together, each other part by itself.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    _: KW_ONLY
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    input_audio_tokens: int = 0
    """Audio tokens of the input. Only Chat Completions can report them."""
    reasoning_tokens: int = 0
    output_audio_tokens: int = 0
    """Audio tokens of the output. Only Chat Completions can report them."""

    def __post_init__(self) -> None:
        for name in _TOKEN_COUNTS:
            value: object = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"Usage({name}={value!r}): expected a whole number of tokens, 0 or more")
        cached = self.cache_read_tokens + self.cache_write_tokens
        for part, size, total in (
            ("cache_read_tokens + cache_write_tokens", cached, "input_tokens"),
            ("input_audio_tokens", self.input_audio_tokens, "input_tokens"),
            ("reasoning_tokens", self.reasoning_tokens, "output_tokens"),
            ("output_audio_tokens", self.output_audio_tokens, "output_tokens"),
        ):
            if size > getattr(self, total):
                raise ValueError(
                    f"Usage: {part} is {size}, more than {total}={getattr(self, total)}, which includes it"
                )

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in _TOKEN_COUNTS})


_TOKEN_COUNTS = tuple(field.name for field in fields(Usage))


@dataclass(frozen=True)
class ToolCall:
    """A call of a function tool by the model, for `Reply(tool_calls=[...])`.

    `arguments` is a mapping, which is sent as JSON, or text that is sent as it is: `arguments='{"city": '` is
    a call whose arguments are not JSON. Without an `id` the server gives one.
    """

    name: str
    arguments: Mapping[str, object] | str
    id: str | None = None


@dataclass(frozen=True)
class Fault:
    """A fault of one answer, for `Reply(fault=...)` or `ModelServer.fail_next`.

    Make one with a class method, such as `Fault.status(429)`. The answer is billed, which means that the
    ledger of the server counts its usage, unless the fault is a `status`, or `disconnect(billed=False)`.

    In a batch, some faults work differently. With `disconnect`, or `hang` without `after`, a request gets no
    answer: it expires, and is not billed. With `malformed`, its answer is a text in place of JSON. With
    `slow`, `cut` or `hang(after=...)`, it gets its whole answer, as without a fault.
    """

    kind: FaultKind
    billed: bool
    _: KW_ONLY
    code: int | None = None
    message: str | None = None
    retry_after: str | None = None
    after: int | None = None
    before_headers: Duration = 0.0
    between_chunks: Duration = 0.0

    @property
    def name(self) -> str:
        """The name of the fault in the ledger of the server, such as `"status 429"` or `"cut"`."""
        return f"status {self.code}" if self.kind == "status" else self.kind

    @property
    def silent(self) -> bool:
        """Whether the client gets nothing at all, not even an HTTP status line.

        That holds for `disconnect`, and for `hang` without `after`.
        """
        return self.kind == "disconnect" or (self.kind == "hang" and self.after is None)

    @classmethod
    def status(
        cls, code: int, *, retry_after: Duration | datetime | None = None, message: str | None = None
    ) -> "Fault":
        """Answer with an HTTP error such as 429, 500, 503 or 529. It is not billed, and no reply is used up.

        `retry_after` becomes the `Retry-After` header, which is not sent by default: a number or `timedelta`
        is written as seconds, a `datetime` with a time zone as an HTTP date. `message` is the message in the
        body of the error; the default names the fault.

        Raises:
            ValueError: `code` is not 400 to 599, or `retry_after` is negative or has no time zone.
        """
        if not 400 <= code <= 599:
            raise ValueError(f"Fault.status({code!r}): expected an HTTP error status, 400 to 599")
        return cls("status", False, code=code, message=message, retry_after=_retry_after(retry_after))

    @classmethod
    def slow(cls, *, before_headers: Duration = 0.0, between_chunks: Duration = 0.0) -> "Fault":
        """Send a whole answer, but late, or with waits between its pieces. It is billed.

        `before_headers` is the time before the first byte, and `between_chunks` the time between two pieces:
        seconds or a `timedelta`, besides those of the reply and of the server. An answer without streaming
        comes in four pieces.

        Raises:
            ValueError: a time is negative or not finite.
        """
        check_durations("Fault.slow", before_headers=before_headers, between_chunks=between_chunks)
        return cls("slow", True, before_headers=before_headers, between_chunks=between_chunks)

    @classmethod
    def hang(cls, *, after: int | None = None) -> "Fault":
        """Keep the connection open and send nothing, until the client leaves. It is billed.

        By default, not even the status line is sent. With `after`, the answer begins and stops after so many
        pieces: events with text or arguments in them; an answer without streaming comes in four pieces.

        Raises:
            ValueError: `after` is negative.
        """
        return cls("hang", True, after=None if after is None else _count("Fault.hang", after))

    @classmethod
    def cut(cls, *, after: int = 1) -> "Fault":
        """Close the connection after `after` pieces of content, without the end of the answer. It is billed.

        A piece is an event with text or arguments in it; an answer without streaming comes in four pieces. If
        the answer has no more than `after` pieces, only its end is missing: the events after the text of a
        stream, or the last of the four pieces.

        Raises:
            ValueError: `after` is negative.
        """
        return cls("cut", True, after=_count("Fault.cut", after))

    @classmethod
    def disconnect(cls, *, billed: bool = True) -> "Fault":
        """Close the connection before any answer, even a status line, is sent.

        It is billed by default, because the provider may have done the work; `billed=False` says that the
        provider has not.
        """
        return cls("disconnect", billed)

    @classmethod
    def malformed(cls, *, after: int = 1) -> "Fault":
        """Send an answer with status 200 that is not valid JSON. It is billed.

        In a stream, one event is not JSON: the one after `after` pieces of content (text or arguments). The
        other events follow as usual. Without streaming, the body is cut in half, whatever `after` is.

        Raises:
            ValueError: `after` is negative.
        """
        return cls("malformed", True, after=_count("Fault.malformed", after))

    @classmethod
    def wrong_schema(cls) -> "Fault":
        """Send valid JSON that does not fit the output schema that the request demands. It is billed.

        It takes the place of the text, data and tool calls of the reply. A request that demands no structured
        output, or whose schema takes any object, gets an error 500, which says so and is not billed.
        """
        return cls("wrong_schema", True)

    @classmethod
    def missing_usage(cls) -> "Fault":
        """Send a whole answer without its usage (Anthropic: with a usage object that has no counts).

        It is billed: the ledger of the server has the usage that the client does not get.
        """
        return cls("missing_usage", True)

    @classmethod
    def missing_finish_reason(cls) -> "Fault":
        """Send a whole answer whose finish reason (stop reason, status) is `null`. It is billed."""
        return cls("missing_finish_reason", True)


@dataclass(frozen=True)
class Reply:
    """One answer of a `ModelServer`, for `script` and `rule`, in a form that fits every protocol.

        server.script(Reply("hello", usage=Usage(10, 2)), Reply(fault=Fault.status(429)))

    The server writes it in the protocol that the client speaks, streamed if the request asks for that.
    Without text, data and tool calls, the answer has an empty text.

    Raises:
        ValueError: `text` and `data` are both given, a time is negative, or `chunk_size` is below 1.
    """

    text: str = ""
    _: KW_ONLY
    tool_calls: Sequence[ToolCall] = ()
    data: object = None
    """Structured output: anything that pydantic can write as JSON. It is sent as the call of the output tool
    if the request has one, else as the text."""
    usage: Usage | None = None
    """The usage to report. Default: the server's own count, see `fastroai.testing.served_answers`."""
    finish_reason: FinishReason | None = None
    """Why the answer ends. Default: the reason that fits the content."""
    fault: Fault | None = None
    latency: Duration = 0.0
    """Time before the first byte: seconds, or a `timedelta`."""
    chunk_size: int = 16
    """Characters of text or arguments in one piece of a stream."""
    chunk_delay: Duration = 0.0
    """Time between two pieces of a stream: seconds, or a `timedelta`."""
    model: str | None = None
    """The model that the answer names, such as a dated snapshot. Default: the requested model."""
    service_tier: str | None = None
    """The service tier that the answer names. Default: the requested one."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Response headers besides the server's own, such as the cost that a gateway states."""

    def __post_init__(self) -> None:
        if self.text and self.data is not None:
            raise ValueError("Reply(text=..., data=...): give the text or the structured data, not both")
        if not _is_whole(self.chunk_size) or self.chunk_size < 1:
            raise ValueError(f"Reply(chunk_size={self.chunk_size!r}): expected at least 1 character")
        check_durations("Reply", latency=self.latency, chunk_delay=self.chunk_delay)


def in_seconds(duration: Duration) -> float:
    """Return a duration in seconds. The server shares no code with the rest of the library."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def check_durations(owner: str, **values: Duration) -> None:
    """Raise `ValueError` for a duration that is negative, infinite or not a number."""
    for name, value in values.items():
        seconds = in_seconds(value)
        if not (_is_number(seconds) and 0 <= seconds < float("inf")):  # NaN fails this too
            raise ValueError(f"{owner}({name}={value!r}): expected seconds, or a timedelta, 0 or more")


def _retry_after(value: Duration | datetime | None) -> str | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        check_durations("Fault.status", retry_after=value)
        return f"{in_seconds(value):g}"
    if value.tzinfo is None:
        raise ValueError(f"Fault.status(retry_after={value!r}): expected a datetime with a time zone")
    return format_datetime(value.astimezone(UTC), usegmt=True)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _count(owner: str, after: int) -> int:
    if not _is_whole(after) or after < 0:
        raise ValueError(f"{owner}(after={after!r}): expected a number of pieces, 0 or more")
    return after
