"""A run of a graph, from its request to its result."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from typing import Any

from pydantic import JsonValue

from fastroai.contracts.accepted import Accepted
from fastroai.errors import BudgetExceeded, TimeLimitExceeded, attach_trace
from fastroai.graphs.machine.events import Ending
from fastroai.graphs.result import GraphResult
from fastroai.graphs.run import GraphRun
from fastroai.graphs.setup import GraphSetup
from fastroai.runs.around import how_it_ended
from fastroai.runs.execution import Execution
from fastroai.runs.quoting import Estimate
from fastroai.runs.request import RunRequest
from fastroai.runtime.facts import RunFinished
from fastroai.steps import PipelineConfig
from fastroai.steps.hooks import RunHooks
from fastroai.store.signals import Signal
from fastroai.usage.limits import Limits

logger = logging.getLogger("fastroai.graphs")


class GraphExecution:
    """Runs one graph, any number of times. The result of a run says how it ended, and by which error."""

    def __init__(
        self,
        setup: GraphSetup,
        config: PipelineConfig,
        limits: Limits | None,
        hooks: RunHooks,
        accepts: Accepted | None,
        definition: dict[str, JsonValue],
        estimate: Estimate,
    ) -> None:
        self._setup, self._definition = setup, definition
        self._execution = Execution("graph", setup.name, config, limits, hooks, accepts, estimate)

    def heed(self, run_id: str | None, signal: Signal) -> bool:
        """Pass a signal to a run of this process, or to all of them. Return whether there is such a run."""
        return self._execution.heed(run_id, signal)

    async def run(self, request: RunRequest[Any]) -> GraphResult[Any]:
        """Run the graph to its end, or until it pauses."""
        execution, definition = self._execution, self._definition
        scope = execution.scope(request)
        run: GraphRun | None = None
        finish: RunFinished | None = None
        try:
            async with AsyncExitStack() as stack:
                opened = await execution.open(stack, request, scope, definition)
                run = GraphRun(self._setup, opened, request)
                finish = await execution.perform(opened, run.runner, run.decisions)
                if finish.raised is not None:
                    raise finish.raised
        except BaseException as error:
            if run is None:
                raise
            attach_trace(error, run.log)  # pyright: ignore[reportArgumentType]
            ending = _ending_by(error, run)
            if ending is None:
                raise
            await execution.tell_end(run.runner, error)
            finish = run.runner.finish
            is_own = finish is not None and error is finish.raised
            last = finish if finish is not None and is_own else how_it_ended(error)
            return run.result(ending, last, error if isinstance(error, Exception) else None)
        ending = run.machine.ending
        assert ending is not None
        assert finish is not None
        run.ask_around()
        run.opened.halt_around(finish)
        if ending == "paused" and run.opened.kept is None:
            logger.warning("run %r is paused, and no store keeps it: it cannot be resumed", scope.run_id)
        return run.result(ending, finish, None)


def _ending_by(error: BaseException, run: GraphRun) -> Ending | None:
    """Return how a run ended by its own exception or by a limit around it; `None` for another exception."""
    finish = run.runner.finish
    if finish is not None and error is finish.raised:
        return run.machine.ending
    if isinstance(error, BudgetExceeded):
        return "budget_exceeded"
    return "failed" if isinstance(error, TimeLimitExceeded) else None
