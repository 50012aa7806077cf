"""The exceptions of graphs."""

from __future__ import annotations

from dataclasses import dataclass

from fastroai.errors.base import FastroAIError
from fastroai.errors.texts import listed


@dataclass(frozen=True, slots=True)
class GraphProblem:
    """One problem that keeps a graph from running; `GraphValidationError.problems` has all of them.

    Its text, `str(problem)`, is the message. If the graph was loaded from YAML, the line and column come
    first; otherwise `line` and `column` are `None`.
    """

    message: str
    """What is wrong, for people."""
    about: tuple[str | int, ...] = ()
    """The place of the problem in the graph's arguments, as keys and indices: `("edges", 3, "condition")`."""
    line: int | None = None
    """The line in the YAML document that the graph was loaded from, from 1."""
    column: int | None = None

    def __str__(self) -> str:
        return (
            self.message if self.line is None else f"line {self.line}, column {self.column}: {self.message}"
        )


class GraphValidationError(FastroAIError, ValueError):
    """A graph that cannot run. `problems` has every problem that was found.

    `source` is the file that the graph was loaded from, if there is one.

    What to do: Correct every problem that the message lists.
    """

    def __init__(self, graph: str, problems: tuple[GraphProblem, ...], source: str | None = None) -> None:
        super().__init__(graph, problems, source)
        self.graph, self.problems, self.source = graph, problems, source

    def __str__(self) -> str:
        where = "" if self.source is None else f" in {self.source}"
        return listed(f"graph {self.graph!r}{where}", self.problems)


class GraphStopped(FastroAIError):
    """A graph ended without the output of a terminal. `status` says how, `reason` why.

    What to do: Look at `reason`; resume the graph, or change its edges.
    """

    def __init__(self, graph: str, status: str, reason: str) -> None:
        super().__init__(graph, status, reason)
        self.graph, self.status, self.reason = graph, status, reason

    def __str__(self) -> str:
        return f"graph {self.graph!r} is {self.status}: {self.reason}"


class MemoryConflict(FastroAIError):
    """Branches of a fork wrote the same key of a graph's memory, and their values could not be merged.

    Either `on_conflict="error"` holds for the key, or its reducer failed: then `why` says with which error.

    What to do: Let the branches write other keys, or choose another `on_conflict` for this one.
    """

    def __init__(self, key: str, first: str, second: str, why: str = "") -> None:
        super().__init__(key, first, second, why)
        self.key, self.first, self.second, self.why = key, first, second, why

    def __str__(self) -> str:
        if self.why:
            return f"the reducer of {self.key!r} failed on the values of parallel branches: {self.why}"
        return (
            f"nodes {self.first!r} and {self.second!r}, in parallel branches, both wrote {self.key!r}; "
            "let them write different keys, or combine the values: "
            f"reducers={{{self.key!r}: 'append'}} or on_conflict='last_wins'"
        )


class VisitsExhausted(FastroAIError):
    """A branch of a graph is in a cycle of `nodes` that have all reached their `max_visits`.

    What to do: Raise `max_visits`, or add an edge that leaves the cycle.
    """

    def __init__(self, nodes: tuple[str, ...]) -> None:
        super().__init__(nodes)
        self.nodes = nodes

    def __str__(self) -> str:
        return f"every node of a cycle has reached its max_visits: {', '.join(map(repr, self.nodes))}"


class JudgeEscalated(FastroAIError):
    """The judge of an `AgentNode` said that trying again cannot help.

    `reason` is the reason of the judge, `output` the last output of the agent.

    What to do: Read `reason`: a person, another model or other inputs are needed.
    """

    def __init__(self, step_id: str, reason: str, iterations: int, output: object) -> None:
        super().__init__(step_id, reason, iterations, output)
        self.step_id, self.reason = step_id, reason
        self.iterations, self.output = iterations, output

    def __str__(self) -> str:
        return f"the judge of step {self.step_id!r} escalated at iteration {self.iterations}: {self.reason}"


class JudgeNotSatisfied(FastroAIError):
    """The judge of an `AgentNode` accepted none of the outputs that `max_iterations` allows.

    `reason` is the reason of the judge against the last output, which is `output`.

    What to do: Raise `max_iterations`, or make the criteria of the judge clearer.
    """

    def __init__(self, step_id: str, reason: str, iterations: int, output: object) -> None:
        super().__init__(step_id, reason, iterations, output)
        self.step_id, self.reason = step_id, reason
        self.iterations, self.output = iterations, output

    def __str__(self) -> str:
        times = "the output" if self.iterations == 1 else f"any of {self.iterations} outputs"
        return (
            f"the judge of step {self.step_id!r} did not accept {times}; its last feedback: {self.reason}. "
            "Allow more with max_iterations=, or handle the failure with an on_failure edge"
        )
