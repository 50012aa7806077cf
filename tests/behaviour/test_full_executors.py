"""Threads that wait for agents do not hold the threads that those agents need.

What hangs here hangs for ever, so each case is a program of its own, with a time limit. The host of the model
server is a name, which a client looks up in the default executor of its event loop.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fork_server import run_script

BEGINNING = """
import asyncio, os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from pydantic_ai import TextOutput
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from fastroai import Budget, FastroAgent, Pipeline, PipelineConfig, StepContext, budget_scope, step
from fastroai.testing import ModelServer, Reply, Usage
from fastroai.tools import safe_tool

THREADS = 44  # more than there are for sync tools, 40
server = ModelServer(keep_alive=True).start()
server.rule(None, Reply("ok", usage=Usage(40, 4)))
os.environ.update(server.environment())
os.environ["OPENAI_BASE_URL"] = server.openai_url.replace("127.0.0.1", "localhost")
agent = FastroAgent("openai:gpt-5-mini")

async def ask_in_threads(prompt="Hello"):
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    asked = (asyncio.to_thread(agent.run_sync, f"{number} {prompt}") for number in range(THREADS))
    responses = await asyncio.gather(*asked)
    assert [response.output for response in responses] == ["ok"] * THREADS
    return sum(response.usage.request_count for response in responses)

def calling(count, *tools, **options):
    "An agent that calls its first tool so many times at once, then answers."
    def answer(messages, info):
        if len(messages) > 1:
            return ModelResponse([TextPart("done")])
        return ModelResponse([ToolCallPart(info.function_tools[0].name, {}) for _ in range(count)])
    return FastroAgent(FunctionModel(answer), tools=tools, **options)
"""

PROGRAMS = {
    "threads of a script": (
        """
print(asyncio.run(ask_in_threads()))
""",
        44,
    ),
    "threads of a step": (
        """
@step
async def ask(ctx: StepContext) -> int:
    return await ask_in_threads()

result = asyncio.run(Pipeline("p", {"ask": ask}).execute())
assert result.output == result.usage.request_count
print(result.output)
""",
        44,
    ),
    "threads of a step, in a sync run": (
        """
@step
async def ask(ctx: StepContext) -> int:
    return await ask_in_threads()

print(Pipeline("p", {"ask": ask}).execute_sync().output)
""",
        44,
    ),
    "threads of a tool": (
        """
async def ask() -> int:
    return await ask_in_threads()

print(asyncio.run(calling(1, ask).run("go")).usage.request_count - 2)
""",
        44,
    ),
    "threads without the caller's context": (
        """
async def ask() -> str:
    run = asyncio.get_running_loop().run_in_executor
    await asyncio.gather(*(run(None, agent.run_sync, f"{number}") for number in range(THREADS)))

calling(1, ask).run_sync("go")
print(len(server.ledger.entries))
""",
        44,
    ),
    "threads that wait for tokenizers": (
        """
async def main():
    async with budget_scope(Budget(usd=100)) as scope:
        await ask_in_threads(prompt="word " * 20_000)
    return scope.usage.request_count

THREADS = 10
print(asyncio.run(main()))
""",
        10,
    ),
    "threads that run pipelines": (
        """
async def main():
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    nested = Pipeline("nested", {"ask": agent.as_step("Hello")})
    async with budget_scope(Budget(usd=100)) as scope:
        await asyncio.gather(*(asyncio.to_thread(nested.execute_sync) for _ in range(THREADS)))
    return scope.usage.request_count

print(asyncio.run(main()))
""",
        44,
    ),
    "sync tools, nested": (
        """
def ask() -> str:
    return agent.run_sync("Hello").output
inner = calling(2, ask)
def ask_inner() -> str:
    return inner.run_sync("go").output
middle = calling(1, ask_inner)
def ask_middle() -> str:
    return middle.run_sync("go").output
outer = calling(44, ask_middle)
asyncio.run(outer.run("go"))
outer.run_sync("go")
print(len(server.ledger.entries))
""",
        176,
    ),
    "safe tools that are sync, nested": (
        """
@safe_tool(timeout=300)
def ask() -> str:
    return agent.run_sync("Hello").output
inner = calling(1, ask)
@safe_tool(timeout=300)
def ask_inner() -> str:
    return inner.run_sync("go").output
asyncio.run(calling(44, ask_inner).run("go"))
print(len(server.ledger.entries))
""",
        44,
    ),
    "output functions, nested": (
        """
def answered(inner):
    def judge(text: str) -> str:
        return inner.run_sync(text).output
    model = FunctionModel(lambda messages, info: ModelResponse([TextPart("x")]))
    return FastroAgent(model, output_type=TextOutput(judge))

outer = answered(answered(agent))
async def main():
    await asyncio.gather(*(outer.run("go") for _ in range(44)))

asyncio.run(main())
print(len(server.ledger.entries))
""",
        44,
    ),
    "side effects, nested": (
        """
@step
def effect(ctx: StepContext) -> str:
    return ctx.once_sync("ask", lambda: agent.run_sync("Hello").output)

@step
async def outer_effect(ctx: StepContext) -> str:
    return await ctx.once("run", run_inner)

def run_inner():
    together.wait(300)  # as many as there are threads
    return Pipeline("inner", {"effect": effect}).execute_sync().output

together = Barrier(32)
steps = {str(number): outer_effect for number in range(64)}
config = PipelineConfig(max_concurrency=64)
asyncio.run(Pipeline("p", steps, output_step="0", config=config).execute())
print(len(server.ledger.entries))
""",
        64,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_comes_to_its_end(name: str, tmp_path: Path) -> None:
    program, expected = PROGRAMS[name]
    done = run_script(f"{BEGINNING}{program}server.stop()", tmp_path)
    assert (done.out.split(), done.err) == ([str(expected)], "")
