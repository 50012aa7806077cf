"""Tools for users' tests: a model server with a ledger, recordings, replaced steps, assertions on runs.

Importing this package, as pytest does at every start through the plugin, loads none of its modules: a name is
imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastroai.testing.clocks import ManualClock
    from fastroai.testing.ledger import Ledger, LedgerEntry, LedgerTotals
    from fastroai.testing.replacing import replaced
    from fastroai.testing.replies import Fault, Reply, ToolCall, Usage
    from fastroai.testing.requests import Message, ServedRequest, Tool, ToolResult
    from fastroai.testing.run_assertions import assert_run
    from fastroai.testing.run_store_suite import RunStoreSuite
    from fastroai.testing.server import ModelServer
    from fastroai.testing.step_contexts import step_context

__all__ = [
    "ModelServer",
    # answers of the server
    "Fault",
    "Reply",
    "ToolCall",
    "Usage",
    # requests to the server
    "Message",
    "ServedRequest",
    "Tool",
    "ToolResult",
    # records of the server
    "Ledger",
    "LedgerEntry",
    "LedgerTotals",
    # stores
    "ManualClock",
    "RunStoreSuite",
    # steps
    "replaced",
    "step_context",
    # runs
    "assert_run",
]

_HOMES = {
    "server": ("ModelServer",),
    "replies": ("Fault", "Reply", "ToolCall", "Usage"),
    "requests": ("Message", "ServedRequest", "Tool", "ToolResult"),
    "ledger": ("Ledger", "LedgerEntry", "LedgerTotals"),
    "clocks": ("ManualClock",),
    "replacing": ("replaced",),
    "run_assertions": ("assert_run",),
    "run_store_suite": ("RunStoreSuite",),
    "step_contexts": ("step_context",),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
