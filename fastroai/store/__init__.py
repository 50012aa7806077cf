"""Stores of runs and of spending: data that survives the process, or that several processes share.

Each name is loaded when it is first used: the command line reads runs without PydanticAI.
"""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.store.adapter import adapt_run_store as adapt_run_store
    from fastroai.store.as_json import fact_to_json as fact_to_json
    from fastroai.store.attempts import StepAttempt as StepAttempt
    from fastroai.store.conversations import AgentConversation as AgentConversation
    from fastroai.store.encryption import EncryptingCodec as EncryptingCodec
    from fastroai.store.following import FollowedRun as FollowedRun
    from fastroai.store.hints import HintsChanges as HintsChanges
    from fastroai.store.history import RunHistory as RunHistory
    from fastroai.store.history import RunSummary as RunSummary
    from fastroai.store.log import trace_of as trace_of
    from fastroai.store.opening import open_run_store as open_run_store
    from fastroai.store.payload_stores import FilePayloadStore as FilePayloadStore
    from fastroai.store.payload_stores import FsspecPayloadStore as FsspecPayloadStore
    from fastroai.store.payload_stores import PayloadStore as PayloadStore
    from fastroai.store.payloads import PayloadCodec as PayloadCodec
    from fastroai.store.run_index import IndexesRuns as IndexesRuns
    from fastroai.store.run_memory import MemoryRunStore as MemoryRunStore
    from fastroai.store.run_offloading import OffloadingRunStore as OffloadingRunStore
    from fastroai.store.run_postgres import PostgresRunStore as PostgresRunStore
    from fastroai.store.run_queries import Page as Page
    from fastroai.store.run_queries import RunQuery as RunQuery
    from fastroai.store.run_redis import RedisRunStore as RedisRunStore
    from fastroai.store.run_sqlite import SQLiteRunStore as SQLiteRunStore
    from fastroai.store.run_store import RunStore as RunStore
    from fastroai.store.run_store import RunStoreLike as RunStoreLike
    from fastroai.store.run_store import StoredKey as StoredKey
    from fastroai.store.run_store import StoredValues as StoredValues
    from fastroai.store.snapshot import RunSnapshot as RunSnapshot
    from fastroai.store.spend_stores import PostgresSpendStore as PostgresSpendStore
    from fastroai.store.spend_stores import RedisSpendStore as RedisSpendStore
    from fastroai.store.spend_stores import SQLiteSpendStore as SQLiteSpendStore
    from fastroai.store.spend_stores import open_spend_store as open_spend_store
    from fastroai.store.spending import SpendingRow as SpendingRow
    from fastroai.store.step_summaries import StepSummary as StepSummary
    from fastroai.store.trace import Divergence as Divergence
    from fastroai.store.trace import RunTrace as RunTrace
    from fastroai.store.trace_diff import Difference as Difference
    from fastroai.usage.memory_spend_store import MemorySpendStore as MemorySpendStore

if not TYPE_CHECKING:  # a type checker would take any name, if it saw `__getattr__`
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            ".adapter": ("adapt_run_store",),
            ".encryption": ("EncryptingCodec",),
            ".following": ("FollowedRun",),
            ".history": ("RunHistory", "RunSummary"),
            ".log": ("trace_of",),
            ".opening": ("open_run_store",),
            ".payload_stores": ("FilePayloadStore", "FsspecPayloadStore", "PayloadStore"),
            ".payloads": ("PayloadCodec",),
            ".run_memory": ("MemoryRunStore",),
            ".run_offloading": ("OffloadingRunStore",),
            ".run_postgres": ("PostgresRunStore",),
            ".run_queries": ("RunQuery",),
            ".run_redis": ("RedisRunStore",),
            ".run_sqlite": ("SQLiteRunStore",),
            ".run_store": ("RunStore", "StoredKey", "StoredValues"),
            ".snapshot": ("RunSnapshot",),
            ".spend_stores": (
                "PostgresSpendStore",
                "RedisSpendStore",
                "SQLiteSpendStore",
                "open_spend_store",
            ),
            ".as_json": ("fact_to_json",),
            ".trace": ("RunTrace",),
            "..usage.memory_spend_store": ("MemorySpendStore",),
        },
        unlisted={
            ".conversations": ("AgentConversation",),
            ".attempts": ("StepAttempt",),
            ".hints": ("HintsChanges",),
            ".run_index": ("IndexesRuns",),
            ".run_queries": ("Page",),
            ".run_store": ("RunStoreLike",),
            ".spending": ("SpendingRow",),
            ".step_summaries": ("StepSummary",),
            ".trace": ("Divergence",),
            ".trace_diff": ("Difference",),
        },
    )
