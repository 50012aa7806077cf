"""Tools for users' tests: a model server with a ledger, recordings, replaced steps, assertions on runs.

Importing this package, as pytest does at every start through the plugin, loads none of its modules: a name is
imported when it is first used.
"""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.testing.clocks import ManualClock as ManualClock
    from fastroai.testing.ledger import Ledger as Ledger
    from fastroai.testing.ledger import LedgerEntry as LedgerEntry
    from fastroai.testing.ledger import LedgerTotals as LedgerTotals
    from fastroai.testing.replacing import replaced as replaced
    from fastroai.testing.replies import Fault as Fault
    from fastroai.testing.replies import Reply as Reply
    from fastroai.testing.replies import ToolCall as ToolCall
    from fastroai.testing.replies import Usage as Usage
    from fastroai.testing.requests import Message as Message
    from fastroai.testing.requests import ServedRequest as ServedRequest
    from fastroai.testing.requests import Tool as Tool
    from fastroai.testing.requests import ToolResult as ToolResult
    from fastroai.testing.run_assertions import assert_run as assert_run
    from fastroai.testing.run_store_suite import RunStoreSuite as RunStoreSuite
    from fastroai.testing.server import ModelServer as ModelServer
    from fastroai.testing.step_contexts import step_context as step_context
else:  # a type checker would take any name, if it saw `__getattr__`
    lazy_names(__name__)
