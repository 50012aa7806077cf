"""Visits of nodes one by one, with the conversation between them, and no graph that decides about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastroai.graphs.conversation.conversation import ConversationLike, GraphConversation
from fastroai.graphs.conversation.talk import Talk
from fastroai.graphs.conversation.thread import Phase, Thread
from fastroai.runtime import Scope
from fastroai.steps import BaseStep, StepConfig, StepContext, step
from fastroai.steps.config import ExecutionConfig, resolve
from fastroai.steps.context import RunData, StepData
from fastroai.steps.execution import run_step
from fastroai.steps.outputs import Outputs
from fastroai.steps.visits import NodeFailure

NodeCode = BaseStep[Any, Any] | Callable[[StepContext[Any]], Awaitable[Any]]


@dataclass
class Visit:
    """A visit as its step knows it, which writes nothing."""

    number: int
    goal: str | None
    new_talk: Callable[[], Talk]
    failures: Mapping[str, NodeFailure] = field(default_factory=dict)
    so_far: Talk | None = None

    @property
    def talk(self) -> Talk:
        if self.so_far is None:
            self.so_far = self.new_talk()
        return self.so_far

    def begin_attempt(self) -> None:
        self.so_far = None

    def write(self, key: str, value: object) -> None:
        raise NotImplementedError


@dataclass
class Branch:
    """One branch of a graph, told from outside where it goes."""

    thread: Thread
    goal: str | None = None
    scope: Scope | None = None
    """The graph's; by default each visit has one of its own."""
    visits: dict[str, int] = field(default_factory=dict)
    phases: list[Phase] = field(default_factory=list)
    memory: dict[str, object] = field(default_factory=dict)

    @classmethod
    def begin(cls, conversation: ConversationLike = "continuous", **options: Any) -> Branch:
        """The first branch of a run."""
        return cls(Thread(GraphConversation.of(conversation)), **options)

    def fork(self) -> Branch:
        """One that starts here."""
        return Branch(self.thread.fork(), self.goal, self.scope, self.visits, [], dict(self.memory))

    def join(self, **branches: Branch) -> None:
        """Those that started here are over."""
        self.thread = self.thread.join([(target, branch.thread) for target, branch in branches.items()])

    async def visit(
        self,
        node: str,
        code: NodeCode,
        *,
        focus: str | None = None,
        config: StepConfig | None = None,
        writes: Callable[[Any], Mapping[str, object]] | None = None,
    ) -> Any:
        """Run a node to its output, which it writes under its id unless `writes` says otherwise."""
        one = code if isinstance(code, BaseStep) else step(code)
        number = self.visits[node] = self.visits.get(node, 0) + 1
        visit = Visit(number, self.goal, lambda: Talk(self.thread, node, number, focus=focus, goal=self.goal))
        run = RunData("graph", ("graph",))
        data = StepData(run, self.memory, Outputs({node: ()}), visit)
        settings = resolve(config or one.config, pipeline=ExecutionConfig())
        failure: Exception | None = None
        output: Any = None
        around = self.scope or Scope("graph", "graph", parent=None)
        async with Scope("step", node, parent=around, limits=settings.limits) as scope:
            try:
                output = await run_step(one, scoped=scope, data=data, deps=None, config=settings)
            except Exception as error:
                failure = error
        wrote = {} if failure is not None else {node: output} if writes is None else writes(output)
        self.memory.update(wrote)
        phase = visit.talk.phase(wrote, failure)
        self.phases.append(phase)
        self.thread = self.thread.add(phase)
        if failure is not None:
            raise failure
        return output
