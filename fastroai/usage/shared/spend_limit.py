"""A limit on the spending of many runs and processes together: in an hour, a day, a month, or altogether."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, get_args

from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.other_names import by_name, other_names
from fastroai.records import Duration, in_seconds, usd_to_microcents
from fastroai.usage.budget import (
    DEFAULT_WARNING,
    OnUncertain,
    OnWarning,
    exact_limit,
    known_policy,
    warning_handler,
    warning_shares,
)
from fastroai.usage.money import Amount
from fastroai.usage.shared.spend_amounts import KEEP, Window, spend_units

if TYPE_CHECKING:  # every agent has this module, and few programs have a spend limit
    from fastroai.usage.shared.spend_store import SpendAccount, SpendStatus, SpendStore

BY_TENANT: Final = "tenant"
"""The key of a spend limit that counts by the tenant of a run."""
BY_TAG: Final = "tag"
"""The start of the keys of spend limits that count what a tag spends."""
_TENANT: Final = (
    "a tenant, as SpendLimit(key='tenant') counts by tenant: pass tenant= to execute, to the agent's run or "
    "to a budget_scope around the limit; to status(), too"
)
SAID_FOR: Final = 1.0
"""Seconds for which the amount that a function has returned holds."""
_MOST_SAID: Final = 10_000
_DEFAULT_KEY: Final = "default"
_LONGEST_KEY: Final = 200
_LONGEST_LEASE: Final = 86_400
_SHORTEST_KEEP: Final = timedelta(days=1).total_seconds()
_LONGEST_KEEP: Final = timedelta(days=3650).total_seconds()
_LONGEST_DEADLINE: Final = timedelta(days=3650).total_seconds()
_STORE: Final = "a SpendStore, or the path or URL of one; for a store of runs, open_spend_store(runs)"
KEY_EXPECTED: Final = f"a key: printable text of 1 to {_LONGEST_KEY} characters"


SpendStoreLike: TypeAlias = "SpendStore | str | os.PathLike[str]"
"""A store that counts spending, or the path or URL of one, as `open_spend_store` takes it."""

AmountOf: TypeAlias = Callable[[str, str | None], Amount | Awaitable[Amount]]
"""A function from the key of an account and the tenant of a run to an amount in US dollars; may be async."""


OnLimit: TypeAlias = Literal["fail", "wait"]
"""What a run does that meets a spend limit: it fails, or it waits for the next window."""


@by_name()
@other_names()
@dataclass(frozen=True, slots=True, init=False)
class SpendLimit:
    """A limit on spending in US dollars that runs, threads and processes share.

    They share it if their limits have the same store, key and window. Use it like a `Budget`: in the config
    of an agent or pipeline, as `budget=` of a run, or in a `budget_scope`.

        SpendLimit(usd=20)                                         # this process, all together, a day
        SpendLimit(usd=5, key="tenant", store=RedisSpendStore("redis://localhost"))  # for each tenant
        SpendLimit(usd=5, key=lambda deps: deps.team, store=RedisSpendStore("redis://localhost"))
        SpendLimit(usd=5, tag="experiment")                        # only what runs with this tag spend

    Each request reserves the most that it can cost before it is sent. It waits while other requests have
    reserved the money that it needs. If it cannot fit in the window, it is not sent: the run fails with
    `SpendLimitExceeded` or, with `on_limit="wait"`, waits for the next window.

    Windows are those of the calendar, in UTC, by the clock of the store: an hour starts at minute 0, a day at
    midnight, a month on its first day. A request is charged to the window in which it was reserved, even if
    its answer comes in the next one. Each limit decides by its own amount, so limits of different amounts can
    share one account.
    """

    usd: Decimal | AmountOf
    """The limit in US dollars; or a function that returns it for a key and a tenant, such as the plan of a
    customer. It is asked again after a second, so that a changed plan holds for the next request. Requests
    that come before its first answer for their key and tenant each ask it, and so do those after a failure.
    """
    window: Window
    """The period for which the limit holds: each hour, day or month, or all time."""
    key: str | Callable[[Any], str]
    """The name under which spending counts; or a function that returns this name for the `deps` of a run.
    `"tenant"` counts by the tenant of the run (`execute(tenant=...)`), with the key `tenant:NAME` for each.
    """
    tag: str | None
    """The tag to which the limit applies, also if set further inside; `None` for all spending. The key is
    then `tag:NAME`, or `tag:NAME/KEY` with a `key` as well.
    """
    warn_at: tuple[float, ...]
    """The shares of the limit, above 0 and at most 1, at which a `BudgetWarning` is given, once in a window
    for each share. The process that settles the first request after a share is reached gives the warning.
    """
    on_warning: OnWarning | None
    """A function to call with each `BudgetWarning`; it may be async. Its errors are only logged."""
    store: SpendStore
    """The store that counts the spending; it can be given as a path or URL, such as `"spend.db"`. By default
    it is the memory of this process, for all limits with one key.

    FastroAI's pytest plugin clears that memory after each test."""
    on_unpriced: OnUncertain
    """Policy for requests to a model without a known price: `refuse` them, or `allow` them uncounted."""
    on_unbounded: OnUncertain
    """Policy for a request whose cost nothing bounds: `refuse` it, or `allow` it unreserved."""
    on_unavailable: OnUncertain
    """Policy for requests while the store cannot be reached: `refuse` them, or `allow` them uncounted."""
    lease: float
    """Seconds after which the store gives up a claim that its process no longer renews."""
    keep: timedelta
    """Time for which the store keeps a window after its end, for a `SpendBook` to look back."""
    on_limit: OnLimit
    """What a run does that meets the limit: it fails with `SpendLimitExceeded`; or it waits.

    A run that waits halts the step that meets the limit, as `ctx.sleep` does: nothing is reserved, and no
    process waits. `wake` takes the run up when the next window opens. So a store must keep the run. Outside
    of runs, and where waiting cannot help, the error is raised as ever.
    """
    deadline: timedelta | None
    """The longest that a run waits, from when its step first meets the limit. If the next window opens later
    than that, the run fails at once. `None` for no bound."""
    _said: dict[tuple[str, str | None], tuple[float, Decimal]] = field(init=False, compare=False, repr=False)
    """What the function `usd` has said, by key and tenant, each with the time until which it holds."""

    def __init__(
        self,
        *,
        usd: Amount | AmountOf | None = None,
        microcents: int | None = None,
        window: Window = "day",
        key: str | Callable[[Any], str] = _DEFAULT_KEY,
        tag: str | None = None,
        warn_at: float | Iterable[float] | None = DEFAULT_WARNING,
        on_warning: OnWarning | None = None,
        store: SpendStoreLike | None = None,
        on_unpriced: OnUncertain = "refuse",
        on_unbounded: OnUncertain = "refuse",
        on_unavailable: OnUncertain = "refuse",
        lease: Duration = 30.0,
        keep: Duration = KEEP,
        on_limit: OnLimit = "fail",
        deadline: Duration | None = None,
    ) -> None:
        """Give exactly one of `usd` and `microcents`.

        Raises:
            ConfigurationError: if neither or both are given; for amounts that are not positive and finite, or
                a billion dollars and more, and for floats that are rounding errors; for an unknown window,
                and for other invalid options; and for `on_limit="wait"` with the window `"total"`, which
                never opens again.
        """
        for option, value in (
            ("usd", usd if callable(usd) and microcents is None else _amount(usd, microcents)),
            ("window", known_window(window)),
            ("key", _static_key(key)),
            ("tag", _tag(tag)),
            ("warn_at", warning_shares(warn_at)),
            ("on_warning", warning_handler(on_warning)),
            ("store", usable_store(store)),
            ("on_unpriced", known_policy("on_unpriced", on_unpriced)),
            ("on_unbounded", known_policy("on_unbounded", on_unbounded)),
            ("on_unavailable", known_policy("on_unavailable", on_unavailable)),
            ("lease", _lease(lease)),
            ("keep", _keep(keep)),
            ("on_limit", _on_limit(on_limit, window)),
            ("deadline", _deadline(deadline, on_limit)),
            ("_said", {}),
        ):
            object.__setattr__(self, option, value)

    @property
    def microcents(self) -> int | None:
        """The limit in microcents ($1 = 1,000,000), rounded half to even; `None` if `usd` is a function."""
        return None if callable(self.usd) else usd_to_microcents(self.usd)

    async def amount_for(self, key: str, tenant: str | None = None) -> Decimal:
        """Return the amount of this limit for a key and a tenant, in US dollars.

        If `usd` is an amount, return that. If it is a function, it is called with the key and the tenant, and
        its amount is kept for a second for calls with the same key and tenant. It may be async; if it is not,
        it runs on the event loop. After that second, one call asks the function again, and the others get the
        old amount meanwhile. Before there is a first amount, every call asks the function.

        A limit that was set by hand with a `SpendBook` is not considered; `status` shows it.

        Raises:
            ConfigurationError: the function `usd` failed, or did not return a positive amount below a billion
                dollars.
        """
        if not callable(self.usd):
            return self.usd
        if (known := self._said.get((key, tenant))) is not None:
            if (now := monotonic()) < known[0]:
                return known[1]
            # Other requests go by the known amount meanwhile, so that they do not all ask at once.
            self._said[key, tenant] = now + SAID_FOR, known[1]
        try:
            said = self.usd(key, tenant)
            amount = _amount(await said if inspect.isawaitable(said) else said, None)
        except BaseException as error:
            self._said.pop((key, tenant), None)
            if not isinstance(error, Exception):
                raise
            name = getattr(self.usd, "__qualname__", repr(self.usd))
            expected = "a positive amount of US dollars; the function failed for"
            reason = f"{expected} key {key!r} and tenant {tenant!r}: {error!r}"
            raise ConfigurationError("usd", name, reason) from error
        if len(self._said) >= _MOST_SAID:
            self._said.clear()
        self._said[key, tenant] = monotonic() + SAID_FOR, amount
        return amount

    def last_amount_for(self, key: str, tenant: str | None = None) -> Decimal | None:
        """Return the amount of this limit for a key and a tenant, in US dollars, as far as it is known.

        If `usd` is an amount, return that. If it is a function, return the amount that it returned last for
        this key and tenant, however long ago, without a new call. Return `None` if it was not called for them
        yet, or its last call failed.
        """
        if not callable(self.usd):
            return self.usd
        known = self._said.get((key, tenant))
        return None if known is None else known[1]

    def account_for(self, deps: object, tenant: str | None = None) -> SpendAccount:
        """Return the account in which the spending of a run with these `deps` and this tenant counts.

        The account has a key and the window of the limit. The key is that of the limit, or what its key
        function returns for `deps`; with `key="tenant"`, it is `tenant:NAME`. With a `tag`, it is `tag:NAME`
        or, if the limit has a `key` too, `tag:NAME/KEY`; then only spending with this tag counts.

        Raises:
            ConfigurationError: the key function failed, or returned no key (printable text of 1 to 200
                characters); or the key is `"tenant"` and `tenant` is `None`.
        """
        key = self._key_for(deps, tenant)
        if self.tag is not None:
            key = f"{BY_TAG}:{self.tag}" + (f"/{key}" if self.key != _DEFAULT_KEY else "")
        from fastroai.usage.shared.spend_store import SpendAccount

        return SpendAccount(key=key, window=self.window)

    def _key_for(self, deps: object, tenant: str | None) -> str:
        if self.key == BY_TENANT:
            if tenant is None:
                raise ConfigurationError("tenant", None, _TENANT)
            return f"{BY_TENANT}:{tenant}"
        if isinstance(self.key, str):
            return self.key
        name = getattr(self.key, "__qualname__", repr(self.key))
        try:
            key = self.key(deps)
        except Exception as error:
            raise ConfigurationError("key", name, f"{KEY_EXPECTED}; the function raised {error!r}") from error
        if not is_key(key):
            raise ConfigurationError("key", name, f"{KEY_EXPECTED}; the function returned {key!r}")
        return key

    async def status(self, deps: object = None, *, tenant: str | None = None) -> SpendStatus:
        """Return the limit, the spent and the remaining amounts of the current window, as the store has them.

        Nothing is reserved or changed. If a `SpendBook` has set the limit of this window, `limit_usd` is that
        amount. The changes by hand (`adjustments`) are not included; `SpendBook.list` shows them.

        Args:
            deps: The argument for the key function, if the limit has one.
            tenant: The tenant, if the limit counts by tenant, or `usd` is a function that needs it.

        Raises:
            ConfigurationError: as `account_for` and `amount_for`.
            SpendStoreUnavailable: the store could not be reached, whatever `on_unavailable` is.
        """
        account = self.account_for(deps, tenant)
        balance = await self.store.balance(account)
        from fastroai.usage.shared.spend_store import SpendStatus

        return SpendStatus(
            key=account.key,
            window=account.window,
            limit_usd=await self.amount_for(account.key, tenant)
            if balance.limit_usd is None
            else balance.limit_usd,
            spent_usd=balance.spent_usd,
            reserved_usd=balance.reserved_usd,
            now=balance.now,
            resets_at=balance.resets_at,
        )


