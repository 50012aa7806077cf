"""Effects of runs: what is on record is looked up, and what is not is done and put on record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastroai.runtime.fact_base import Begins, Ends, Key
from fastroai.store.record.log import Log

T = TypeVar("T")


async def take(log: Log, key: Key) -> Begins | Ends | None:
    """Return what earlier processes have on record about an effect that is about to happen.

    That is an end, each once, or a beginning without an end: then the effect was interrupted.

    Raises:
        RunTakenOver: another process has the run.
        RunStoreUnavailable: the store has failed each time, so nobody knows who has the run.
    """
    if log.run is None:
        return None
    await log.run.check_held()
    return log.run.recorded.take(key)


async def effect(
    log: Log,
    key: Key,
    do: Callable[[], Awaitable[T]],
    *,
    begins: Begins | None = None,
    given: Callable[[Begins | Ends], tuple[T] | None],
    done: Callable[[T], Ends],
    failed: Callable[[Exception], Ends | None],
) -> T:
    """Return the result of an effect that is on record, or do it and put it on record.

    Streams, batches and ends that others write, such as answers, use the parts: `take`, `Log.begin` and
    `Log.commit`.

    Args:
        log: The log of the run.
        key: Tells the effect from others of the run, as its facts do.
        do: Does it.
        begins: The fact that it is about to happen, if it needs one.
        given: Returns the result on record; `None` to do the effect again. It may also raise.
        done: Makes the fact with the result. If that fails, the effect stays on record as begun.
        failed: Makes the fact of an exception, for those that are put on record.

    Raises:
        RunTakenOver: another process has the run.
        RunStoreUnavailable: the store has failed in all attempts.
    """
    known = await take(log, key)
    result = None if known is None else given(known)
    if result is not None:
        return result[0]
    if begins is not None:
        await log.begin(begins)
    try:
        made = await do()
    except Exception as error:
        if (ended := failed(error)) is not None:
            await log.commit(ended)
        raise
    await log.commit(done(made))
    return made
