"""What a stream has spent is on it, however it ended."""

from __future__ import annotations

from pydantic_ai.models import Model

from fastroai import FastroAgent
from fastroai.records import Usage
from fastroai.testing import Fault, ModelServer, Reply


async def test_a_stream_left_early_says_that_a_request_is_unmeasured(
    server: ModelServer, model: Model
) -> None:
    server.script(Reply("a long story " * 20, fault=Fault.slow(between_chunks=0.05)))
    stream = FastroAgent(model, max_tokens=500).run_stream("Tell me")
    assert stream.usage == Usage()
    async with stream:
        async for _ in stream:
            break
    assert (stream.usage.request_count, stream.usage.unmeasured_requests) == (1, 1)
    assert stream.usage.committed_usd > 0
    assert stream.response is None


async def test_a_stream_to_its_end_has_the_usage_of_its_response(server: ModelServer, model: Model) -> None:
    server.script(Reply("short"))
    stream = FastroAgent(model).run_stream("Tell me")
    async for _ in stream:
        pass
    assert stream.response is not None
    assert stream.usage == stream.response.usage
