"""What one run has spent: on which day, in which step, with which model, and for whom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final, NamedTuple

from fastroai.records import RequestRecord, Usage
from fastroai.runtime.fact_base import Begins, Ends, Fact, Key
from fastroai.usage.reports.report_rows import model_of

MOST_PARTS: Final = 50
"""Most parts that a header has. The spending of a run that has more is read from its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentPart:
    """What a run has spent on one day, in one step, with one model, for one tenant and with the same tags."""

    day: date
    """The day in UTC."""
    step: str | None
    """Id of the step or node. `None` for spending outside of steps, and if `Spent.has_steps` is false."""
    model: str
    tenant: str | None
    tags: tuple[str, ...]
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """All that a run has spent, which its header says once the run has ended or waits."""

    parts: tuple[SpentPart, ...] = ()
    since: datetime | None = None
    """Time of the first spending; `None` without any."""
    until: datetime | None = None
    """Time of the last spending."""
    has_steps: bool = True
    """Whether the parts are of steps. A run of many steps has too many of them."""


class _Charge:
    """An amount and its time. A later fact about the same thing can change the amount."""

    __slots__ = ("at", "has_ended", "record")

    def __init__(self, at: datetime, record: RequestRecord) -> None:
        self.at, self.record, self.has_ended = at, record, False


class _Of(NamedTuple):
    """What a sum is of."""

    day: date
    step: str | None
    model: str
    tenant: str | None
    tags: tuple[str, ...]


def _of(charge: _Charge) -> _Of:
    record = charge.record
    return _Of(charge.at.date(), record.step_id, model_of(record), record.tenant, tuple(record.tags))


class SpendingOnRecord:
    """The spending in a log, which is read fact by fact. It keeps no facts, only what they have cost."""

    def __init__(self, entries: Iterable[Fact] = ()) -> None:
        """Read the facts of a log from its beginning."""
        self._charges: list[_Charge] = []
        self._last: dict[Key, _Charge] = {}
        """The last charge of each thing that can end or can be settled."""
        self._folded: dict[_Of, Usage] = {}
        """The sums of what was folded."""
        self._doubtful: list[RequestRecord] = []
        self._times: tuple[datetime, ...] = ()
        """Times of the first and the last spending of what was folded."""
        for entry in entries:
            self.read(entry)

    def read(self, entry: Fact) -> None:
        """Read the next fact. A fact that is a beginning and an end is a charge of its own."""
        if not isinstance(entry, Begins | Ends) or (record := entry.spending) is None:
            return
        key = entry.about
        charge = self._last.get(key) if key[-1] else None
        if isinstance(entry, Begins) and (charge is None or charge.has_ended):
            charge = self._last[key] = _Charge(entry.at, record)
            self._charges.append(charge)
        elif charge is None:
            return  # the end of what never began
        charge.record = record
        charge.has_ended = charge.has_ended or isinstance(entry, Ends)

    @property
    def records(self) -> list[RequestRecord]:
        """What was spent, as far as is known by now; of what was folded, one doubtful record at most."""
        return [*self._doubtful, *(charge.record for charge in self._charges)]

    def fold(self) -> None:
        """Keep only the sums of what has ended, so that a run of any length fits into memory.

        From then on, a part is told by its day, and a shorter period cannot be asked for.
        """
        ended = [charge for charge in self._charges if charge.has_ended]
        if not ended:
            return
        for charge in ended:
            self._folded.setdefault(_of(charge), Usage()).add(charge.record)
            if charge.record.is_doubtful:
                self._doubtful = [charge.record]
        times = (*self._times, *(charge.at for charge in ended))
        self._times = min(times), max(times)
        self._charges = [charge for charge in self._charges if not charge.has_ended]
        self._last = {key: charge for key, charge in self._last.items() if not charge.has_ended}

    def parts(
        self,
        *,
        tenant: str | None,
        tags: Sequence[str],
        since: datetime | None = None,
        until: datetime | None = None,
        has_steps: bool = True,
    ) -> tuple[SpentPart, ...]:
        """Return the spending in a period, part by part.

        A record without a tenant or without tags has those of the run, which are given.
        """
        usages: dict[_Of, Usage] = {}

        def sum_for(of: _Of) -> Usage:
            step = of.step if has_steps else None
            known_as = of._replace(step=step, tenant=of.tenant or tenant, tags=of.tags or tuple(tags))
            return usages.setdefault(known_as, Usage())

        for of, folded in self._folded.items():
            sum_for(of).include(folded)
        for charge in self._charges:
            if (since is None or since <= charge.at) and (until is None or charge.at < until):
                sum_for(_of(charge)).add(charge.record)
        return tuple(
            SpentPart(day=day, step=step, model=model, tenant=tenant, tags=tags, usage=usage)
            for (day, step, model, tenant, tags), usage in usages.items()
        )

    @property
    def usage(self) -> Usage:
        """All of it together."""
        total = Usage()
        for part in self.parts(tenant=None, tags=(), has_steps=False):
            total.include(part.usage)
        return total

    def spent(self, *, tenant: str | None, tags: Sequence[str]) -> Spent | None:
        """Return all spending as a header has it; `None` if it has too many parts."""
        times = [*self._times, *(charge.at for charge in self._charges)]
        for has_steps in (True, False):
            parts = self.parts(tenant=tenant, tags=tags, has_steps=has_steps)
            if len(parts) <= MOST_PARTS:
                since, until = min(times, default=None), max(times, default=None)
                return Spent(parts=parts, since=since, until=until, has_steps=has_steps)
        return None
