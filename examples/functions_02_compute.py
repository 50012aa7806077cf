"""From `@infer` to `@compute`: a rule takes the place of the model, and the caller stays as it is.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import os
from collections.abc import Awaitable, Callable
from typing import Literal

from fastroai import compute, contract, infer, run
from fastroai.testing import ModelServer, Reply

server = ModelServer().start()  # offline
server.script(Reply(data={"queue": "billing", "urgent": False}))  # offline
os.environ.update(server.environment())  # offline


@contract
class Route:
    queue: Literal["billing", "technical"]
    urgent: bool


@infer(intent="Decide which team takes a ticket, and whether it is urgent", model="openai:gpt-5-mini")
async def by_model(subject: str) -> Route:
    raise NotImplementedError


@compute(ensure=lambda r: r.queue in ("billing", "technical"))
def by_rule(subject: str) -> Route:
    words = subject.lower().split()
    return Route(queue="billing" if "invoice" in words else "technical", urgent="now" in words)


async def caller(route: Callable[[str], Awaitable[Route]]) -> str:
    found = await route("The invoice is wrong")
    return f"{found.queue}, urgent: {found.urgent}"


if __name__ == "__main__":
    for route in (by_model, by_rule):
        print(f"{route.name}: {run(caller(route))}, {len(server.ledger.entries)} requests so far")
