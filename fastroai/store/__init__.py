"""What survives the process, or is shared by several: stores of runs and of spending.

Each name is loaded when it is first used: the command line reads runs without PydanticAI.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastroai.store.adapter import adapt_run_store
    from fastroai.store.attempts import StepAttempt
    from fastroai.store.following import FollowedRun
    from fastroai.store.hints import HintsChanges
    from fastroai.store.history import RunHistory, RunSummary
    from fastroai.store.log import trace_of
    from fastroai.store.open_questions import OpenQuestion
    from fastroai.store.opening import open_run_store
    from fastroai.store.payloads import PayloadCodec
    from fastroai.store.run_memory import MemoryRunStore
    from fastroai.store.run_postgres import PostgresRunStore
    from fastroai.store.run_redis import RedisRunStore
    from fastroai.store.run_sqlite import SQLiteRunStore
    from fastroai.store.run_store import RunStore, StoredKey, StoredValues
    from fastroai.store.spend_postgres import PostgresSpendStore
    from fastroai.store.spend_redis import RedisSpendStore
    from fastroai.store.spend_sqlite import SQLiteSpendStore
    from fastroai.store.spending import SpendingRow
    from fastroai.store.step_summaries import StepSummary
    from fastroai.store.trace import Divergence, RunTrace
    from fastroai.store.trace_diff import Difference
    from fastroai.usage.memory_spend_store import MemorySpendStore

__all__ = [
    # runs
    "Difference",
    "Divergence",
    "FollowedRun",
    "HintsChanges",
    "MemoryRunStore",
    "OpenQuestion",
    "PayloadCodec",
    "PostgresRunStore",
    "RedisRunStore",
    "RunHistory",
    "RunStore",
    "RunSummary",
    "RunTrace",
    "SQLiteRunStore",
    "SpendingRow",
    "StepAttempt",
    "StepSummary",
    "StoredKey",
    "StoredValues",
    "adapt_run_store",
    "open_run_store",
    "trace_of",
    # spending
    "MemorySpendStore",
    "PostgresSpendStore",
    "RedisSpendStore",
    "SQLiteSpendStore",
]

_HOMES = {
    "fastroai.store.adapter": ("adapt_run_store",),
    "fastroai.store.attempts": ("StepAttempt",),
    "fastroai.store.following": ("FollowedRun",),
    "fastroai.store.hints": ("HintsChanges",),
    "fastroai.store.history": ("RunHistory", "RunSummary"),
    "fastroai.store.log": ("trace_of",),
    "fastroai.store.open_questions": ("OpenQuestion",),
    "fastroai.store.opening": ("open_run_store",),
    "fastroai.store.payloads": ("PayloadCodec",),
    "fastroai.store.run_memory": ("MemoryRunStore",),
    "fastroai.store.run_postgres": ("PostgresRunStore",),
    "fastroai.store.run_redis": ("RedisRunStore",),
    "fastroai.store.run_sqlite": ("SQLiteRunStore",),
    "fastroai.store.run_store": ("RunStore", "StoredKey", "StoredValues"),
    "fastroai.store.spend_postgres": ("PostgresSpendStore",),
    "fastroai.store.spend_redis": ("RedisSpendStore",),
    "fastroai.store.spend_sqlite": ("SQLiteSpendStore",),
    "fastroai.store.spending": ("SpendingRow",),
    "fastroai.store.step_summaries": ("StepSummary",),
    "fastroai.store.trace": ("Divergence", "RunTrace"),
    "fastroai.store.trace_diff": ("Difference",),
    "fastroai.usage.memory_spend_store": ("MemorySpendStore",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fastroai.store' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
