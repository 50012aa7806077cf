"""What a page works with: the store, the visitor, links and templates; and how it gives its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote, unquote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from fastroai.errors import RunNotFound
from fastroai.human import Inbox
from fastroai.store.reading.history import RunHistory, RunSummary
from fastroai.store.record.headers import UNREADABLE
from fastroai.store.record.payloads import PayloadCodec
from fastroai.store.run_store import RunStore
from fastroai.viewer.access import Access, Action, Refused, Visitor

if TYPE_CHECKING:
    from jinja2 import Environment

    from fastroai.runs.door import FrontDoor
    from fastroai.usage.shared.spend_book import SpendBook

NONCE: Final = "fastroai.viewer.nonce"
"""Where the scope of a request has the nonce of its scripts."""


@dataclass(frozen=True, slots=True)
class Site:
    """What all pages of one viewer share."""

    store: RunStore
    place: str
    """Where the store is, for people: its path or URL, without a password."""
    codec: PayloadCodec | None
    book: SpendBook | None
    """The spend limits; `None` if no store of them was given."""
    runs: Mapping[str, FrontDoor[Any, Any, Any]]
    """Pipelines, graphs and flows by name, with which runs can be resumed and forked."""
    access: Access
    templates: Environment
    paths: Mapping[str, str]
    """The path of each page by its name, with `{name}` for its parts."""

    @property
    def history(self) -> RunHistory:
        """The runs in the store."""
        return RunHistory(self.store, codec=self.codec)

    @property
    def inbox(self) -> Inbox:
        """The questions of these runs to people."""
        return Inbox(self.store, codec=self.codec)


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of a visitor who may see something."""

    request: Request
    site: Site
    visitor: Visitor
    csrf: str

    @property
    def nonce(self) -> str:
        """The nonce of the scripts of this response."""
        nonce: str = self.request.scope[NONCE]
        return nonce

    @property
    def known_name(self) -> str:
        """The name of the visitor as the application knows it, under which they answer; else empty."""
        return self.visitor.name if self.site.access.knows_names else ""

    def param(self, name: str) -> str:
        """Return a part of the path, such as the id of a run."""
        return unquote(self.request.path_params[name])

    def url(self, name: str, query: Mapping[str, str | None] | None = None, **params: str) -> str:
        """Return the path of a page under the mount point, with the given parameters of its query."""
        path: str = self.request.scope.get("root_path", "")
        path += self.site.paths[name].format_map({key: _part(value) for key, value in params.items()})
        wanted = {key: value for key, value in (query or {}).items() if value}
        return path + (f"?{urlencode(wanted)}" if wanted else "")

    def page(self, template: str, *, status: int = 200, **values: object) -> Response:
        """Render a template as a page."""
        return HTMLResponse(self.render(template, **values), status_code=status)

    def render(self, template: str, **values: object) -> str:
        """Render a template as text: a page, or a part of one."""
        found = self.site.templates.get_template(template)
        return found.render(visit=self, url=self.url, csrf=self.csrf, nonce=self.nonce, **values)

    def go(self, name: str, query: Mapping[str, str | None] | None = None, **params: str) -> Response:
        """Send the browser to a page, after an action."""
        return RedirectResponse(self.url(name, query, **params), status_code=303)

    def check_may(self, action: Action) -> None:
        """Check that the visitor may do something. Raises `Refused`."""
        if action not in self.visitor.actions:
            raise Refused(403, "Not allowed", f"You may not {action} here.")

    async def run(self, run_id: str) -> RunSummary:
        """Return a run that the visitor may see. Raises as `RunHistory.summary`; others are not found."""
        try:
            found = await self.site.history.summary(run_id)
        except UNREADABLE:
            if self.visitor.tenants is None:
                raise
            raise RunNotFound(run_id, self.site.place) from None  # nobody knows of which tenant it is
        if not self.visitor.sees(found.tenant):
            raise RunNotFound(run_id, self.site.place)
        return found


Handler: TypeAlias = Callable[[Visit], Awaitable[Response]]


class PageRoute(NamedTuple):
    """A path, what answers it, and the name by which pages link to it."""

    path: str
    handler: Handler
    name: str
    methods: Sequence[str] = ("GET",)


def _part(value: str) -> str:
    """Return a part of a path. It is quoted twice: servers unquote once, and a slash would divide the path.

    A name of dots alone would be a folder to browsers.
    """
    once = quote(value, safe=" :,@+") if value.strip(".") else value.replace(".", "%2E")
    return quote(once, safe=":,@+")
