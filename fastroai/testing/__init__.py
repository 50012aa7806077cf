"""What users test with: a model server on loopback, with a ledger of all that it served; a suite for stores.

Importing this package, as pytest does at every start through the plugin, loads none of it: a name is
imported when it is first used.
"""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.testing.ledger import Ledger as Ledger
    from fastroai.testing.ledger import LedgerEntry as LedgerEntry
    from fastroai.testing.ledger import LedgerTotals as LedgerTotals
    from fastroai.testing.replies import Fault as Fault
    from fastroai.testing.replies import Reply as Reply
    from fastroai.testing.replies import ToolCall as ToolCall
    from fastroai.testing.replies import Usage as Usage
    from fastroai.testing.requests import Message as Message
    from fastroai.testing.requests import ServedRequest as ServedRequest
    from fastroai.testing.requests import Tool as Tool
    from fastroai.testing.requests import ToolResult as ToolResult
    from fastroai.testing.run_store_suite import RunStoreSuite as RunStoreSuite
    from fastroai.testing.server import ModelServer as ModelServer

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".server": ("ModelServer",),
        ".replies": ("Fault", "Reply", "ToolCall", "Usage"),
        ".requests": ("Message", "ServedRequest", "Tool", "ToolResult"),
        ".ledger": ("Ledger", "LedgerEntry", "LedgerTotals"),
        ".run_store_suite": ("RunStoreSuite",),
    },
)
