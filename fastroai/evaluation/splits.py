"""`compare_splits`: the variants of a router, from the runs that it has on record."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from fastroai.errors import ConfigurationError
from fastroai.evaluation.cases import Case, Evaluator, named_cases
from fastroai.evaluation.comparing import Runs, at_once
from fastroai.evaluation.comparison import Comparison
from fastroai.evaluation.results import CaseResult
from fastroai.pipelines import BasePipeline
from fastroai.records import Usage
from fastroai.rows.options import RowOptions
from fastroai.rows.target import DEFAULT_CONCURRENCY
from fastroai.runtime import budget_scope, current_scope
from fastroai.runtime.options import check_count
from fastroai.store import RunHistory, RunTrace
from fastroai.store.record.payloads import PayloadCodec
from fastroai.store.record.values import value_from_json
from fastroai.store.run_store import RunStoreLike
from fastroai.usage import BudgetLike

_NONE: Final[Mapping[str, object]] = MappingProxyType({})
_MOST: Final = 1_000


async def compare_splits(
    router: BasePipeline[Any, Any, Any],
    evaluators: Sequence[Evaluator] = (),
    *,
    store: RunStoreLike,
    expected_outputs: Mapping[str, object] = _NONE,
    tag: str | None = None,
    tenant: str | None = None,
    limit: int = _MOST,
    budget: BudgetLike | None = None,
    concurrency: int = DEFAULT_CONCURRENCY,
    run_id: str | None = None,
    codec: PayloadCodec | None = None,
) -> Comparison:
    """Compare the variants of a router by their recorded runs, and return a `Comparison`.

        comparison = await compare_splits(support, [is_polite], store="runs.db")

    No variant runs again: the outputs are read from the store, and only evaluators may spend money. A run
    that failed is a case on which its variant failed. A run belongs to the variant that `route` chose, also
    if a fallback answered later; variants that the router no longer has come last. Each run is a case, which
    one variant has had, so variants are compared as independent samples.

    Args:
        router: The router. Its runs that have finished or failed are read, newest first.
        evaluators: As in `compare`. Without any, outputs are compared with the expected ones.
        store: The store of the runs, which also keeps what evaluators spend.
        expected_outputs: The expected outputs, by the id of the run, as far as they are known. Without
            evaluators, each run that is read needs one.
        tag: Only runs with this tag.
        tenant: Only runs of this tenant.
        limit: The number of runs to look at, the newest. Those that have not finished or failed count, too.
        budget: Limits on the spending of the evaluators.
        concurrency: Outputs that each evaluator looks at, at once; by default 16.
        run_id: As in `compare`.
        codec: The codec of the runs, if they have one.

    Raises:
        ConfigurationError: an option is invalid, the store has no such run, or there are no evaluators and
            a run has no expected output.
    """
    check_count("limit", limit, least=1, required=True)
    check_count("concurrency", concurrency, least=1, required=True)
    history = RunHistory(store, codec=codec or router.config.codec)
    found: dict[str, dict[str, CaseResult]] = {}
    for summary in await history.list(pipeline=router.name, tag=tag, tenant=tenant, limit=limit):
        if summary.status in ("finished", "failed"):
            trace = await history.trace(summary.run_id)
            if (variant := router.variant_in(trace)) is not None:
                result = _result(trace, router.declared_output(), expected_outputs)
                found.setdefault(variant, {})[result.name] = result
    if not found:
        expected = f"a store with runs of router {router.name!r} that have finished or failed"
        raise ConfigurationError("store", store, expected)
    order = sorted(found, key=[*router.pipelines, *found].index)
    async with budget_scope(budget, name="compare_splits"):
        options = RowOptions(concurrency=concurrency, around=current_scope())
        runs = Runs(run_id or uuid.uuid4().hex, options, store, None)
        cases = {
            name: named_cases([_case(one) for one in found[name].values()], evaluators) for name in order
        }
        results = await at_once(runs.evaluated(name, found[name], cases[name]) for name in order)
    return Comparison(runs.run_id, results)


def _case(result: CaseResult) -> Case:
    return Case(name=result.name, inputs=result.inputs, expected_output=result.expected_output)


def _result(trace: RunTrace, returns: Any, expected: Mapping[str, object]) -> CaseResult:
    """Return a run on record as the result of a case."""
    failure, ended = trace.failure, trace.ended
    failed = None if trace.status == "finished" else str(failure or trace.status)
    took = 0.0 if ended is None else (ended.timestamp - trace.started_at.timestamp()) * 1000
    return CaseResult(
        name=trace.run_id,
        inputs=trace.inputs,
        expected_output=expected.get(trace.run_id),
        output=None if failed else value_from_json(trace.output, returns),
        failure=failed,
        usage=Usage.of([*trace.records]),
        duration_ms=took,
    )