def _amount(usd: Any, microcents: int | None) -> Decimal:
    amount = exact_limit(usd, microcents)
    if amount is None or (usd is not None and microcents is not None):
        given = ... if amount is None else {"usd": usd, "microcents": microcents}
        raise ConfigurationError("SpendLimit", given, "exactly one of usd= and microcents=")
    spend_units(amount, "limit")
    return amount


def known_window(window: object) -> object:
    """Return the window if it is a known kind; else raise `ConfigurationError`."""
    return _known_option("window", window, get_args(Window))


def _known_option(option: str, given: object, known: tuple[str, ...]) -> object:
    if given not in known:
        expected = f"one of {', '.join(map(repr, known))}.{nearest_hint(str(given), known)}"
        raise ConfigurationError(option, given, expected)
    return given


def _static_key(key: object) -> object:
    if inspect.iscoroutinefunction(key):
        raise ConfigurationError("key", key.__qualname__, f"{KEY_EXPECTED}, or a function that is not async")
    if not callable(key) and not is_key(key):
        raise ConfigurationError("key", key, f"{KEY_EXPECTED}, or a function of deps that returns one")
    return key


def _tag(tag: object) -> object:
    if tag is not None and not is_key(tag):
        raise ConfigurationError("tag", tag, f"a tag: printable text of 1 to {_LONGEST_KEY} characters")
    return tag


