"""Quotes of pipelines and routers before they run: `Pipeline.estimate` and `BasePipeline.estimate`."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from time import perf_counter
from typing import Any, Final

from fastroai.errors import ScopeClosedError
from fastroai.pipelines.plan import Plan
from fastroai.records import Usage, exact_sum, ratio
from fastroai.runtime import Scope
from fastroai.steps import BaseStep, ResolvedConfig, StepContext
from fastroai.steps.attempt import AttemptState
from fastroai.steps.context import StepData
from fastroai.steps.estimating import OutputNotKnown, nothing_paid
from fastroai.steps.execution import map_step
from fastroai.usage import Quote
from fastroai.usage.limits import NO_LIMITS, Limits

RUNS_REMEMBERED: Final = 50

_ZERO: Final = Decimal(0)


@dataclass(slots=True)
class PastRuns:
    """Costs of the last complete runs of a pipeline."""

    _costs: deque[Decimal] = field(default_factory=lambda: deque(maxlen=RUNS_REMEMBERED))

    def add(self, usage: Usage) -> None:
        """Remember the cost of a run, if all of it is known."""
        if usage.cost_complete:
            self._costs.append(usage.cost_usd)

    def mean(self) -> tuple[int, Decimal]:
        """Return the number of remembered runs, and their mean cost in US dollars."""
        costs = self._costs.copy()
        return len(costs), ratio(exact_sum(costs), max(1, len(costs)))


async def estimate_steps(
    steps: Mapping[str, BaseStep[Any, Any]],
    configs: Mapping[str, ResolvedConfig],
    data: StepData,
    deps: Any,
    limits: Limits | None,
) -> dict[str, Quote]:
    """Return the quote of each step, within its own budget. Exceptions of user functions are raised."""
    quotes: dict[str, Quote] = {}
    async with nothing_paid(limits):
        for step_id, step in steps.items():
            config = configs[step_id]
            async with nothing_paid(config.limits) as nothing:
                scope = Scope("step", step_id, parent=nothing)
                context = StepContext(AttemptState(scope), data, deps, config, perf_counter(), map_step)
                quote = await _estimate_step(step, context, data.run.pipeline)
            budgets = (config.limits or NO_LIMITS).budgets
            quotes[step_id] = replace(quote, name=step_id).within(*budgets)
    return quotes


async def _estimate_step(step: BaseStep[Any, Any], context: StepContext[Any], pipeline: str) -> Quote:
    try:
        return await step.estimate(context)
    except OutputNotKnown as missing:
        return Quote.unknown(f"its estimate needs the output of step {missing.step_id!r}")
    except ScopeClosedError:
        return Quote.unknown("its estimate calls a model")
    except Exception as error:
        error.add_note(f"raised by the estimate of step {context.step_id!r} of pipeline {pipeline!r}")
        raise


def total(
    name: str, plan: Plan, exempt: Collection[str], steps: Mapping[str, Quote], past: PastRuns
) -> Quote:
    """Return the quote of a pipeline, from the quotes of its steps."""
    optional = set(_left_out(plan, exempt))
    because = "it may be left out, as on_error='continue'"
    parts = {
        step_id: quote.optional(because) if step_id in optional else quote for step_id, quote in steps.items()
    }
    return _with_past_runs(Quote.total(name, parts), past)


def _left_out(plan: Plan, exempt: Collection[str]) -> Iterator[str]:
    """Yield the steps without which a run may go on: exempt steps, and all that depend on them."""
    left_out: set[str] = set()
    for step_id in plan.order:
        if step_id in exempt or not left_out.isdisjoint(plan.dependencies[step_id]):
            left_out.add(step_id)
            yield step_id


def _with_past_runs(quote: Quote, past: PastRuns) -> Quote:
    """Expect the mean cost of the last runs, if the cost of some steps is unknown."""
    unknown = [name for name, part in quote.parts.items() if not part.expected_usd and part.upper_usd != 0]
    if not unknown:
        return quote
    named = ", ".join(map(repr, unknown))
    runs, mean = past.mean()
    if not runs:
        reasons = (*quote.expected_reasons, f"without {named}, whose cost is unknown")
        return replace(quote, expected_reasons=reasons)
    last = "the last run" if runs == 1 else f"the mean of the last {runs} runs"
    return quote.expecting(mean, f"{last}, as nothing is known of {named}")


def one_of(name: str, pipelines: Mapping[str, Quote]) -> Quote:
    """Return the quote of a router that sends its inputs to one of these pipelines."""
    if not pipelines:
        return Quote.unknown("no pipeline is registered", name=name)
    uppers = [quote.upper_usd for quote in pipelines.values() if quote.upper_usd is not None]
    unsure = "it is not known which of its pipelines runs: the"
    alone = ("its pipeline",) if len(pipelines) == 1 else None
    return Quote(
        name=name,
        lower_usd=min(quote.lower_usd for quote in pipelines.values()),
        expected_usd=max(quote.expected_usd for quote in pipelines.values()),
        upper_usd=max(uppers) if len(uppers) == len(pipelines) else None,
        lower_reasons=alone or (f"{unsure} cheapest",),
        expected_reasons=alone or (f"{unsure} most expensive",),
        upper_reasons=_why_unbounded(pipelines) or alone or (f"{unsure} most expensive",),
        parts=dict(pipelines),
    )


def in_turn(pipelines: Mapping[str, Quote]) -> Quote:
    """Return the quote of the first of these pipelines, with the others as its fallbacks."""
    first = next(iter(pipelines.values()))
    if len(pipelines) == 1:
        return first
    uppers = [quote.upper_usd for quote in pipelines.values() if quote.upper_usd is not None]
    return Quote(
        name=first.name,
        lower_usd=min(quote.lower_usd for quote in pipelines.values()),
        expected_usd=first.expected_usd,
        upper_usd=exact_sum(uppers) if len(uppers) == len(pipelines) else None,
        lower_reasons=("the cheapest of it and its fallbacks",),
        expected_reasons=("it needs no fallback",),
        upper_reasons=_why_unbounded(pipelines) or ("it fails, and so do its fallbacks",),
        parts=dict(pipelines),
    )


def _why_unbounded(pipelines: Mapping[str, Quote]) -> tuple[str, ...]:
    return tuple(
        f"pipeline {name!r}: {reason}"
        for name, quote in pipelines.items()
        if quote.upper_usd is None
        for reason in quote.upper_reasons
    )
