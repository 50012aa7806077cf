"""The kinds of facts that a log can hold, and the modules that declare them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

import fastroai.runtime.facts  # noqa: F401 - most kinds are declared there
from fastroai.runtime.fact_base import Fact, declared_facts

DECLARED_IN: Final[Mapping[str, tuple[str, ...]]] = {
    "fastroai.runtime.events": ("budget_refused", "budget_waiting", "request_waited"),
    "fastroai.graphs.facts": ("edges_resolved", "branch_timed_out", "value_written", "messages_added"),
    "fastroai.rows.facts": ("row_started", "row_ended"),
    "fastroai.workflows.facts": (
        "skip_requested",
        "iteration_started",
        "iteration_reported",
        "iteration_aborted",
        "checkpoint_set",
        "checkpoint_restored",
    ),
}
"""The kinds of facts that other modules than `fastroai.runtime.facts` declare, by module.

The module is imported when a log has such a fact, so the log can be read although nobody has imported the
package. A kind that is not listed here is known once its module is imported.
"""


def fact_class(kind: str) -> type[Fact] | None:
    """Return the class of a kind of fact; `None` if no module that is known or imported declares it."""
    if kind not in declared_facts:
        for module, kinds in DECLARED_IN.items():
            if kind in kinds:
                import_module(module)
    return declared_facts.get(kind)


def fact_classes() -> tuple[type[Fact], ...]:
    """Return the classes of all kinds of facts that are known or imported."""
    for module in DECLARED_IN:
        import_module(module)
    return tuple(declared_facts.values())
