"""A person in the middle: the run halts with a question, and another process goes on with the answer.

Run: python examples/graph_approval.py
"""

import asyncio
import tempfile
from pathlib import Path

from pydantic import BaseModel

from fastroai import Edge, Graph, Inbox, Node, SQLiteRunStore, StepContext, step


class Approval(BaseModel):
    approved: bool
    by: str


@step
async def ask(ctx: StepContext) -> str:
    print("working out the question")
    return f"Refund order {ctx.get_input('order')}?"


@step
async def close(ctx: StepContext) -> str:
    return f"{ctx.step_id}ed by {ctx.get_input('by')}"


def refunds() -> Graph[None, dict[str, int], str]:
    return Graph(
        "refunds",
        nodes={
            "ask": Node(ask, writes=["approved", "by"], answer_type=Approval),
            "refund": close,
            "reject": close,
        },
        edges=[Edge("ask", "refund", "conditional", "approved"), Edge("ask", "reject", "always")],
        pause_nodes=["ask"],
    )


async def main(file: Path) -> None:
    await refunds().run({"order": 1182}, run_id="order-1182", store=SQLiteRunStore(file))

    # Days later, in another process:
    graph, store = refunds(), SQLiteRunStore(file)
    (asked,) = await Inbox(store).list()
    print(f"{asked.run_id} waits: {asked.question}")
    for answer in ({"approved": "who knows", "by": "Mia"}, {"approved": True, "by": "Mia"}):
        try:
            result = await graph.resume(asked.run_id, input=answer, store=store)
            print(f"{result.status}: {result.output}, {result.path}")
        except ValueError as error:
            print(error)


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder) / "runs.db"))
