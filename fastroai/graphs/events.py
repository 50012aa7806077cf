"""What happens to a graph, and what it does about it: values between the state machine and the runner.

Nobody changes them; they are not frozen because making a frozen one costs a node that does nothing a tenth of
its time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from fastroai.graphs.routing import Decision, EdgeOutcome, NodeOutcome

if TYPE_CHECKING:
    from fastroai.graphs.branches import Branch, Fork

Ending: TypeAlias = Literal["completed", "failed", "paused", "cancelled", "budget_exceeded"]
"""How a run of a graph ends; a paused one can be resumed."""


class Visit(NamedTuple):
    """A time that a run comes to a node."""

    node: str
    number: int
    """From 1, over the whole run."""


# --- events ---


@dataclass(slots=True)
class Started:
    """The run begins, with these inputs."""

    inputs: Mapping[str, object]
    known: Mapping[Visit, bool] | None = None
    """Of a run that is on record: visits that it came to, and whether they were skipped. Limits may have
    changed since then, so they hold for other visits only; that of nodes at once, after `TakenUp`."""


@dataclass(slots=True)
class Succeeded:
    """A visit gave its output, and these values for the memory; of a pause node, its question."""

    visit: Visit
    output: object
    written: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class Failed:
    """A visit failed for good. What it wrote before is kept."""

    visit: Visit
    error: BaseException
    written: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class Cancelled:
    """A visit, or a decision, ended because it was cancelled."""

    visit: Visit
    written: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class Decided:
    """It was decided which of the `llm_decide` edges of a visit is taken."""

    visit: Visit
    decision: Decision


@dataclass(slots=True)
class Answered:
    """A person answered the question of a visit: that is its output."""

    visit: Visit
    output: object
    written: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class BranchTimedOut:
    """A branch took longer than it may."""

    branch: str
    error: BaseException


@dataclass(slots=True)
class Interrupted:
    """The run ended while a visit went on, which is made again. What it wrote until then is kept."""

    visit: Visit
    written: Mapping[str, object]


@dataclass(slots=True)
class TakenUp:
    """A run on record goes on in another process: what has started and is not over starts anew."""


@dataclass(slots=True)
class PauseRequested:
    """What runs may finish, and nothing starts."""


@dataclass(slots=True)
class Stopped:
    """Something outside of the graph ends the run: a budget around it, a time limit, `cancel`."""

    status: Ending
    reason: str
    error: BaseException | None = None


Event: TypeAlias = (
    Started
    | Succeeded
    | Failed
    | Cancelled
    | Decided
    | Answered
    | BranchTimedOut
    | Interrupted
    | TakenUp
    | PauseRequested
    | Stopped
)

# --- commands ---


@dataclass(slots=True)
class StartNode:
    """Run a node, with what its branch knows."""

    visit: Visit
    branch: Branch
    cause: str


@dataclass(slots=True)
class SkipNode:
    """A node is over its visit limit, and does not run."""

    visit: Visit
    cause: str
    branch: Branch


@dataclass(slots=True)
class AskDecider:
    """Let a model decide which of the `llm_decide` edges of a visit is taken."""

    visit: Visit
    branch: Branch
    output: object
    cause: str = "its edges say llm_decide"


@dataclass(slots=True)
class AskPerson:
    """The question of a pause node waits for its answer."""

    visit: Visit
    branch: Branch
    question: object
    cause: str = "it is a pause node"


@dataclass(slots=True)
class CancelVisit:
    """Cancel a node that runs, or a decision."""

    visit: Visit
    cause: str


@dataclass(slots=True)
class RouteNode:
    """These edges of a visit are taken and those not; nothing is left to do."""

    visit: Visit
    outcome: NodeOutcome
    edges: Sequence[EdgeOutcome]
    branch: Branch


@dataclass(slots=True)
class Forked:
    """A branch has forked; its branches have begun."""

    fork: Fork


@dataclass(slots=True)
class Joined:
    """All branches of a fork are over, and what they know was merged into the one that forked."""

    fork: Fork
    cause: str


@dataclass(slots=True)
class Finish:
    """Nothing is running and nothing will, in this process at least."""

    status: Ending
    cause: str
    error: BaseException | None = None
    waiting: tuple[str, ...] = ()
    """The nodes with which a paused run goes on."""


Command: TypeAlias = (
    StartNode | SkipNode | AskDecider | AskPerson | CancelVisit | RouteNode | Forked | Joined | Finish
)
