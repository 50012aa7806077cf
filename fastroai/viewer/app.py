"""The ASGI app: its pages, what is checked before each of them, and what becomes of errors."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Collection, Coroutine, Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fastroai.errors import ConfigurationError, FastroAIError, MissingExtraError
from fastroai.store.backends.adapter import adapt_run_store
from fastroai.store.backends.address import Address
from fastroai.store.record.payloads import PayloadCodec, check_codec
from fastroai.store.run_store import RunStoreLike

try:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, Response
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from fastroai.viewer.rendering import environment
except ImportError as error:
    raise MissingExtraError("the viewer", "viewer", "starlette and jinja2") from error

from fastroai.viewer import people, run_page, runs, spending
from fastroai.viewer.access import LOOPBACK, TOKEN, Access, Authorize, Refused
from fastroai.viewer.failures import refusal_of
from fastroai.viewer.visit import NONCE, Handler, PageRoute, Site, Visit

if TYPE_CHECKING:
    from fastroai.runs.door import FrontDoor
    from fastroai.usage.shared.spend_book import SpendBook
    from fastroai.usage.shared.spend_store import SpendStore

ROUTES: Final[tuple[PageRoute, ...]] = (
    *runs.ROUTES,
    *run_page.ROUTES,
    *spending.ROUTES,
    *people.ROUTES,
)
"""All pages and actions. Each module of pages has its own."""

_STATIC: Final = Path(__file__).parent / "static"
logger: Final = logging.getLogger("fastroai.viewer")


def viewer(
    store: RunStoreLike,
    *,
    spend: SpendStore | RunStoreLike | None = None,
    codec: PayloadCodec | None = None,
    authorize: Authorize | None = None,
    token: str | None = None,
    name: str = "",
    hosts: Collection[str] = LOOPBACK,
    runs: Iterable[FrontDoor[Any, Any, Any]] = (),
) -> Starlette:
    """Return an ASGI app with web pages that show the runs of a store, to mount in an app of your own.

        app.mount("/runs", viewer("runs.db", authorize=authorize))

    In its pages, people see runs, spending and open questions. They can also answer, pause, cancel, resume
    and fork, as far as their `Visitor` allows. It works under any path, needs no lifespan, and opens the
    store with the first request.

    Args:
        store: The store that has the runs, or its path or URL.
        spend: The store of the spend limits, or its path or URL; without it, no limits are shown.
        codec: The codec that encrypts values of the runs, if they have one.
        authorize: A function that returns the `Visitor` who makes a request, or `None` to refuse it. It may
            be async. It is called for each request, and every few seconds while a page is open that updates
            itself.
        token: Instead of `authorize`: a secret of 16 characters or more, with which a visitor may do
            everything. Open the viewer once with `?token=...` in the address; a cookie lets the browser in
            from then on.
        name: The name that is stored with answers, if you use `token`.
        hosts: The names by which browsers may call this server, if you use `token`; by default, those of the
            machine itself (`localhost`). A request to another name is refused.
        runs: Pipelines, graphs and flows of the runs. This process can resume and fork runs of these only.

    Raises:
        ConfigurationError: neither `authorize` nor `token` is given, or both are; or another argument is
            invalid.
        MissingExtraError: Starlette or Jinja2 is not installed (the extra `viewer`).
    """
    if (authorize is None) == (token is None):
        expected = "either authorize=, a function that says who may see what, or token=, a secret; not both"
        raise ConfigurationError("authorize", authorize, expected)
    if token is not None and len(token) < 16:
        raise ConfigurationError("token", "...", "a secret of 16 characters or more: secrets.token_urlsafe()")
    check_codec(codec)
    site = Site(
        store=adapt_run_store(store),
        place=_place_of(store),
        codec=codec,
        book=None if spend is None else _book(spend),
        runs={one.name: one for one in runs},
        access=Access(authorize, token, name, hosts),
        templates=environment(),
        paths={route.name: route.path for route in ROUTES} | {"static": "/static/{file}"},
    )
    app = Starlette(
        routes=[
            *(Route(one.path, _endpoint(site, one.handler), methods=list(one.methods)) for one in ROUTES),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ],
        exception_handlers={HTTPException: lambda request, error: _refuse(site, request, error)},
    )
    app.add_middleware(Headers)
    return app


def _place_of(store: RunStoreLike) -> str:
    if not isinstance(store, str | PathLike):
        told = repr(store)  # such as SQLiteRunStore('runs.db')
        found = re.match(r"\W?\w+\W'(.+?)'", told)
        return found[1] if found else told
    return Address(str(store)).shown if "://" in str(store) else str(store)


def _book(spend: SpendStore | RunStoreLike) -> SpendBook:
    from fastroai.store.shared_spending.spend_stores import open_spend_store
    from fastroai.usage.shared.spend_book import SpendBook
    from fastroai.usage.shared.spend_store import SpendStore

    return SpendBook(spend if isinstance(spend, SpendStore) else open_spend_store(spend))


def _endpoint(site: Site, handler: Handler) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Return what answers a request, after the visitor and, for actions, their form were checked."""

    async def answer(request: Request) -> Response:
        try:
            if TOKEN in request.query_params:
                home = request.scope.get("root_path", "") + "/"
                if (exchanged := site.access.exchange(request, home)) is not None:
                    return exchanged
            visitor = await site.access.visitor(request)
            await site.access.check_action(request)
            visit = Visit(request, site, visitor, site.access.csrf(request))
            response = await handler(visit)
            site.access.keep_csrf(request, response, visit.csrf)
        except (Refused, FastroAIError) as error:
            return _refuse(site, request, error)
        except Exception as error:  # a mistake of ours, or of a user's store or function: other pages go on
            logger.exception("%s %s has failed", request.method, request.url.path)
            return _refuse(site, request, error)
        return response

    return answer


def _refuse(site: Site, request: Request, error: Exception) -> Response:
    refused = refusal_of(error)
    text = site.templates.get_template("error.html").render(
        refused=refused, nonce=request.scope.get(NONCE, ""), root=request.scope.get("root_path", "")
    )
    return HTMLResponse(text, status_code=refused.status)


class Headers:
    """ASGI middleware that gives each response the headers that keep other sites and scripts out."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Other scopes go on as they are."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        nonce = scope[NONCE] = secrets.token_urlsafe(16)
        # Files of the package are the same for everybody; pages and streams are nobody's but the visitor's.
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        cache = b"private, max-age=3600" if path.startswith("/static/") else b"no-store"
        added = [
            *_HEADERS,
            (b"content-security-policy", _CSP.format(nonce).encode()),
            (b"cache-control", cache),
        ]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        await self._app(scope, receive, send_with_headers)


_CSP: Final = (
    "default-src 'none'; script-src 'nonce-{}'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types htmx"
)
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
