"""The shape of a pipeline: steps, dependencies, and every problem that keeps them from running."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Final, TypeGuard

from fastroai.contracts.accepted import Accepted
from fastroai.errors import PipelineValidationError, nearest_hint
from fastroai.errors.texts import cut
from fastroai.pipelines.contracting import contract_problems
from fastroai.runs.nesting import NO_TIMEOUT, NestedStep, sets_timeout
from fastroai.runs.usage import StepTiming
from fastroai.steps import BaseStep, StepConfig
from fastroai.steps.ancestry import Ancestry


@dataclass(frozen=True, slots=True)
class Plan:
    """The dependencies of steps, in declaration order; linear in size, and walked without recursion."""

    dependencies: Mapping[str, tuple[str, ...]]
    """Direct dependencies of every step."""
    dependents: Mapping[str, tuple[str, ...]]
    """For every step, the steps that depend on it directly."""
    causes: Mapping[str, str]
    """For every step, the cause of the start of those that needed it last."""
    missing: Mapping[str, int]
    """For every step, the number of its dependencies."""
    first: tuple[tuple[str, str, None], ...]
    """The steps that need no other, each with the cause of its start, and no step that it needed last."""
    order: tuple[str, ...]
    """Ids of all steps, each after its dependencies."""
    output_step: str
    ancestry: Ancestry

    def levels(self) -> list[list[str]]:
        """Return the steps by the length of the longest chain before them, for people to read."""
        depth: dict[str, int] = {}
        levels: list[list[str]] = []
        for step_id in self.order:
            depth[step_id] = 1 + max((depth[before] for before in self.dependencies[step_id]), default=-1)
            if depth[step_id] == len(levels):
                levels.append([])
            levels[depth[step_id]].append(step_id)
        return levels

    def critical_path(self, timings: Mapping[str, StepTiming]) -> tuple[str, ...]:
        """Return the chain of steps, each waiting for the one before, that ends with the last to finish."""
        path: list[str] = []
        candidates = list(timings)
        while candidates:
            last = max(candidates, key=lambda step_id: timings[step_id].finished_ms)
            path.append(last)
            candidates = [before for before in self.dependencies[last] if before in timings]
        return tuple(reversed(path))


def build_plan(
    pipeline: str,
    steps: Mapping[str, object],
    dependencies: Mapping[str, Sequence[str]] | None,
    output_step: str | None,
    step_configs: Mapping[str, object] | None,
    contracts: Mapping[str, object] | None = None,
    inputs: Accepted | None = None,
) -> Plan:
    """Check a pipeline, and return its plan.

    Raises:
        PipelineValidationError: the pipeline cannot run. The error has every problem that was found.
    """
    given = {"dependencies": dependencies, "step_configs": step_configs, "contracts": contracts}
    problems = [*_mapping_problems(**given)]
    dependencies = dependencies if isinstance(dependencies, Mapping) else {}
    step_configs = step_configs if isinstance(step_configs, Mapping) else {}
    contracts = contracts if isinstance(contracts, Mapping) else {}
    problems += [
        *_step_problems(steps),
        *_dependency_problems(steps, dependencies),
        *_config_problems(steps, step_configs),
    ]
    needs = {
        step_id: tuple(
            dict.fromkeys(before for before in _in_one_order(befores) if before in steps)
            if _are_names(befores := dependencies.get(step_id))
            else ()
        )
        for step_id in steps
    }
    problems += contract_problems(steps, needs, contracts, inputs)
    dependents: dict[str, list[str]] = {step_id: [] for step_id in steps}
    for step_id, befores in needs.items():
        for before in befores:
            dependents[before].append(step_id)
    order = _in_order(needs, dependents)
    if len(order) < len(steps):
        problems.append(f"steps wait for each other: {_cycle(needs)}; remove one of these dependencies")
    terminal = [step_id for step_id, after in dependents.items() if not after]
    # With a misspelt dependency or a cycle, it is not known which steps are terminal.
    problems += _output_problems(steps, terminal, output_step, shape_is_known=not problems)
    if problems:
        raise PipelineValidationError(pipeline, tuple(problems))
    return Plan(
        dependencies=needs,
        dependents={step_id: tuple(after) for step_id, after in dependents.items()},
        causes={step_id: f"{step_id!r} was the last that it needed" for step_id in steps},
        missing={step_id: len(befores) for step_id, befores in needs.items()},
        first=tuple(
            (step_id, "it needs no other step", None) for step_id, befores in needs.items() if not befores
        ),
        order=order,
        output_step=output_step or terminal[0],
        ancestry=Ancestry(needs),
    )


def _in_order(needs: Mapping[str, Sequence[str]], dependents: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the steps, each after those that it needs, without those in a cycle or after one."""
    missing = {step_id: len(befores) for step_id, befores in needs.items()}
    order = [step_id for step_id, number in missing.items() if not number]
    for step_id in order:
        for dependent in dependents[step_id]:
            missing[dependent] -= 1
            if not missing[dependent]:
                order.append(dependent)
    return tuple(order)


