"""A process that drives a flow together with others: `python -m support.workflow_worker PATH FLOW REPORTS`.

It reports to the loop of step `one`, as often as its reports are accepted, and prints how often it lost.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing

from fastroai.store import SQLiteRunStore
from fastroai.workflows.answers import ErrorAnswer
from fastroai.workflows.driven_flows import WorkflowRuns


async def main(path: str, flow_id: str, reports: int) -> None:
    """Report until so many reports are on record."""
    lost = 0
    async with aclosing(SQLiteRunStore(path)) as store:
        runs = WorkflowRuns(store)
        while reports:
            answer = await runs.iteration_report(flow_id, "one", {"by": "worker"})
            if isinstance(answer, ErrorAnswer):
                assert answer.error_type == "conflict", answer
                lost += 1
            else:
                reports -= 1
    print(lost)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
