"""How the agent calls in a graph share a message history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from fastroai.calls.call import AgentLike, check_agent
from fastroai.errors import ConfigurationError
from fastroai.runtime.options import check_count

Mode: TypeAlias = Literal["continuous", "isolated"]
"""One message history through all nodes, or a fresh one for each call."""

MODES: Final[tuple[Mode, ...]] = get_args(Mode)


@dataclass(frozen=True, slots=True)
class GraphConversation:
    """How the nodes of a graph share a message history; the value of `Graph(conversation=...)`.

    `"continuous"` threads one message history through the nodes: an agent call in a node sees the calls made
    in the nodes before it, tool results included. Branches inherit the history of their fork and do not see
    each other's. After they join, the history is that of the fork, with a line on what each branch has done.
    `"isolated"` gives each call a fresh history.

    A history of more than `compact_above` tokens is shortened before the next call; by default, it is never
    shortened. Each visit that calls an agent is a phase; the newest `keep_phases` of them stay whole. Without
    a `summarizer`, results of tools in older phases that have more than 500 characters are dropped. With one,
    its summary replaces the older phases; the node that makes the next call is charged for it.

        GraphConversation(compact_above=50_000, summarizer=FastroAgent("openai:gpt-5-mini"))

    Calls with their own `message_history`, `ctx.map`, judges and the decider do not use it.

    Raises:
        ConfigurationError: an option is invalid; `compact_above` is set with `"isolated"`; or `summarizer` is
            set without `compact_above`.
    """

    mode: Mode = "continuous"
    compact_above: int | None = None
    """Tokens of history above which it is compacted; `None` for never. The length is the tokens that the last
    response used, plus one token for each four bytes that came after it."""
    summarizer: AgentLike[Any] | None = None
    """Agent that writes the summary, a `FastroAgent`. If it fails, tool results are dropped instead."""
    keep_phases: int = 2
    """Number of the newest visits that called an agent whose messages stay whole."""

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            expected = "'continuous', 'isolated' or a GraphConversation(...)"
            raise ConfigurationError("conversation", self.mode, expected)
        check_count("compact_above", self.compact_above, least=1)
        check_count("keep_phases", self.keep_phases, least=1, required=True)
        if self.mode == "isolated" and self.compact_above is not None:
            expected = "no value with 'isolated', which keeps no history"
            raise ConfigurationError("compact_above", self.compact_above, expected)
        if self.summarizer is not None:
            check_agent(self.summarizer)
            if self.compact_above is None:
                expected = "compact_above= too: the tokens of history above which the summarizer is asked"
                raise ConfigurationError("summarizer", self.summarizer, expected)

    @classmethod
    def of(cls, said: ConversationLike) -> GraphConversation:
        """Return the conversation for a value of `Graph(conversation=...)`.

        A `GraphConversation` is returned as it is. `"continuous"` or `"isolated"` gives a new one with this
        mode and no other options.

        Raises:
            ConfigurationError: the value is neither a mode nor a conversation.
        """
        return said if isinstance(said, GraphConversation) else cls(said)


ConversationLike: TypeAlias = Mode | GraphConversation
"""Type of `Graph(conversation=...)`."""
