"""`compare`: variants on the cases of a dataset, each in a run of rows, and evaluators on their outputs."""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

from fastroai.errors import ConfigurationError
from fastroai.evaluation.cases import Cases, Evaluator, NamedCase, named_cases
from fastroai.evaluation.comparison import Comparison
from fastroai.evaluation.evaluating import Evaluated, EvaluatorRows, ToEvaluate
from fastroai.evaluation.results import CaseResult, VariantResult
from fastroai.evaluation.tasks import Variant, inputs_for, target_of
from fastroai.places import quoted
from fastroai.rows.options import RowOptions
from fastroai.rows.run import RowRun
from fastroai.rows.table import RowTable
from fastroai.rows.target import DEFAULT_CONCURRENCY, RowTarget
from fastroai.runs.progress.showing import ShowProgress, Watching
from fastroai.runs.request import RunRequest
from fastroai.runtime import budget_scope, current_scope
from fastroai.runtime.concurrency.sync import run_blocking
from fastroai.runtime.concurrency.tasks import end_tasks
from fastroai.runtime.options import check_count
from fastroai.store.record.declarations import OnChanged, check_on_changed
from fastroai.store.run_store import RunStoreLike
from fastroai.tracing import Tracer
from fastroai.usage import BudgetLike

P = ParamSpec("P")
T = TypeVar("T")


async def compare(
    variants: Mapping[str, Variant[Any]],
    dataset: Cases,
    evaluators: Sequence[Evaluator] = (),
    *,
    budget: BudgetLike | None = None,
    concurrency: int = DEFAULT_CONCURRENCY,
    retries: int | None = None,
    store: RunStoreLike | None = None,
    run_id: str | None = None,
    on_changed: OnChanged = "ask",
    deps: object = None,
    tracer: Tracer | None = None,
    tags: Collection[str] = (),
    tenant: str | None = None,
    progress: ShowProgress = "auto",
) -> Comparison:
    """Run each variant on each case, evaluate the outputs, and return one table, a `Comparison`.

        comparison = await compare({"small": small, "large": large}, cases, budget=Budget(usd=2))
        print(comparison)

    A case on which a variant or an evaluator fails is in the table with its error, and the others go on.
    With a store, the same call with the same `run_id` continues where it was: no output and no evaluation
    that was paid for is paid for again, unless what is declared for it has changed.

    Args:
        variants: What to compare, by name: agents, typed functions, pipelines, graphs, routers, flows, or
            functions of the inputs. The first variant is the baseline, with which each other is compared.
        dataset: A list of `Case`, or a `Dataset` of pydantic_evals, whose evaluators are used, too.
        evaluators: Functions of an `EvaluatorContext`, or evaluators of pydantic_evals. If there are none
            here, in the dataset or in any case, outputs are compared with the expected ones.
        budget: Limits on the spending of all variants and evaluators together. When it is used up, no
            further case begins, and the comparison has those that were paid for.
        concurrency: Cases that are asked at once, of each variant; by default 16.
        retries: As in `map`.
        store: Store that keeps the outputs and evaluations on record. By default, only the outputs of
            variants that have a store of their own are kept, in that store, which may be that of `configure`.
        run_id: The id of the comparison; by default a new one. Its runs have ids that begin with it.
        on_changed: As in `map`, for variants. An evaluator whose code has changed always evaluates again.
        deps: As in `run` or `execute` of what is run, for all cases.
        tracer: As in `execute` of pipelines.
        tags: Names to sum the spending by.
        tenant: The tenant whose spending it is.
        progress: As in `map`.

    Raises:
        ConfigurationError: an option is invalid, the dataset has no cases or two of one name, or an output
            cannot be compared because the case has no expected one.
        RunInProgress: another process has a run of this comparison.
        CallChangedError: a declaration has changed, with `on_changed="fail"`.
    """
    check_count("concurrency", concurrency, least=1, required=True)
    check_count("retries", retries)
    check_on_changed(on_changed)
    if not isinstance(variants, Mapping) or not variants:
        raise ConfigurationError("variants", variants, 'a mapping, as in {"small": small, "large": large}')
    targets = {name: target_of(one, f"variants[{name!r}]") for name, one in variants.items()}
    cases = named_cases(dataset, evaluators)
    run_id = run_id or uuid.uuid4().hex
    async with budget_scope(budget, tags=tags, tenant=tenant, name="compare", deps=deps, tracer=tracer):
        options = RowOptions(
            concurrency=concurrency,
            retries=retries,
            on_changed=on_changed,
            around=current_scope(),
        )
        runs = Runs(run_id, options, store, Watching.of(progress, None))
        results = await at_once(runs.variant(name, target, cases, deps) for name, target in targets.items())
    return Comparison(run_id, results)


def _sync_twin(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    name = function.__name__

    @functools.wraps(function)
    def twin(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_blocking(lambda: function(*args, **kwargs), called=f"{name}_sync", instead=name)

    twin.__name__ = twin.__qualname__ = f"{name}_sync"
    return twin


compare_sync = _sync_twin(compare)


@dataclass(frozen=True)
class Runs:
    """The runs of rows of one comparison."""

    run_id: str
    options: RowOptions
    store: RunStoreLike | None
    watching: Watching | None

    async def variant(
        self, name: str, target: RowTarget[Any], cases: Sequence[NamedCase], deps: object
    ) -> VariantResult:
        """Run a variant on all cases, and evaluate its outputs."""
        options = replace(
            self.options, inputs=lambda one: inputs_for(target, one.case.inputs), key=lambda one: one.name
        )
        request: RunRequest[Any] = RunRequest(
            deps=deps, run_id=f"{self.run_id}-{name}", watching=self.watching
        )
        table = await RowRun(target, cases, options, request, self.store).table()
        by_name, results = {one.name: one for one in cases}, dict[str, CaseResult]()
        async for row in table:
            one = by_name[row.key]
            results[row.key] = CaseResult(
                name=one.name,
                inputs=one.case.inputs,
                metadata=one.case.metadata,
                expected_output=one.case.expected_output,
                output=row.output,
                failure=row.error,
                usage=row.usage,
                attempts=row.attempts,
                duration_ms=row.duration_ms,
                evaluators=tuple(one.evaluators),
            )
        missing = [one.name for one in cases if one.name not in results]
        reason = (table.reason or table.status) if missing else ""
        return replace(await self.evaluated(name, results, cases), missing=missing, reason=reason)

    async def evaluated(
        self, name: str, results: dict[str, CaseResult], cases: Sequence[NamedCase]
    ) -> VariantResult:
        """Evaluate the outputs of a variant."""
        evaluated = Evaluated(results)
        rows = evaluated.rows(cases)
        tables = await at_once(self._of_evaluator(name, one, of) for one, of in rows.items())
        for evaluator, table in zip(rows, tables, strict=True):
            await evaluated.include(evaluator, table, rows[evaluator])
        return VariantResult(name=name, cases=evaluated.results, evaluation_usage=evaluated.usage)

    async def _of_evaluator(self, variant: str, evaluator: str, rows: Sequence[ToEvaluate]) -> RowTable[Any]:
        options = replace(
            self.options, inputs=lambda one: {"one": one}, key=lambda one: one.result.name, on_changed="ask"
        )
        # Differs from the ids for all variants and other evaluators, whatever their names are.
        run_id = f"{self.run_id}/{quoted(evaluator)}/{variant}"
        request: RunRequest[Any] = RunRequest(run_id=run_id)
        return await RowRun(EvaluatorRows(evaluator), rows, options, request, self.store).table()


async def at_once(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines at once. After a failure, the others are cancelled."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await end_tasks(tasks)
