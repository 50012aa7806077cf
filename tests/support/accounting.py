"""The proof of an account: every record against the entry of the model server's ledger that it stands for.

Nothing here prices or counts with FastroAI's own code: prices are typed in from the providers' price pages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal

from fastroai.records import RequestRecord
from fastroai.records import Usage as SpentUsage
from fastroai.runtime import Scope
from fastroai.testing import Ledger, LedgerEntry, ModelServer
from fastroai.usage import Budget
from fastroai.usage.limits import limits_of


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens, as on the provider's price page."""

    input: str
    cache_read: str
    cache_write: str
    output: str


PRICES = {
    # https://platform.openai.com/docs/pricing; writing to the cache costs what other input costs
    ("gpt-5-mini", "default"): Price("0.25", "0.025", "0.25", "2.00"),
    ("gpt-5-mini", "priority"): Price("0.45", "0.045", "0.45", "3.60"),
    # https://docs.anthropic.com/en/docs/about-claude/pricing
    ("claude-haiku-4-5", "default"): Price("1", "0.10", "1.25", "5"),
}


def listed_cost(entry: LedgerEntry) -> Decimal:
    """What a ledger entry costs in US dollars by the published prices."""
    price, usage = PRICES[entry.model, entry.body.get("service_tier") or "default"], entry.usage
    plain = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
    return (
        plain * Decimal(price.input)
        + usage.cache_read_tokens * Decimal(price.cache_read)
        + usage.cache_write_tokens * Decimal(price.cache_write)
        + usage.output_tokens * Decimal(price.output)
    ) / 1_000_000


def assert_account_matches(
    ledger: Ledger,
    records: Iterable[RequestRecord],
    usage: SpentUsage | None = None,
    *,
    never_connected: int = 0,
    unseen: int = 0,
    some_cancelled: bool = False,
) -> None:
    """Every record stands for one ledger entry, to the last digit, and every entry has its record.

    Settled: same tokens and cost. Unmeasured: a billed entry that costs at most the record's bound. Released:
    an entry that was not billed, except for the `never_connected` ones. `unseen` billed entries have no
    record because what sent them carries no meter. If `some_cancelled`, an unmeasured request that was
    cancelled need not have reached the server: only the server knows, so the account has its bound. `usage`
    has to be the sum of it all.
    """
    records, entries = list(records), list(ledger.entries)
    by_outcome = {
        outcome: [record for record in records if record.outcome == outcome]
        for outcome in ("settled", "unmeasured", "released")
    }
    settled = [_assert_settled(record, entries) for record in by_outcome["settled"]]
    found = [
        _assert_unmeasured(record, entries, may_be_on_its_way=some_cancelled and _is_cancelled(record))
        for record in by_outcome["unmeasured"]
    ]
    unmeasured = [entry for entry in found if entry is not None]
    _assert_released(by_outcome["released"], entries, never_connected=never_connected)
    assert len(entries) == unseen, f"served, and not in the account: {entries}"
    if usage is not None:
        _assert_sum(usage, settled, unmeasured, records=records)


def _assert_settled(record: RequestRecord, entries: list[LedgerEntry]) -> LedgerEntry:
    """Find the entry that a settled record stands for, compare all of it, and take it out of the list."""
    found = [entry for entry in entries if entry.response_id == record.response_id]
    assert len(found) == 1, f"{len(found)} entries have the response id of {record}"
    entry = found[0]
    assert entry.billed
    _assert_same_request(record, entry)
    tokens, served = record.tokens, entry.usage
    assert {
        name: getattr(tokens, name) for name in _COUNTS
    } == {name: getattr(served, name) for name in _COUNTS}  # fmt: skip
    assert tokens.cache_audio_read_tokens == 0
    assert record.cost_usd == listed_cost(entry)
    assert record.error is None
    entries.remove(entry)
    return entry


_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "input_audio_tokens",
    "output_audio_tokens",
)


def _assert_unmeasured(
    record: RequestRecord, entries: list[LedgerEntry], *, may_be_on_its_way: bool
) -> LedgerEntry | None:
    """Take the entry that an unmeasured record stands for out of the list: by its id, else the earliest."""
    assert record.cost_usd is None
    assert record.bound_usd is not None, f"nothing bounds {record}"
    found = [
        entry
        for entry in entries
        if entry.billed
        and record.response_id in (None, entry.response_id)
        and record.model == entry.body["model"]
    ]
    if not found and may_be_on_its_way:
        return None
    assert found, f"nothing that was billed is left for {record}"
    entry = found[0]
    _assert_same_request(record, entry)
    assert listed_cost(entry) <= record.bound_usd
    entries.remove(entry)
    return entry


