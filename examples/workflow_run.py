"""A workflow spec, run by FastroAI itself: a failed check, a second attempt, a gate where a person decides.

`workflow_agent.py` drives the same spec over MCP. This runs offline: the lines that say so stand for OpenAI.
"""

import asyncio
import os
import tempfile
from pathlib import Path

from fastroai import Inbox, SQLiteRunStore, Workflow, format_cost
from fastroai.testing import ModelServer, Reply

server = ModelServer().start()  # offline
server.script(  # offline
    Reply(data={"text": "Version 2.0 is out.", "breaking": ["run() is async"]}),
    Reply(data={"text": "To migrate, await run().", "breaking": ["run() is async"]}),
)
os.environ.update(server.environment())  # offline

SPEC = Path(__file__).with_name("release_notes.workflow.yaml")


async def main(file: Path) -> None:
    store = SQLiteRunStore(file)
    workflow = Workflow.load(SPEC)
    waiting = await workflow.run(
        {"version": "2.0"}, model="openai:gpt-5-mini", store=store, run_id="release-2.0"
    )
    print(f"{waiting.status}: {waiting.reason}")
    (gate,) = waiting.questions
    print(gate.question)

    await Inbox(store).answer(gate.id, "approve", reviewer="Mia")
    result = await workflow.resume("release-2.0", model="openai:gpt-5-mini", store=store)
    print(f"{result.status}: {result.output}")
    print(f"{result.usage.request_count} requests, {format_cost(result.usage.cost_usd)}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder) / "runs.db"))
