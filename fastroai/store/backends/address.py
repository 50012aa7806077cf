"""Addresses of servers, in which passwords can be: what can be shown of them, and texts without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote, unquote_plus

from fastroai.errors import error_chain

HIDDEN: Final = "***"
_HOST: Final = r"(?:[\w.%-]*|\[[0-9A-Fa-f:.%]+\])(?::\d+)?"
_URL: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://"
    r"(?:(?P<user>[^\s:/?#@\[\]]*)(?P<password>:[^\s/?#@\[\]]*)?@)?"
    rf"(?P<hosts>{_HOST}(?:,{_HOST})*)"
    r"(?P<path>/[^\s?#@]*)?"
    r"(?:\?(?P<query>[^\s?#@]*))?"
)
"""A URL that can be read in one way only. A password with `@`, `/` or `?` in it makes a URL ambiguous."""
_PAIR: Final = re.compile(r"\s*(?P<name>\w+)\s*=\s*(?P<value>'(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)+)(?:\s+|$)")
"""An option of a connection string of libpq: `host=localhost password='a b'`."""
_PUBLIC: Final = frozenset(
    {"host", "hostaddr", "port", "dbname", "db", "user", "sslmode", "connect_timeout", "application_name"}
)
"""Options whose values are no secrets."""
_DELIMITERS: Final = re.compile(r"[\s:/?#@&=,;'\"\\\[\]]+")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_LONG: Final = 6
"""Characters from which a secret is hidden inside of words, too."""


class Address:
    """A URL or connection string as somebody has given it.

    Only what cannot be a secret is shown. A part that may be one is hidden in each text, however a driver has
    understood the address. If the address can be read in several ways, each part of it may be a secret.
    """

    def __init__(self, given: str, *more_secrets: str) -> None:
        """Take an address, and further secrets that are given beside it."""
        self.given = given
        url = _URL.fullmatch(given)
        options = None if url else _options_in(given)
        self.is_clear = url is not None or options is not None
        """Whether the address can be read in one way only. Then what a driver has read of it can be shown."""
        if url:
            user, password = url["user"] or "", (url["password"] or "")[1:]
            in_query = [part.partition("=") for part in (url["query"] or "").split("&")]
            secrets = [password or user, *(value for name, _, value in in_query if name not in _PUBLIC)]
        elif options is not None:
            secrets = [value for name, value in options if name not in _PUBLIC]
        else:
            secrets = [given, *_DELIMITERS.split(given), *_DELIMITERS.split(unquote(given))]
        scheme = _SCHEME.match(given)
        self._scheme = scheme[1] if scheme else ""
        self._secrets = sorted(
            _as_quoted([*secrets, *more_secrets]) - {"", self._scheme}, key=len, reverse=True
        )

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and self.given == other.given

    def __hash__(self) -> int:
        return hash(self.given)

    @property
    def shown(self) -> str:
        """The address without user, password and options; if it is ambiguous, its scheme alone."""
        if url := _URL.fullmatch(self.given):
            return f"{self._scheme}://{url['hosts']}{url['path'] or ''}"
        return f"{self._scheme}://{HIDDEN}" if self._scheme else HIDDEN

    def hide(self, text: str) -> str:
        """Return a text without the secrets of the address."""
        for secret in self._secrets:
            within = re.escape(secret)
            if len(secret) < _LONG:  # "a" is a word, and is in many others
                within = rf"(?<!\w){within}(?!\w)"
            text = re.sub(within, HIDDEN, text)
        return text

    def is_told_by(self, error: BaseException) -> bool:
        """Return whether an exception, or one that it was raised from, has a secret of the address.

        psycopg keeps the options of the connection in attributes, which tools that report errors can show.
        """
        return any(
            self.hide(text) != text
            for one in error_chain(error)
            for text in (str(one), repr(one), repr(one.__dict__))
        )


def _options_in(given: str) -> list[tuple[str, str]] | None:
    """Return the options of a connection string of libpq, unless it cannot be read as one."""
    options, at = [], 0
    while at < len(given):
        if (pair := _PAIR.match(given, at)) is None:
            return None
        options.append((pair["name"], pair["value"]))
        at = pair.end()
    return options


def _as_quoted(secrets: Iterable[str]) -> set[str]:
    """Return secrets in the forms in which a driver may quote them."""
    forms = set[str]()
    for secret in secrets:
        bare = re.sub(r"\\(.)", r"\1", secret[1:-1] if secret[:1] == "'" == secret[-1:] else secret)
        forms |= {secret, bare, unquote(secret), unquote_plus(secret)}
    return forms | {repr(form)[1:-1] for form in forms}
