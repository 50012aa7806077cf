"""What the run cost, from its records: by step, by model, and beside the ledger of the offline model."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from pipelines import Answered, Reply

from fastroai import CostCalculator, PipelineResult
from fastroai.records import RequestRecord, Tokens, Usage
from fastroai.testing import Ledger


@dataclass(frozen=True)
class StepAccount:
    """One step, over all documents."""

    step: str
    usage: Usage
    durations_ms: tuple[float, ...]
    """Of each document that got to it."""
    critical: int
    """How many of them had to wait for it: it was on their critical path."""


@dataclass(frozen=True)
class ModelAccount:
    """One model, over all documents."""

    model: str
    usage: Usage
    waited_ms: float
    """For its answers, added up; they overlap."""


@dataclass(frozen=True)
class LedgerCheck:
    """The account beside what the server counted itself."""

    requests: int
    tokens: int
    cost_usd: Decimal
    differences: tuple[str, ...]


def by_step(
    steps: Sequence[str], answered: Sequence[Answered], records: Sequence[RequestRecord]
) -> list[StepAccount]:
    """An account of each step, from the requests of the whole run: a ticket that was stopped has its part."""
    results = [one.result for one in answered if one.result]
    return [
        StepAccount(
            step,
            Usage.of([record for record in records if record.step_id == step]),
            tuple(result.timings[step].duration_ms for result in results if step in result.timings),
            sum(step in result.critical_path for result in results),
        )
        for step in steps
    ]


def by_model(run: PipelineResult[list[Answered]]) -> list[ModelAccount]:
    """An account of each model."""
    waited: dict[str, float] = {}
    for record in run.usage.records:
        model = f"{record.provider}:{record.model}"
        waited[model] = waited.get(model, 0) + record.duration_ms
    return [ModelAccount(model, usage, waited[model]) for model, usage in run.usage.by_model.items()]


def slowest(answered: Sequence[Answered]) -> tuple[Answered, PipelineResult[Reply]] | None:
    """The document that took longest, and its result."""
    timed = [(one, one.result) for one in answered if one.result]
    return max(timed, key=lambda pair: pair[1].usage.processing_time_ms, default=None)


def compare(records: Sequence[RequestRecord], ledger: Ledger) -> LedgerCheck:
    """Each measured request beside the one that the server billed, by the id of the response."""
    measured = {record.response_id: record for record in records if record.outcome == "settled"}
    served = {entry.response_id: entry for entry in ledger.billed}
    calculator = CostCalculator()
    differences = [f"{response_id} is on one side only" for response_id in measured.keys() ^ served.keys()]
    total = Decimal(0)
    for response_id, entry in served.items():
        usage = Tokens(
            input_tokens=entry.usage.input_tokens,
            output_tokens=entry.usage.output_tokens,
            cache_read_tokens=entry.usage.cache_read_tokens,
            cache_write_tokens=entry.usage.cache_write_tokens,
            reasoning_tokens=entry.usage.reasoning_tokens,
        )
        provider = entry.protocol.partition("-")[0]
        cost = calculator.price(usage, model=entry.model, provider=provider) or Decimal(0)
        total += cost
        record = measured.get(response_id)
        if record and (record.tokens, record.cost_usd) != (usage, cost):
            differences.append(f"{response_id}: measured {record.tokens}, served {usage}")
    tokens = sum(entry.usage.input_tokens + entry.usage.output_tokens for entry in served.values())
    return LedgerCheck(len(served), tokens, total, tuple(differences))