def is_key(key: object) -> bool:
    """Return whether a value can be the key of something that processes share."""
    return isinstance(key, str) and 0 < len(key) <= _LONGEST_KEY and key.isprintable()


def usable_store(store: object) -> SpendStore:
    """Return the store, or that of this process for `None`. Raises `ConfigurationError` for anything else."""
    from fastroai.usage.shared.memory_spend_store import default_spend_store
    from fastroai.usage.shared.spend_store import SpendStore

    if store is None:
        return default_spend_store()
    if isinstance(store, str | os.PathLike):
        # Stores are above this package, and only those who name one need it.
        stores = import_module("fastroai.store.shared_spending.spend_stores")
        return cast("SpendStore", stores.open_spend_store(store))
    if isinstance(store, type) or not isinstance(store, SpendStore):
        raise ConfigurationError("store", store, _STORE)
    return store


def _seconds(option: str, given: object, most: float, expected: str, *, least: float = 0.0) -> float:
    """Return a duration in seconds: above 0, at least `least`, and at most `most`."""
    seconds: object = in_seconds(given)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ConfigurationError(option, given, expected)
    if not (0 < seconds <= most and seconds >= least):
        raise ConfigurationError(option, given, expected)
    return seconds


def _lease(lease: object) -> float:
    expected = f"seconds, above 0 and at most {_LONGEST_LEASE:,}"
    return _seconds("lease", lease, _LONGEST_LEASE, expected)


