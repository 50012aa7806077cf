"""A service on the web kit for tests with processes: `uvicorn --app-dir tests web.service:app`."""

import os

from fastapi import FastAPI

from fastroai import FastroAgent
from fastroai.pipelines import Pipeline, PipelineConfig, StepContext, step
from fastroai.store import open_run_store
from fastroai.web import RunsHost, runs_router

agent = FastroAgent("openai:gpt-5-mini")


@step
async def outline(ctx: StepContext) -> str:
    return (await ctx.run(agent, f"outline {ctx.get_input('topic', str)}")).output


@step
async def write(ctx: StepContext) -> str:
    async with ctx.run_stream(agent, f"write {ctx.get_dependency('outline', str)}") as stream:
        return "".join([chunk.content async for chunk in stream])


essays = Pipeline(
    "essays",
    {"outline": outline, "write": write},
    {"write": ["outline"]},
    accepts={"topic": str},
    config=PipelineConfig(store=open_run_store(os.environ["SERVICE_STORE"]), lease=3),
)
app = FastAPI()
app.include_router(runs_router(RunsHost(essays, every=0.3, graceful_timeout=5)), prefix="/essays")
