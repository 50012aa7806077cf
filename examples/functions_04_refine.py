"""A slogan that is made better until it is good: the model gets its last answer back, with feedback.

Runs offline: the lines that say so stand for OpenAI. Leave them out to use the real one, with your key.
"""

import os
from typing import Annotated

from pydantic import BaseModel, Field

from fastroai import Budget, contract, infer, refine, run
from fastroai.functions import ConvergenceFailure
from fastroai.testing import ModelServer, Reply

server = ModelServer().start()  # offline
drafts = [("Sheep.", 3), ("Sheep are woolly.", 6), ("Warm as a sheep.", 9)]  # offline
server.script(*(Reply(data={"text": text, "score": score}) for text, score in [*drafts, *drafts]))  # offline
os.environ.update(server.environment())  # offline


@contract
class Slogan(BaseModel):
    text: str
    score: Annotated[int, Field(ge=0, le=10)]


@refine(until=lambda r: r.score >= 8, feedback=lambda r: f"{r.score} of 10 is not enough", max_iterations=3)
@infer(
    intent="Write a slogan, and score it", model="openai:gpt-5-mini", budget=Budget(usd="0.02", requests=5)
)
async def slogan(product: str) -> Slogan:
    raise NotImplementedError


@refine(until=lambda r: r.score == 10, max_iterations=2)
@infer(intent="Write a perfect slogan, and score it", model="openai:gpt-5-mini")
async def perfect_slogan(product: str) -> Slogan:
    raise NotImplementedError


if __name__ == "__main__":
    print(run(slogan("wool socks")))
    try:
        run(perfect_slogan("wool socks"))
    except ConvergenceFailure as error:
        print(error)
        for attempt in error.history:
            print(attempt.output, *attempt.violations)