def _keep(keep: object) -> timedelta:
    shortest, longest = (timedelta(seconds=each).days for each in (_SHORTEST_KEEP, _LONGEST_KEEP))
    expected = f"a timedelta, or seconds, of {shortest} to {longest:,} days"
    return timedelta(seconds=_seconds("keep", keep, _LONGEST_KEEP, expected, least=_SHORTEST_KEEP))


def _on_limit(on_limit: object, window: object) -> object:
    _known_option("on_limit", on_limit, get_args(OnLimit))
    if on_limit == "wait" and window == "total":
        expected = (
            "'fail', because a limit with window='total' never opens again; or, to wait, a window of 'hour', "
            "'day' or 'month'"
        )
        raise ConfigurationError("on_limit", on_limit, expected)
    return on_limit


def _deadline(deadline: object, on_limit: object) -> timedelta | None:
    if deadline is None:
        return None
    if on_limit != "wait":
        expected = "on_limit='wait' as well; deadline= limits how long a run waits"
        raise ConfigurationError("deadline", deadline, expected)
    expected = f"a timedelta, or seconds, above 0 and at most {_LONGEST_DEADLINE / 86_400:,.0f} days"
    return timedelta(seconds=_seconds("deadline", deadline, _LONGEST_DEADLINE, expected))