def _cycle(needs: Mapping[str, Sequence[str]]) -> str:
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as cycle:
        return " -> ".join(map(repr, reversed(cycle.args[1])))
    raise AssertionError("all steps can be put in order")


def _mapping_problems(**given: object) -> Iterator[str]:
    for option, value in given.items():
        if value is not None and not isinstance(value, Mapping):
            yield f"{option} is a {type(value).__name__}; expected a mapping with step ids as keys"


def _step_problems(steps: Mapping[str, object]) -> Iterator[str]:
    if not steps:
        yield "it has no steps; give at least one: steps={'name': step}"
    for step_id, step in steps.items():
        if not isinstance(step_id, str) or not step_id:
            yield f"step id {step_id!r} is not a name; ids are non-empty strings"
        if not isinstance(step, BaseStep):
            yield f"step {step_id!r} is not a step but {_describe(step)}"
        elif not isinstance(step.config, StepConfig):
            yield f"the config of step {step_id!r} is a {type(step.config).__name__}; expected a StepConfig"


def _describe(step: object) -> str:
    kind = f"a {type(step).__name__}"
    if isinstance(step, type):
        return f"the class {step.__name__}; give an instance: {step.__name__}()"
    if hasattr(step, "as_step"):
        return f"{kind}; use its .as_step(...)"
    if callable(step):
        return f"{kind}; decorate the function with @step"
    return f"{kind}; give a BaseStep, a @step function or agent.as_step(...)"


def _dependency_problems(
    steps: Mapping[str, object], dependencies: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    for step_id, befores in dependencies.items():
        if step_id not in steps:
            yield f"dependencies name {step_id!r}, which is not a step.{nearest_hint(str(step_id), steps)}"
        if not _are_names(befores):
            yield f"dependencies of {step_id!r} are {befores!r}; expected a list of step ids"
            continue
        for before in befores:
            if before not in steps:
                known = cut(", ".join(map(repr, steps)))
                hint = nearest_hint(str(before), steps) or f" The steps are {known}."
                yield f"step {step_id!r} depends on {before!r}, which is not a step.{hint}"


_COLLECTIONS: Final = (list, tuple, set, frozenset, Sequence)
"""Those that most programs give go first: to ask an abstract class takes long."""


def _are_names(befores: object) -> TypeGuard[Iterable[str]]:
    return isinstance(befores, _COLLECTIONS) and not isinstance(befores, str)


def _in_one_order(befores: Iterable[str]) -> Iterable[str]:
    """Return names in the order of every process, which a set does not have: definitions are compared."""
    return sorted(befores, key=repr) if isinstance(befores, Set) else befores


def _config_problems(steps: Mapping[str, object], step_configs: Mapping[str, object]) -> Iterator[str]:
    for step_id, config in step_configs.items():
        if step_id not in steps:
            yield f"step_configs name {step_id!r}, which is not a step.{nearest_hint(str(step_id), steps)}"
        if not isinstance(config, StepConfig):
            yield f"step_configs[{step_id!r}] is a {type(config).__name__}; expected a StepConfig"
        elif isinstance(steps.get(step_id), NestedStep) and sets_timeout(config):
            yield f"step_configs[{step_id!r}] sets timeout={config.timeout!r}; expected {NO_TIMEOUT}"


def _output_problems(
    steps: Mapping[str, object], terminal: list[str], output_step: str | None, *, shape_is_known: bool
) -> Iterator[str]:
    if output_step is not None and output_step not in steps:
        yield f"output_step {output_step!r} is not a step.{nearest_hint(str(output_step), steps)}"
    if output_step is None and shape_is_known and len(terminal) > 1:
        yield (
            f"several steps are needed by no other: {', '.join(map(repr, terminal))}; "
            "say which one gives the output: output_step=..."
        )
