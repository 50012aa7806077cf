"""What a provider takes at once and in a minute, and a circuit breaker for when it is ill.

Runs offline: the lines that say so stand for OpenAI and Anthropic. Leave them out to use the real ones.
"""

import asyncio
import os

from pydantic_ai.models.fallback import FallbackModel

from fastroai import FastroAgent, Pipeline, PipelineConfig, StepContext, step
from fastroai.runtime import CircuitBreaker, ProviderLimit
from fastroai.testing import Fault, ModelServer, Reply

server = ModelServer(latency=0.5).start()  # offline
os.environ.update(server.environment())  # offline

breaker = CircuitBreaker(failures=2, window=60.0, cooldown=30.0)
openai = ProviderLimit(
    max_concurrency=2, requests_per_minute=500, tokens_per_minute=200_000, circuit_breaker=breaker
)  # store="postgresql://..." makes it one limit for all processes that use the same store
writer = FastroAgent("openai:gpt-5-mini", max_tokens=100)


@step
async def write(ctx: StepContext) -> int:
    answers = await asyncio.gather(*(ctx.run(writer, f"Question {number}") for number in range(6)))
    return sum(answer.records[0].waited_ms > 400 for answer in answers)


async def main() -> None:
    pipeline = Pipeline(
        "writing", steps={"write": write}, config=PipelineConfig(provider_limits={"openai": openai})
    )
    result = await pipeline.execute()
    print(f"{result.output} of 6 requests waited: no more than 2 are sent at once")

    server.rule(lambda request: request.model.startswith("gpt"), Reply(fault=Fault.status(500)))  # offline
    model = FallbackModel("openai:gpt-5-mini", "anthropic:claude-haiku-4-5")
    careful = FastroAgent(model, max_tokens=100, request_retries=0, provider_limits={"openai": openai})
    for number in range(4):
        response = await careful.run(f"Question {number}")
        print(f"{' failed, '.join(record.provider for record in response.records)}; circuit {breaker.state}")


asyncio.run(main())
