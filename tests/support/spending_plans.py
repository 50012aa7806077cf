"""Random work that spends: trees of budgets, agents that call agents, streams, failures, cancellations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from hypothesis import strategies as st

Way = Literal["run", "stream", "slow stream", "left stream", "abandoned stream", "handler", "events"]
"""How an agent is called; a `handler` is told of the events of a `run`, in the midst of its requests."""

Fate = Literal["refused", "no connection", "breaks"]
"""What becomes of an attempt at a request: unbilled, never sent, or nobody knows."""

Mode = Literal["one by one", "side by side", "pipeline", "map"]


@dataclass(frozen=True)
class Limits:
    """A budget, in plain numbers."""

    microcents: int | None = None
    tokens: int | None = None
    requests: int | None = None
    ms: int | None = None
    fallback_at: float | None = None
    """The share from which on a cheaper model is used."""
    admission: Literal["bound", "expected"] = "bound"
    by_hand: int | None = None
    """The longest answer, in tokens."""
    shared: bool = False
    """Whether there is a `SpendLimit` beside it, the same for all."""


@dataclass(frozen=True)
class Call:
    """A call of an agent. A token of output costs a microcent."""

    way: Way
    wants: int
    """Tokens of output of each answer, if `max_tokens` let it."""
    max_tokens: int | None
    """`None` if the request does not say it."""
    seconds: float
    fates: tuple[Fate, ...]
    """Of the first attempts at its requests; after them all goes well."""
    extra_attempts: int
    rejected: bool
    """Whether its first answer is not accepted."""
    spare: bool
    """Whether another model answers where the first does not."""
    timeout: float | None
    budget: Limits | None
    in_tool: tuple[Work, ...] = ()
    """What a tool does that the model calls first."""
    inside: tuple[Work, ...] = ()
    """What whoever handles its stream does after the first chunk."""
    helped: bool = False
    """Whether somebody else does that, who was there before, and is waited for."""


@dataclass(frozen=True)
class Group:
    """Several things under one budget."""

    mode: Mode
    budget: Limits | None
    members: tuple[Work, ...]
    cancelled_after: float | None = None
    limit: int | None = None
    """How many at once, in a pipeline or a map."""
    reserves: bool = False
    """Whether it reserves its quote, if it is a pipeline with a budget of money."""


Work: TypeAlias = Call | Group


A_CALL = Call(
    way="run",
    wants=1,
    max_tokens=1,
    seconds=0.0,
    fates=(),
    extra_attempts=0,
    rejected=False,
    spare=False,
    timeout=None,
    budget=None,
)
"""The simplest there is."""


@st.composite
def limits(draw: st.DrawFn, *, timed: bool = True) -> Limits:
    """Budgets that are soon used up: a request reserves some 5,000 tokens, mostly of input."""
    microcents = draw(st.integers(5, 300) | st.none())
    tokens = draw(st.none() | st.none() | st.integers(1, 12).map(lambda requests: requests * 6_000))
    requests = draw(st.none() | st.none() | st.integers(1, 8))
    if microcents is tokens is requests is None:
        microcents = 60
    return Limits(
        microcents=microcents,
        tokens=tokens,
        requests=requests,
        ms=draw(st.sampled_from((*[None] * 6, 2_000, 9_000))) if timed else None,
        fallback_at=draw(st.sampled_from((None, None, None, 0.5, 1.0))),
        admission=draw(st.sampled_from(("bound", "bound", "expected"))),
        by_hand=draw(st.sampled_from((None, None, None, 10))),
    )


_SECONDS = (0.0, 0.5, 2.0, 7.0)


shared_limits = st.builds(lambda budget, shared: replace(budget, shared=shared), limits(), st.booleans())
"""The same, some of them beside a ceiling that they share."""


def calls(
    budgets: st.SearchStrategy[Limits], inside: st.SearchStrategy[Work] | None = None
) -> st.SearchStrategy[Call]:
    """Calls of an agent, with work inside of them or without."""
    more = st.just(()) if inside is None else st.lists(inside, max_size=2).map(tuple)
    return st.builds(
        Call,
        way=st.sampled_from(("run", "run", "run", *get_args(Way))),
        wants=st.integers(1, 30),
        max_tokens=st.none() | st.integers(1, 50),
        seconds=st.sampled_from(_SECONDS),
        fates=st.just(()) | st.just(()) | st.lists(st.sampled_from(get_args(Fate)), max_size=2).map(tuple),
        extra_attempts=st.integers(0, 2),
        rejected=st.sampled_from((False, False, False, True)),
        spare=st.sampled_from((False, False, False, True)),
        timeout=st.sampled_from((*[None] * 5, 1.5, 5.0)),
        budget=st.none() | st.none() | budgets,
        in_tool=more,
        inside=more,
        helped=st.booleans(),
    )


quick_calls: st.SearchStrategy[Call] = calls(limits(timed=False)).map(
    lambda call: replace(call, way="run", seconds=0.0, timeout=None)
)
"""Calls that take no time."""


def groups(
    budgets: st.SearchStrategy[Limits], members: st.SearchStrategy[Work], *, reserves: bool
) -> st.SearchStrategy[Group]:
    """Several things under one budget."""
    return st.builds(
        Group,
        mode=st.sampled_from(("one by one", "side by side", "side by side", "pipeline", "map")),
        budget=st.none() | budgets,
        members=st.lists(members, min_size=1, max_size=6).map(tuple),
        cancelled_after=st.sampled_from((*[None] * 5, 1.0, 4.0)),
        limit=st.none() | st.integers(1, 3),
        reserves=st.sampled_from((True, True, False)) if reserves else st.just(False),
    )


def runs(budgets: st.SearchStrategy[Limits], *, reserves: bool = False) -> st.SearchStrategy[Group]:
    """What a whole run does, under a budget of its own. Pipelines in it may reserve their quotes."""
    work: st.SearchStrategy[Work] = st.recursive(
        calls(budgets),
        lambda inner: groups(budgets, inner, reserves=reserves) | calls(budgets, inner),
        max_leaves=15,
    )
    return st.builds(
        Group,
        mode=st.sampled_from(("one by one", "side by side", "side by side")),
        budget=budgets,
        members=st.lists(work, min_size=2, max_size=6).map(tuple),
    )