def _is_cancelled(record: RequestRecord) -> bool:
    """Whether a request was cancelled before the server had begun to answer it."""
    return record.response_id is None and (record.error or "").startswith("CancelledError")


def _assert_released(
    records: Sequence[RequestRecord], entries: list[LedgerEntry], *, never_connected: int
) -> None:
    refused = [entry for entry in entries if not entry.billed]
    assert len(refused) == len(records) - never_connected
    for record in records:
        assert record.cost_usd is None
        assert record.bound_usd is None
        assert record.tokens.total_tokens == 0
        assert record.error
    for entry in refused:
        entries.remove(entry)


def _assert_same_request(record: RequestRecord, entry: LedgerEntry) -> None:
    assert record.model == entry.body["model"]
    assert record.provider == entry.protocol.removesuffix("-responses").removesuffix("-chat")
    # Anthropic's long answers are streamed behind `run` as well.
    assert entry.streamed or not record.streamed
    assert record.duration_ms > 0
    assert record.started_at is not None
    assert abs((record.started_at - entry.started).total_seconds()) < 60  # also on a busy machine


def _assert_sum(
    usage: SpentUsage,
    settled: Sequence[LedgerEntry],
    unmeasured: Sequence[LedgerEntry],
    *,
    records: Sequence[RequestRecord],
) -> None:
    outcomes = Counter(record.outcome for record in records)
    assert usage.request_count == len(settled) + outcomes["unmeasured"]
    assert usage.unmeasured_requests == outcomes["unmeasured"]
    assert usage.failed_requests == outcomes["released"]
    assert usage.unpriced_requests == 0
    assert usage.cost_complete == (not outcomes["unmeasured"])
    cost = sum(map(listed_cost, settled), Decimal(0))
    assert usage.cost_usd == cost
    assert usage.cost_microcents == round(cost * 1_000_000)
    assert usage.committed_usd >= cost + sum(map(listed_cost, unmeasured), Decimal(0))
    partly = [record.tokens for record in records if record.outcome == "unmeasured"]
    for name in _COUNTS:
        served = sum(getattr(entry.usage, name) for entry in settled)
        assert getattr(usage, name) == served + sum(getattr(tokens, name) for tokens in partly)


@dataclass
class Account:
    """What one run spent, and the server that served it."""

    server: ModelServer
    scope: Scope = field(repr=False)

    @property
    def records(self) -> list[RequestRecord]:
        """The requests of the run."""
        return self.scope.spending.records

    @property
    def usage(self) -> SpentUsage:
        """The sums of the run."""
        return self.scope.spent()

    @property
    def outcomes(self) -> list[str]:
        """How the requests ended, in that order."""
        return [record.outcome for record in self.records]

    def assert_matches(
        self, usage: SpentUsage | None = None, *, never_connected: int = 0, unseen: int = 0
    ) -> None:
        """The run matches the ledger; so does `usage`, which somebody else says the run has spent."""
        for spent in (self.usage, usage):
            assert_account_matches(
                self.server.ledger, self.records, spent, never_connected=never_connected, unseen=unseen
            )


@asynccontextmanager
async def open_account(server: ModelServer, budget: Budget | None = None) -> AsyncIterator[Account]:
    """A run around what is inside, as a pipeline's is, so that its records outlive an exception."""
    async with Scope("pipeline", "test", parent=None, limits=limits_of(budget)) as scope:
        yield Account(server, scope)


def check_account(records: Iterable[RequestRecord], server: ModelServer) -> None:
    """Each request that the server billed is on record, to the token; or it is one that a kill cut off."""
    unmeasured, served = 0, {entry.response_id: entry for entry in server.ledger.billed}
    for record in records:
        unmeasured += record.outcome == "unmeasured"
        if record.outcome == "settled":
            ours, theirs = record.tokens, served.pop(record.response_id).usage
            assert (ours.input_tokens, ours.output_tokens) == (theirs.input_tokens, theirs.output_tokens)
    assert len(served) <= unmeasured
