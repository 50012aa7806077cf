"""Spans in the log: pipeline, step, agent, request, with what each of them cost.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import asyncio
import logging
import os
import sys

from fastroai import FastroAgent, Pipeline, SimpleTracer
from fastroai.testing import ModelServer, Reply

server = ModelServer(script=[Reply("About 300 degrees.")]).start()  # offline
os.environ.update(server.environment())  # offline

logging.basicConfig(level="WARNING", format="%(message)s", stream=sys.stdout)
logging.getLogger("fastroai.tracing").setLevel("INFO")

agent = FastroAgent("openai:gpt-5-mini", name="shepherd")
pipeline = Pipeline("question", {"answer": agent.as_step("How far can a sheep see?")})


async def main() -> None:
    # LogfireTracer() and OpenTelemetryTracer() go in the same place.
    result = await pipeline.execute(tracer=SimpleTracer())
    print(result.output)


asyncio.run(main())
