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
    """What the model server counted itself, and where the account says otherwise."""

    requests: int
    tokens: int
    cost_usd: Decimal
    differences: tuple[str, ...]


@dataclass(frozen=True)
class Account:
    """Everything there is to say about a run."""

    answered: Sequence[Answered]
    steps: Sequence[StepAccount]
    models: Sequence[ModelAccount]
    total: Usage
    ledger: LedgerCheck | None
    """There is one only for the offline model."""

    @classmethod
    def of(
        cls, run: PipelineResult[list[Answered]], steps: Sequence[str], ledger: Ledger | None
    ) -> "Account":
        """The account of a run whose tickets went through these steps."""
        answered, records = run.output or [], run.usage.records
        return cls(
            answered=answered,
            steps=[_step_account(step, answered, records) for step in steps],
            models=[_model_account(model, usage, records) for model, usage in run.usage.by_model.items()],
            total=run.usage.total,
            ledger=None if ledger is None else compare(records, ledger),
        )

    @property
    def replies(self) -> int:
        """How many documents got one."""
        return sum(one.reply is not None for one in self.answered)

    @property
    def is_clean(self) -> bool:
        """Whether every document got a reply, and the ledger agrees."""
        return self.replies == len(self.answered) and not (self.ledger and self.ledger.differences)

    def slowest(self) -> tuple[Answered, PipelineResult[Reply]] | None:
        """The document that took longest, and its result."""
        timed = [(one, one.result) for one in self.answered if one.result]
        return max(timed, key=lambda pair: pair[1].usage.processing_time_ms, default=None)


def _step_account(step: str, answered: Sequence[Answered], records: Sequence[RequestRecord]) -> StepAccount:
    """From the requests of the whole run, so that what a stopped ticket had spent is in it."""
    results = [one.result for one in answered if one.result]
    return StepAccount(
        step,
        Usage.of([record for record in records if record.step_id == step]),
        tuple(result.timings[step].duration_ms for result in results if step in result.timings),
        sum(step in result.critical_path for result in results),
    )


def _model_account(model: str, usage: Usage, records: Sequence[RequestRecord]) -> ModelAccount:
    own = (record for record in records if f"{record.provider}:{record.model}" == model)
    return ModelAccount(model, usage, sum(record.duration_ms for record in own))


def compare(records: Sequence[RequestRecord], ledger: Ledger) -> LedgerCheck:
    """Each measured request beside the one that the server billed, by the id of the response."""
    measured = {record.response_id: record for record in records if record.outcome == "settled"}
    served = {entry.response_id: entry for entry in ledger.billed}
    differences = [f"{response_id} is on one side only" for response_id in measured.keys() ^ served.keys()]
    calculator, total = CostCalculator(), Decimal(0)
    for response_id, entry in served.items():
        usage = Tokens(
            input_tokens=entry.usage.input_tokens,
            output_tokens=entry.usage.output_tokens,
            cache_read_tokens=entry.usage.cache_read_tokens,
            cache_write_tokens=entry.usage.cache_write_tokens,
            reasoning_tokens=entry.usage.reasoning_tokens,
        )
        provider = entry.protocol.partition("-")[0]  # openai-responses, openai-chat, anthropic
        cost = calculator.price(usage, model=entry.model, provider=provider) or Decimal(0)
        total += cost
        record = measured.get(response_id)
        if record and (record.tokens, record.cost_usd) != (usage, cost):
            differences.append(f"{response_id}: measured {record.tokens}, served {usage}")
    tokens = sum(entry.usage.input_tokens + entry.usage.output_tokens for entry in served.values())
    return LedgerCheck(len(served), tokens, total, tuple(differences))
