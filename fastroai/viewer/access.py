"""Who may see and do what in the viewer: a token, or a function of the app in which the viewer is mounted."""

from __future__ import annotations

import hmac
import inspect
import secrets
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal, TypeAlias, get_args
from urllib.parse import SplitResult, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fastroai.errors import ConfigurationError

Action: TypeAlias = Literal["answer", "pause", "cancel", "resume", "fork"]
"""What a person can do in the viewer, besides looking."""

ACTIONS: Final[frozenset[Action]] = frozenset(get_args(Action))
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
"""The names by which a browser on the same machine calls a server."""
CSRF_FIELD: Final = "csrf"
TOKEN: Final = "token"
_CSRF_COOKIE: Final = "fastroai_csrf"
_SAFE: Final = ("GET", "HEAD")


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """A person who uses the viewer: what they may see, and what they may do.

        async def authorize(request: Request) -> Visitor | None:
            user = await user_of(request)
            return user and Visitor(name=user.name, tenants={user.tenant}, actions={"answer"})

    The function `authorize` of `viewer` returns it. By default, a visitor sees all runs and may do all of
    the actions.

    Raises:
        ConfigurationError: `actions` has something that is not an action, or `tenants` is a text.
    """

    name: str = ""
    """The name that goes on record with their answers."""
    tenants: Collection[str] | None = None
    """The tenants whose runs they may see; `None` for all runs, also those without a tenant."""
    actions: Collection[Action] = ACTIONS
    """What they may do: `answer`, `pause`, `cancel`, `resume`, `fork`."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.actions) - ACTIONS)
        if unknown:
            raise ConfigurationError("actions", unknown[0], f"some of {', '.join(sorted(ACTIONS))}")
        if isinstance(self.tenants, str):  # its letters would be the tenants
            raise ConfigurationError("tenants", self.tenants, "a set of names, as in {'acme'}, or None")

    def sees(self, tenant: str | None) -> bool:
        """Return whether the visitor may see the runs of a tenant; `None` stands for runs without a tenant.

        A visitor whose `tenants` are `None` sees all runs. Other visitors do not see runs without a tenant.
        """
        return self.tenants is None or (tenant is not None and tenant in self.tenants)


Authorize: TypeAlias = Callable[[Request], "Visitor | Awaitable[Visitor | None] | None"]
"""A function that returns who makes a request, or `None` if they may see nothing. It may be async."""


class Refused(Exception):
    """A request that gets no answer but the reason. `status` is that of the response."""

    def __init__(self, status: int, title: str, reason: str) -> None:
        super().__init__(status, title, reason)
        self.status, self.title, self.reason = status, title, reason


class Access:
    """The checks before each page, action and message of a stream."""

    def __init__(
        self, authorize: Authorize | None, token: str | None, name: str, hosts: Collection[str]
    ) -> None:
        """Either `authorize` decides, or everybody who has the token may do everything under `name`."""
        self._authorize, self._token, self._name, self._hosts = authorize, token, name, hosts

    @property
    def knows_names(self) -> bool:
        """Whether the application says who somebody is; else they say it themselves."""
        return self._authorize is not None

    async def visitor(self, request: Request) -> Visitor:
        """Return who makes a request. Raises `Refused`."""
        if self._authorize is None:
            self._check_host(request)
            self._check_session(request)
            return Visitor(name=self._name)
        found = self._authorize(request)
        visitor = await found if inspect.isawaitable(found) else found
        if visitor is None:
            raise Refused(403, "Not for you", "You may not see these runs. Ask the owner of this app.")
        return visitor

    def exchange(self, request: Request, home: str) -> Response | None:
        """Return the answer to the printed link: a cookie, and an address without the token.

        Returns `None` if the request has no token. Raises `Refused` for a wrong one.
        """
        given = request.query_params.get(TOKEN)
        if self._token is None or given is None:
            return None
        self._check_host(request)
        if not _is_same(given, self._token):
            raise Refused(401, "This link is not valid", "It belongs to a viewer that has ended. " + _ASK)
        response = RedirectResponse(home, status_code=303)
        _set_cookie(response, request, self._cookie, self._session)
        return response

    def csrf(self, request: Request) -> str:
        """Return the secret that forms repeat, which other sites cannot read: it is also in a cookie."""
        return request.cookies.get(_CSRF_COOKIE) or secrets.token_urlsafe(24)

    def keep_csrf(self, request: Request, response: Response, csrf: str) -> None:
        """Set the cookie that has the secret of forms, if the browser has none yet."""
        if request.cookies.get(_CSRF_COOKIE) != csrf:
            _set_cookie(response, request, _CSRF_COOKIE, csrf)

    async def check_action(self, request: Request) -> None:
        """Check that an action comes from a page of this viewer. Raises `Refused`."""
        if request.method in _SAFE:
            return
        if not _is_from_here(request):
            raise Refused(403, "Not from this page", _FOREIGN)
        form = await request.form()
        expected, given = request.cookies.get(_CSRF_COOKIE), form.get(CSRF_FIELD)
        if not (expected and isinstance(given, str) and _is_same(given, expected)):
            raise Refused(403, "This page is too old", "Go back, reload the page, and try again.")

    @property
    def _cookie(self) -> str:
        # Cookies do not know ports: two viewers on one machine need two names.
        return f"fastroai_viewer_{_digest('name', self._token)[:8]}"

    @property
    def _session(self) -> str:
        return _digest("session", self._token)

    def _check_session(self, request: Request) -> None:
        given = request.cookies.get(self._cookie, "")
        if not _is_same(given, self._session):
            raise Refused(
                401, "A key is needed", "Other users of this machine can reach this address. " + _ASK
            )

    def _check_host(self, request: Request) -> None:
        """Refuse a name that somebody else's DNS server could have given this machine. Raises `Refused`."""
        if _split(f"//{request.headers.get('host', '')}").hostname not in self._hosts:
            raise Refused(400, "Unknown host", f"Open this viewer at {' or '.join(sorted(self._hosts))}.")


_FOREIGN: Final = (
    "The request came from another site, or over plain HTTP from another machine, where browsers do not say "
    "which site it came from. Serve the viewer over HTTPS there."
)
_ASK: Final = "Open the link that was printed when the viewer started: it has a token."


def _is_from_here(request: Request) -> bool:
    """Return whether a page of the same origin made the request, as far as browsers say.

    As pages have no referrer, browsers send `Origin: null` with their forms. Then `Sec-Fetch-Site` tells the
    site, which browsers send over HTTPS and to the loopback address.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site != "same-origin":
        return False
    if origin == "null":
        return site == "same-origin"
    return origin is None or _split(origin).netloc == request.headers.get("host")


def _split(url: str) -> SplitResult:
    """Return the parts of a URL that a client sent; of one that is none, no parts."""
    try:
        return urlsplit(url)
    except ValueError:  # a bracket that nothing closes
        return urlsplit("")


def _set_cookie(response: Response, request: Request, name: str, value: str) -> None:
    response.set_cookie(
        name,
        value,
        path=request.scope.get("root_path") or "/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


def _digest(what: str, token: str | None) -> str:
    return hmac.new((token or "").encode(), what.encode(), sha256).hexdigest()


def _is_same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())
