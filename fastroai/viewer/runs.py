"""The list of runs: found by filters and words, sorted, in pages, and kept up to date."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, cast

from starlette.responses import Response

from fastroai.errors import ConfigurationError
from fastroai.store.reading.run_queries import STATES, RunOrder, RunQuery
from fastroai.viewer.access import Visitor
from fastroai.viewer.streams import live, version_of
from fastroai.viewer.visit import PageRoute, Visit

if TYPE_CHECKING:
    from fastroai.store.record.entries import RunState

SIZE: Final = 50
"""Runs of a page."""
_FIELDS: Final = ("status", "pipeline", "tag", "tenant", "search", "since", "until", "sort", "way")


@dataclass(frozen=True, slots=True)
class Filters:
    """What the address of the page asks for, and the query that it is."""

    given: Mapping[str, str]
    """The parameters, as the form has them."""

    def __getitem__(self, name: str) -> str:
        return self.given.get(name, "")

    @property
    def has_more(self) -> bool:
        """Whether a field is set that is not shown at first."""
        return any(self[name] for name in ("pipeline", "tag", "tenant", "since", "until"))

    def query(self, visitor: Visitor) -> RunQuery:
        """Return the query, for the runs that a visitor may see. Raises `ConfigurationError`."""
        return RunQuery(
            status=cast("RunState | None", self["status"] or None),
            pipeline=self["pipeline"] or None,
            tag=self["tag"] or None,
            tenant=self["tenant"] or None,
            tenants=visitor.tenants,
            search=self["search"],
            started_since=_time("since", self["since"]),
            started_until=_time("until", self["until"]),
            sort=cast("RunOrder", self["sort"] or "started"),
            ascending=self["way"] == "up",
        )

    def but(self, **changes: str) -> Mapping[str, str]:
        """Return the parameters with changes, for a link to the first page of other runs."""
        return {**self.given, **changes}

    def sorted_by(self, order: str) -> Mapping[str, str]:
        """Return the parameters of the list in an order; in that of the list, the other way around."""
        is_sorted = (self["sort"] or "started") == order
        return self.but(sort=order, way="up" if is_sorted and self["way"] != "up" else "")


def _time(option: str, text: str) -> datetime | None:
    """Return the time of a field: a day, or a day and a time, in UTC. Raises `ConfigurationError`."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(option, text, "a day or a time, as in 2026-03-01T12:00") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _filters(visit: Visit) -> Filters:
    asked = visit.request.query_params
    return Filters({name: asked[name] for name in _FIELDS if asked.get(name)})


async def show(visit: Visit) -> Response:
    """List runs."""
    filters, after = _filters(visit), visit.request.query_params.get("after")
    rows = await _rows(visit, visit.visitor)
    return visit.page(
        "runs.html",
        filters=filters,
        states=STATES,
        rows=rows,
        stream=visit.url("runs_stream", {**filters.given, "after": after, "seen": version_of(rows)}),
    )


async def stream(visit: Visit) -> Response:
    """Send the list again, each time that something in it has changed."""
    return live(visit, lambda visitor: _rows(visit, visitor))


async def _rows(visit: Visit, visitor: Visitor) -> str:
    """Return the table of one page of runs."""
    filters, after = _filters(visit), visit.request.query_params.get("after")
    page = await visit.site.history.page(filters.query(visitor), limit=SIZE, after=after)
    total = await visit.site.history.count(filters.query(visitor))
    return visit.render("runs_rows.html", filters=filters, page=page, after=after, total=total)


async def home(visit: Visit) -> Response:
    """Send the browser to the list of runs."""
    return visit.go("runs")


ROUTES: Final = (
    PageRoute("/", home, "home"),
    PageRoute("/runs", show, "runs"),
    PageRoute("/stream/runs", stream, "runs_stream"),
)
