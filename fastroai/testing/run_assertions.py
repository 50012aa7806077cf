"""What a run did, compared with what a test expects, with every difference at once."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Protocol

from fastroai.places import without_attempts
from fastroai.records import RequestRecord, dollars
from fastroai.store.reading.trace import RunTrace
from fastroai.usage.money import Amount, exact_dollars


class Traced(Protocol):
    """The result of a run: of a pipeline, a graph, a flow or a workflow."""

    @property
    def trace(self) -> RunTrace:
        """The trace of the run."""
        ...


def assert_run(
    run: Traced | RunTrace,
    *,
    path: Sequence[str] | None = None,
    requests: int | None = None,
    cost_usd: Amount | None = None,
    most_usd: Amount | None = None,
    prompts: Sequence[str] | None = None,
) -> None:
    """Fail a test if a run differs from your expectations. The error lists every difference.

        assert_run(result, path=["classify", "reply"], requests=2, most_usd="0.01")

    Expectations that are left out are not compared.

    Args:
        run: The result of a run, or its trace.
        path: The ids of the steps in the order in which they began. Retries of a step are not listed again; a
            node of a graph is listed each time that the graph comes to it. Steps of nested runs come with
            the path to them: `write/inner/check`.
        requests: Number of requests to models that were sent and not refused.
        cost_usd: The exact cost in US dollars. A run with a request of unknown cost always differs.
        most_usd: The highest cost that passes, in US dollars. A run with a request of unknown cost always
            differs.
        prompts: All messages of users to models, in order, as `trace.conversations()` has them.

    Raises:
        AssertionError: the run differs.
        ConfigurationError: an amount is negative, or is not a number.
    """
    trace = run if isinstance(run, RunTrace) else run.trace
    found: list[str] = []
    if path is not None:
        visited = [without_attempts(one.place) for one in trace.attempts if one.attempt == 1]
        found += _of_texts("path", path, visited)
    if requests is not None and trace.usage.request_count != requests:
        found += [f"requests: expected {requests}, got {trace.usage.request_count}", *_listed(trace.records)]
    found += _of_cost(trace, cost_usd, most_usd)
    if prompts is not None:
        said = [text for one in trace.conversations() for who, text in one.said if who == "user"]
        found += _of_texts("prompts", prompts, said)
    if found:
        raise AssertionError("\n".join([f"the run of {trace.kind} {trace.pipeline!r} differs:", *found]))


def _of_cost(trace: RunTrace, exact: Amount | None, most: Amount | None) -> list[str]:
    if exact is None and most is None:
        return []
    usage, found = trace.usage, list[str]()
    if not usage.cost_complete:
        unknown = usage.unpriced_requests + usage.unmeasured_requests
        found.append(f"cost: {dollars(usage.cost_usd)}, without {unknown} requests of unknown cost")
    if exact is not None and usage.cost_usd != (expected := exact_dollars("cost_usd", exact)):
        found.append(f"cost: expected {dollars(expected)}, got {dollars(usage.cost_usd)}")
    if most is not None and usage.cost_usd > (allowed := exact_dollars("most_usd", most)):
        found.append(f"cost: expected at most {dollars(allowed)}, got {dollars(usage.cost_usd)}")
    return [*found, *_listed(trace.records)] if found else []


def _listed(records: Sequence[RequestRecord]) -> list[str]:
    """Return a line for each request, for people."""
    return [
        f"    {record.step_id or record.agent or '-'}: {record.provider}:{record.model}, {record.outcome}, "
        f"{record.tokens.input_tokens} + {record.tokens.output_tokens} tokens, "
        f"{'cost unknown' if record.cost_usd is None else dollars(record.cost_usd)}"
        for record in records
    ] or ["    no request"]


def _of_texts(what: str, expected: Sequence[str], got: Sequence[str]) -> list[str]:
    if list(expected) == list(got):
        return []
    lines = difflib.ndiff(_lines(expected), _lines(got))
    return [f"{what} (- expected, + got):", *(f"    {line.rstrip()}" for line in lines)]


def _lines(texts: Sequence[str]) -> list[str]:
    """Return the lines of texts, so that longer ones are compared line by line."""
    return [line for text in texts for line in text.splitlines() or [""]]
