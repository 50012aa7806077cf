"""Coroutines that run side by side until their common result is decided. No task outlives that."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import nullcontext
from typing import Any, Protocol, TypeVar

from fastroai.functions.flow_runs.flow_run import members_were_cancelled
from fastroai.human.halting import is_halt
from fastroai.runtime import current_scope
from fastroai.runtime.concurrency.tasks import end_tasks
from fastroai.runtime.concurrency.wakeup import no_running_loop, running_loop
from fastroai.runtime.labels import current_row
from fastroai.runtime.retrying.failures import stops

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Tally(Protocol[T_contra]):
    """Counts how members end, and knows when the remaining ones cannot change the result any more."""

    @property
    def is_decided(self) -> bool:
        """Whether the remaining members are not needed any more."""
        ...

    def came(self, member: int, value: T_contra) -> None:
        """Count a member that returned, also after the decision, if it could not be cancelled in time."""
        ...

    def failed(self, member: int, error: Exception) -> None:
        """Count a member that raised, also after the decision."""
        ...

    def ends_all(self, error: Exception, *, is_stop: bool) -> bool:
        """Return whether an error of a member ends all members.

        It is a stop if it is of the run, or of a budget around the members.
        """
        ...


async def run_members(
    members: Sequence[Coroutine[Any, Any, T]], tally: Tally[T], concurrency: int | None = None
) -> None:
    """Run coroutines side by side, each in a copy of the context, until all end or the result is decided.

    At most `concurrency` of them run at once.

    The member that decides cancels the others at once. A member that waits for a person has not failed: the
    others run to their end, so that their work is on record, and then the wait is raised.

    Raises:
        NoRunningLoopError: asyncio does not run here. No member has begun.
        Halted: a member waits for a person, and the result could not be decided without it.
        BaseException: an error that ends everything: a stop of the run, or of a budget around the members; a
            cancellation of a member by others; or an error that the tally says ends all.
    """
    if running_loop() is None:
        close_all(members)
        raise no_running_loop()
    scope = current_scope()
    slots = nullcontext() if concurrency is None else asyncio.Semaphore(concurrency)
    tasks: list[asyncio.Task[None]] = []
    endings: list[BaseException] = []
    halts: list[BaseException] = []

    def is_over() -> bool:
        return bool(endings) or tally.is_decided

    async def run(number: int, member: Coroutine[Any, Any, T]) -> None:
        was_over = False
        current_row.set(number)  # in the context of this task alone
        try:
            async with slots:
                if is_over():
                    return
                value = await member
            was_over = is_over()
            tally.came(number, value)
        except BaseException as error:
            was_over = is_over()
            if is_halt(error):
                halts.append(error)
            elif isinstance(error, Exception) and not tally.ends_all(error, is_stop=stops(scope, error)):
                tally.failed(number, error)
            elif not was_over:
                endings.append(error)
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise  # for the event loop, which ends
        if is_over() and not was_over:
            left = [one for one in tasks if one is not asyncio.current_task() and not one.done()]
            if left or len(tasks) < len(members):
                members_were_cancelled()
            for one in left:
                one.cancel()

    try:
        for number, member in enumerate(members):
            if is_over():  # tasks that begin eagerly can have decided
                break
            tasks.append(asyncio.create_task(run(number, member)))
        if tasks:
            await asyncio.wait(tasks)
    except asyncio.CancelledError as error:
        endings.append(error)
        raise
    finally:
        try:
            await end_tasks(tasks)
        finally:
            close_all(members)
    if endings:
        raise endings[0]
    if halts and not tally.is_decided:
        raise halts[0]


def close_all(members: Sequence[object]) -> None:
    """Close coroutines that may never have begun, so that Python does not warn of them."""
    for member in members:
        if isinstance(member, Coroutine):
            member.close()
