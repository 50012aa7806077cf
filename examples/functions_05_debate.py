"""Two agents debate in rounds, each with the last argument of the other, until both keep their position.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import os
from typing import Literal

from pydantic import BaseModel

from fastroai import Budget, contract, flow, infer
from fastroai.functions import debate, run
from fastroai.testing import ModelServer, Reply

server = ModelServer().start()  # offline
for model, positions in {"gpt-5-mini": "yes no no", "gpt-5-nano": "no no no"}.items():  # offline
    said = [{"merge": one, "reason": f"It is {one} to me."} for one in positions.split()]  # offline
    server.script(*(Reply(data=one) for one in said), model=model)  # offline
os.environ.update(server.environment())  # offline


@contract
class Position(BaseModel):
    merge: Literal["yes", "no"]
    reason: str


@infer(intent="Argue for your company, unless the others convince you", model="openai:gpt-5-mini")
async def founder(topic: str, arguments: tuple[Position, ...] = ()) -> Position:
    raise NotImplementedError


@infer(intent="Argue for caution, unless the others convince you", model="openai:gpt-5-nano")
async def auditor(topic: str, arguments: tuple[Position, ...] = ()) -> Position:
    raise NotImplementedError


def verdict(topic: str, rounds: tuple[tuple[Position, ...], ...], converged: bool) -> str:
    last = [position.merge for position in rounds[-1]]
    return f"{topic} {last}, after {len(rounds)} rounds, converged: {converged}"


@flow(budget=Budget(usd="0.10"))
async def decide(topic: str) -> str:
    return await debate([founder, auditor], topic, rounds=5, synthesize=verdict, agree_on="merge")


if __name__ == "__main__":
    print(run(decide("Shall we merge?")))
    print(len(decide.records), "calls")
