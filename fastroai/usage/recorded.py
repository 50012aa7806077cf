"""The usage of a run on record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Self

from typing_extensions import override

from fastroai.records import RequestRecord, Usage

if TYPE_CHECKING:
    from fastroai.usage.reports.report import UsageReport


class RecordedUsage(Usage):
    """The sums over the requests of a run on record, and these requests."""

    records: tuple[RequestRecord, ...] = ()
    """Every request and other spending, in order."""

    @classmethod
    @override
    def of(cls, records: Iterable[RequestRecord]) -> Self:
        """Return the sum of some records."""
        usage = cls()
        usage.records = tuple(records)
        for record in usage.records:
            usage.add(record)
        return usage

    def report(self) -> UsageReport:
        """Return a report of the cost by step, agent, model and so on, as results have it."""
        from fastroai.usage.reports.report import UsageReport

        return UsageReport.of(self.records)

    def __eq__(self, other: object) -> bool:
        """Compare the sums, also with those of a run of this process."""
        if not isinstance(other, Usage):
            return NotImplemented
        return all(getattr(self, one.name) == getattr(other, one.name) for one in fields(Usage))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.report()._repr_mimebundle_()
