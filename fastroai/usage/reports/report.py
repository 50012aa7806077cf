"""The usage report of a run: the cost of its requests by step, agent, model, tool, tenant and so on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from fastroai.records import RequestRecord, Usage
from fastroai.usage.reports.report_data import as_csv, as_json
from fastroai.usage.reports.report_rows import (
    NO_AGENT,
    NO_STEP,
    NO_TENANT,
    NO_VARIANT,
    UsageRow,
    by_returned_tool,
    model_of,
    outcomes,
    ranked,
    stated_over_priced,
)
from fastroai.usage.reports.report_tables import as_html, as_markdown, as_rich, as_text

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UsageReport:
    """The costs of a run, by their origin: `result.usage.report()`, or `response.report()` of one agent call.

        report = result.usage.report()
        print(report)
        report.by_model["openai:gpt-5-mini"].cost_usd

    `total` is the row for all requests. Each group, such as `by_step` or `by_model`, has rows by name. In
    each group except `by_outcome`, the row with the highest `committed_usd` comes first: the known cost, and
    the most that requests of unknown cost can have cost. The rows of each group, except `by_tool` and
    `by_tag`, add up exactly to `total`, because each request is in one of them.
    """

    total: UsageRow
    by_step: Mapping[str, UsageRow]
    """Rows by the innermost step around a request; `(no step)` if there is none."""
    by_agent: Mapping[str, UsageRow]
    """Rows by the agent that made the request; `(no agent)` for costs that `record_usage` added."""
    by_model: Mapping[str, UsageRow]
    """Rows by the `provider:model` that was asked; by `model` alone where no provider is known."""
    by_tool: Mapping[str, UsageRow]
    """Rows by the tool whose return a request brought to a model: the request exists because of the tool.

    A request that brought the returns of several tools counts in the row of each, and its tokens, cost and
    bound are divided among them: equally, rounded down to whole tokens and to 12 decimals of a dollar (or to
    the last digit of the amount, if it has more). The remainder goes to the tools that are named first, one
    unit to each, so that the parts are exactly the whole. Requests that brought no return are not here.
    """
    by_variant: Mapping[str, UsageRow]
    """Rows by the variant that a router chose around a request; `(no variant)` if there is none."""
    by_tenant: Mapping[str, UsageRow]
    """Rows by the tenant of the run or scope around a request; `(no tenant)` where none is named."""
    by_tag: Mapping[str, UsageRow]
    """Rows by tag. A request is in the row of each of its tags; requests without tags are not here."""
    by_outcome: Mapping[str, UsageRow]
    """Rows by outcome of the requests: always `kept`, `retried`, `failed` and `released`, in this order."""
    stated_over_priced_usd: Decimal = Decimal(0)
    """US dollars that providers bill beyond the prices known here, where they state it; negative if less."""

    @classmethod
    def of(cls, records: Iterable[RequestRecord]) -> UsageReport:
        """Return the report of these records of requests. Without records, all of its sums are zero."""
        records = list(records)
        total = Usage.of(records)
        return cls(
            total=UsageRow.of("total", total, total),
            by_step=ranked(total, ((record.step_id or NO_STEP, record) for record in records)),
            by_agent=ranked(total, ((record.agent or NO_AGENT, record) for record in records)),
            by_model=ranked(total, ((model_of(record), record) for record in records)),
            by_tool=ranked(total, (part for record in records for part in by_returned_tool(record))),
            by_variant=ranked(total, ((record.variant or NO_VARIANT, record) for record in records)),
            by_tenant=ranked(total, ((record.tenant or NO_TENANT, record) for record in records)),
            by_tag=ranked(total, ((tag, record) for record in records for tag in record.tags)),
            by_outcome=outcomes(total, records),
            stated_over_priced_usd=stated_over_priced(records),
        )

    @property
    def groups(self) -> Mapping[str, Mapping[str, UsageRow]]:
        """All rows but the total: for each group, by its name, the rows of that group by their names.

        The groups are `step`, `agent`, `model`, `tool`, `variant`, `tenant`, `tag` and `outcome`.
        """
        return {name.removeprefix("by_"): getattr(self, name) for name in self.__slots__ if name[:3] == "by_"}

    @property
    def cost_usd(self) -> Decimal:
        """Exact known cost of all requests, in US dollars. `cost_complete` says whether it is all of it."""
        return self.total.cost_usd

    @property
    def cost_complete(self) -> bool:
        """Whether `cost_usd` is the whole cost: no request is unpriced or unmeasured."""
        return self.total.cost_complete

    @property
    def failed_requests(self) -> int:
        """Number of requests that ended unbilled: refused by the provider, or never sent."""
        return self.total.failed_requests

    def to_json(self) -> str:
        """Return the report as a JSON object; amounts are exact US dollars, as strings.

        Its fields are `version` (3), `currency`, `cost_complete`, `stated_over_priced_usd`, `total`, and a
        list of rows for each group, such as `by_step`. A row has the fields of `UsageRow`, and
        `cost_complete`; its `unpriced_units` are one text, separated by commas.
        """
        return as_json(self)

    def to_csv(self) -> str:
        """Return the report as one CSV table, whose first column is the group; amounts are exact US dollars.

        The first line names the columns: `group`, and the fields of `UsageRow` with `cost_complete`. The
        second line is the total, whose group is `total`; a line for each row of each group follows.

        Names are made harmless for spreadsheets: an apostrophe is put before text that looks like a formula.
        """
        return as_csv(self)

    def to_markdown(self) -> str:
        """Return the report as a Markdown table for people, with amounts in US dollars, rounded.

        Rows of zeros, columns without a value, and groups in which nothing has a name are left out. If the
        cost is not complete, notes below the table say what is missing.
        """
        return as_markdown(self)

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        return (
            f"UsageReport(cost_usd={self.cost_usd}, cost_complete={self.cost_complete}, "
            f"requests={self.total.request_count})"
        )

    def __rich__(self) -> RenderableType:
        """Return the report as rich prints it."""
        return as_rich(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from fastroai.drawing.pages import page  # late: only notebooks show pages

        return page(self._repr_html_(), str(self))

    def _repr_html_(self) -> str:
        """Return the report as HTML, for notebooks."""
        return as_html(self)
