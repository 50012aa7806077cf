"""Three questions on one text at once, under one budget: all of them, and the first that answers.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import os

from fastroai import Budget, flow, format_cost, infer, opaque
from fastroai.functions import Success, configure, parallel, race, run
from fastroai.testing import Fault, ModelServer, Reply

server = ModelServer().start()  # offline
server.rule(lambda request: "tone" in request.prompt, Reply("angry"))  # offline
server.rule(lambda request: "topic" in request.prompt, Reply("billing"))  # offline
server.rule(lambda request: "language" in request.prompt, Reply(fault=Fault.status(400)))  # offline
os.environ.update(server.environment())  # offline

configure(default_model="openai:gpt-5-mini")


@infer(intent="Name the tone of a text in one word")
async def tone(text: opaque[str]) -> str:
    raise NotImplementedError


@infer(intent="Name the topic of a text in one word")
async def topic(text: opaque[str]) -> str:
    raise NotImplementedError


@infer(intent="Name the language of a text in one word")
async def language(text: opaque[str]) -> str:
    raise NotImplementedError


@flow(budget=Budget(usd="0.05"))
async def describe(text: opaque[str]) -> list[str]:
    outcomes = await parallel(tone(text), topic(text), language(text), require=0)
    return [one.value if isinstance(one, Success) else type(one.error).__name__ for one in outcomes]


@flow(budget=Budget(usd="0.05"))
async def quickest(text: opaque[str]) -> str:
    return await race(language(text), topic(text))


if __name__ == "__main__":
    text = "I was charged twice!"
    print(run(describe(text)))
    print(run(quickest(text)))
    for record in describe.records:
        print(f"{record.function}: {record.outcome}, {format_cost(record.cost_usd)}")
