"""Stores of runs and of spending: data that survives the process, or that several processes share.

Each name is loaded when it is first used: the command line reads runs without PydanticAI.
"""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.store.backends.adapter import adapt_run_store as adapt_run_store
    from fastroai.store.backends.payload_stores import FilePayloadStore as FilePayloadStore
    from fastroai.store.backends.payload_stores import FsspecPayloadStore as FsspecPayloadStore
    from fastroai.store.backends.payload_stores import PayloadStore as PayloadStore
    from fastroai.store.backends.run_memory import MemoryRunStore as MemoryRunStore
    from fastroai.store.backends.run_offloading import OffloadingRunStore as OffloadingRunStore
    from fastroai.store.backends.run_postgres import PostgresRunStore as PostgresRunStore
    from fastroai.store.backends.run_redis import RedisRunStore as RedisRunStore
    from fastroai.store.backends.run_sqlite import SQLiteRunStore as SQLiteRunStore
    from fastroai.store.hints import HintsChanges as HintsChanges
    from fastroai.store.opening import open_run_store as open_run_store
    from fastroai.store.reading.as_json import fact_to_json as fact_to_json
    from fastroai.store.reading.following import FollowedRun as FollowedRun
    from fastroai.store.reading.history import RunHistory as RunHistory
    from fastroai.store.reading.history import RunSummary as RunSummary
    from fastroai.store.reading.run_index import IndexesRuns as IndexesRuns
    from fastroai.store.reading.run_queries import Page as Page
    from fastroai.store.reading.run_queries import RunQuery as RunQuery
    from fastroai.store.reading.spending import SpendingRow as SpendingRow
    from fastroai.store.reading.step_summaries import StepSummary as StepSummary
    from fastroai.store.reading.timeline_rows import TimelineBar as TimelineBar
    from fastroai.store.reading.timeline_rows import TimelineRow as TimelineRow
    from fastroai.store.reading.timeline_rows import TimelineWait as TimelineWait
    from fastroai.store.reading.trace import Divergence as Divergence
    from fastroai.store.reading.trace import RunTrace as RunTrace
    from fastroai.store.reading.trace_diff import Difference as Difference
    from fastroai.store.record.attempts import StepAttempt as StepAttempt
    from fastroai.store.record.conversations import AgentConversation as AgentConversation
    from fastroai.store.record.encryption import EncryptingCodec as EncryptingCodec
    from fastroai.store.record.entries import RowCounts as RowCounts
    from fastroai.store.record.log import trace_of as trace_of
    from fastroai.store.record.payloads import PayloadCodec as PayloadCodec
    from fastroai.store.record.snapshot import RunSnapshot as RunSnapshot
    from fastroai.store.run_store import RunStore as RunStore
    from fastroai.store.run_store import RunStoreLike as RunStoreLike
    from fastroai.store.run_store import StoredKey as StoredKey
    from fastroai.store.run_store import StoredValues as StoredValues
    from fastroai.store.shared_spending.spend_stores import PostgresSpendStore as PostgresSpendStore
    from fastroai.store.shared_spending.spend_stores import RedisSpendStore as RedisSpendStore
    from fastroai.store.shared_spending.spend_stores import SQLiteSpendStore as SQLiteSpendStore
    from fastroai.store.shared_spending.spend_stores import open_spend_store as open_spend_store
    from fastroai.usage.shared.memory_spend_store import MemorySpendStore as MemorySpendStore
else:  # a type checker would take any name, if it saw `__getattr__`
    lazy_names(
        __name__,
        unlisted=[
            "AgentConversation",
            "Difference",
            "Divergence",
            "HintsChanges",
            "IndexesRuns",
            "Page",
            "RowCounts",
            "RunStoreLike",
            "SpendingRow",
            "StepAttempt",
            "StepSummary",
            "TimelineBar",
            "TimelineRow",
            "TimelineWait",
        ],
    )
