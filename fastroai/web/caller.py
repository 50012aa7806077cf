"""Who asks over HTTP, and what they may do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeAlias, get_args

from typing_extensions import TypeVar

from fastroai.errors import ConfigurationError
from fastroai.records import NOT_GIVEN, NotGiven
from fastroai.runtime.labels import labels_of
from fastroai.usage import Budget
from fastroai.usage.limits import limits_of

DepsT = TypeVar("DepsT", default=None)

Action: TypeAlias = Literal["start", "read", "answer", "pause", "cancel", "resume"]
"""What callers do with runs. To list, to follow, and to see open questions is to `read`."""

ACTIONS: Final[frozenset[Action]] = frozenset(get_args(Action))


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller(Generic[DepsT]):
    """The person or program that makes a request: its name, its rights, and settings for its runs.

        async def caller(user: Annotated[User, Depends(signed_in)]) -> Caller[Deps]:
            return Caller(name=user.name, tenant=user.company, budget=Budget(usd=1))

    A caller with a tenant sees the runs of that tenant only; a caller without one sees all runs. In the
    store, run `a1` of tenant `acme` has the id `acme.a1`, so that two tenants can choose the same id. The
    caller with that tenant sees and gives `a1`.

    Raises:
        ConfigurationError: `actions` has something that is not an action; the tenant or a tag is not
            printable text of 1 to 200 characters; or `budget` has a `SpendLimit`, which is not stored with a
            run: a process that continues the run would not know it.
    """

    name: str = ""
    """The person, who is on record with each answer; without one, the client says who answers."""
    tenant: str | None = None
    """The tenant whose runs the caller starts and sees; without one, the caller sees all runs."""
    tags: Collection[str] = ()
    """Tags of the runs that the caller starts."""
    budget: Budget | Sequence[Budget] | None = None
    """Budgets of each run that the caller starts. A `SpendLimit` belongs in the config of the pipeline."""
    deps: DepsT | NotGiven = NOT_GIVEN
    """Dependencies of a run that the caller starts; by default, `deps_for` makes them, as for every run that
    is resumed."""
    actions: Collection[Action] = ACTIONS
    """What the caller may do."""

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.actions) - ACTIONS):
            raise ConfigurationError("actions", unknown[0], f"some of {', '.join(sorted(ACTIONS))}")
        labels_of(self.tags, self.tenant)
        limits = limits_of(self.budget)
        if limits is not None and limits.spend_limits:
            expected = (
                "budgets only: a spend limit is not stored, so a run that continues would escape it. Set "
                "PipelineConfig(budget=SpendLimit(..., key='tenant'))"
            )
            raise ConfigurationError("budget", limits.spend_limits[0], expected)

    def stored_id(self, run_id: str) -> str:
        """Return the id that run `run_id` of the caller has in the store.

        It is `TENANT.RUN_ID`, such as `acme.a1`, or `run_id` itself for a caller without a tenant.
        """
        return run_id if self.tenant is None else f"{self.tenant}.{run_id}"

    def shown_id(self, stored_id: str) -> str:
        """Return the id by which the caller knows a run: its id in the store, without the caller's tenant.

        `acme.a1` is shown to tenant `acme` as `a1`. A caller without a tenant sees ids as they are stored.
        """
        return stored_id if self.tenant is None else stored_id.removeprefix(f"{self.tenant}.")


def anybody() -> Caller[None]:
    """Let everybody do everything, for an application that decides elsewhere who may call."""
    return Caller()
