"""What survives the process, or is shared by several: stores of spending."""

from fastroai.store.spend_postgres import PostgresSpendStore
from fastroai.store.spend_redis import RedisSpendStore
from fastroai.store.spend_sqlite import SQLiteSpendStore
from fastroai.usage.memory_spend_store import MemorySpendStore

__all__ = ["MemorySpendStore", "PostgresSpendStore", "RedisSpendStore", "SQLiteSpendStore"]
