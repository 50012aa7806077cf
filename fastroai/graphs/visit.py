"""A visit to a node, while it goes on: what its step writes and says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.graphs.conversation.talk import Talk
from fastroai.graphs.conversation.thread import Phase
from fastroai.graphs.conversation.threads import Threads
from fastroai.graphs.machine.branches import Branch
from fastroai.graphs.setup import GraphSetup
from fastroai.runtime import Scope
from fastroai.runtime.facts import StepStarted
from fastroai.steps.visits import NodeFailure


class OpenVisit:
    """A visit that goes on; what it collects is that of its latest attempt. It is a `NodeVisit` for steps.

    One is made for each visit, and most steps ask nothing of it: what it can say is found when it is asked.
    """

    __slots__ = (
        "_on_write",
        "_setup",
        "_threads",
        "branch",
        "kept",
        "scope",
        "started",
        "talk_so_far",
        "written",
    )

    def __init__(
        self,
        setup: GraphSetup,
        threads: Threads,
        on_write: Callable[[OpenVisit, str, object], object],
        started: StepStarted,
        branch: Branch,
        scope: Scope,
    ) -> None:
        """`on_write` puts a value on record, and gives the copy of it that is kept."""
        self._setup, self._threads, self._on_write = setup, threads, on_write
        self.started, self.branch, self.scope = started, branch, scope
        self.written: dict[str, object] = {}
        """What it has written before its end."""
        self.kept = self.written
        """The same, or what the attempt before wrote, as long as this one has written nothing."""
        self.talk_so_far: Talk | None = None
        """The conversation of this attempt, if it has one yet."""

    @property
    def number(self) -> int:
        """Its number among the visits to the node, from 1."""
        return self.started.visit

    @property
    def goal(self) -> str | None:
        """What the graph is to achieve, if it says so."""
        return self._setup.goal

    @property
    def failures(self) -> Mapping[str, NodeFailure]:
        """The latest failure of each node in the past of its branch that has not succeeded since."""
        return self.branch.failures

    @property
    def talk(self) -> Talk:
        """The conversation of this attempt; it begins when it is first needed."""
        if self.talk_so_far is None:
            focus = self._setup.nodes[self.started.step_id].focus
            self.talk_so_far = self._threads.talk(self.branch, focus)
        return self.talk_so_far

    def phase(self, written: Mapping[str, object], error: BaseException | None = None) -> Phase | None:
        """What the last attempt has said, if it asked any agent."""
        return None if self.talk_so_far is None else self.talk_so_far.phase(written, error)

    def begin_attempt(self) -> None:
        """Forget what an attempt before has written and said; what it wrote is kept until this one writes."""
        self.written, self.talk_so_far = {}, None

    def write(self, key: str, value: object) -> None:
        """Put a value into memory, whatever becomes of the node.

        Raises:
            ConfigurationError: the node declares what it writes, and this is not among it.
            ValueNotStorable: the run is on record, and the value has no form in JSON.
        """
        if not isinstance(key, str) or not key:
            raise ConfigurationError("key", key, "a non-empty string")
        declared: Sequence[str] | None = self._setup.plan.writes.get(self.started.step_id)
        if declared is not None and key not in declared:
            names = ", ".join(map(repr, declared))
            expected = f"one of the node's writes, {names}.{nearest_hint(key, declared)}"
            raise ConfigurationError("key", key, expected)
        self.written[key] = self._on_write(self, key, value)
        self.kept = self.written
