"""Where the money of a run went: its cost by step, agent, model, tool, and by what became of it.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import os

from fastroai import FastroAgent, Pipeline, StepContext, step
from fastroai.testing import ModelServer, Reply, ToolCall, Usage

server = ModelServer().start()  # offline
look_up = Reply(tool_calls=[ToolCall("field_of_vision", {"animal": "sheep"})])  # offline
read = Reply("About 300 degrees.", usage=Usage(2_400, 12, cache_read_tokens=1_024))  # offline
server.script(look_up, read, model="gpt-5-mini")  # offline
server.script(Reply(data={"response": "many"}), Reply(data={"response": 4}), model="gpt-5-nano")  # offline
os.environ.update(server.environment())  # offline


def field_of_vision(animal: str) -> str:
    """All that is known of an animal's field of vision."""
    return f"A very long article on {animal}."


researcher = FastroAgent("openai:gpt-5-mini", name="researcher", tools=[field_of_vision])
judge = FastroAgent("openai:gpt-5-nano", name="judge", output_type=int)


@step
async def research(ctx: StepContext) -> str:
    ctx.record_usage(model="search-engine", cost_usd="0.0002")
    return (await ctx.run(researcher, "How much do sheep see?")).output


@step
async def grade(ctx: StepContext) -> int:
    return (await ctx.run(judge, f"Grade from 1 to 5: {ctx.get_dependency('research', str)}")).output


pipeline = Pipeline("sheep", {"research": research, "grade": grade}, {"grade": ["research"]})


async def main() -> None:
    result = await pipeline.execute()
    report = result.usage.report()
    print(report)
    for name, row in report.by_step.items():
        print(f"{name}: ${row.cost_usd} exactly, in {row.request_count} requests")
    print(report.to_csv().splitlines()[1])  # and to_json(), to_markdown()


asyncio.run(main())
