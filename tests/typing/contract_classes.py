"""What a type checker, and so an editor, knows of contracts and of opaque values. Checked, never run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, assert_type

from pydantic import BaseModel, Field

from fastroai import contract, opaque
from fastroai.functions import hash_of, schema_of


@contract
class Sentiment(BaseModel):
    label: Literal["positive", "negative"]
    confidence: Annotated[float, Field(ge=0, le=1)] = 0.5
    note: opaque[str] = ""


@contract
class Score:
    value: int
    reasons: list[str] = Field(default_factory=list)
    note: opaque[str] | None = None


@contract
@dataclass
class Point:
    x: int
    y: opaque[int] = 0
    tags: list[str] = field(default_factory=list)


@contract()
class Grade:
    value: int
    note: opaque[str] = ""


assert_type(Grade(3).value, int)
Grade(value="one")  # type: ignore[arg-type]
contract(3)  # type: ignore[call-overload]

sentiment = Sentiment(label="positive")
assert_type(sentiment, Sentiment)
assert_type(sentiment.confidence, float)
assert_type(sentiment.note, str)
Sentiment("positive")  # type: ignore[call-arg]
Sentiment(label="neutral")  # type: ignore[arg-type]

score = Score(1, ["good"])
assert_type(Score(value=1).note, str | None)
Score(value="one")  # type: ignore[arg-type]
Score()  # type: ignore[call-arg]
assert_type(score.value, int)
print(score.vlaue)  # type: ignore[attr-defined]

assert_type(Point(1, 2).y, int)
Point(1, y="two")  # type: ignore[arg-type]

assert_type(hash_of(Score), str)
schema_of(Point)


def reads(text: opaque[str], many: list[opaque[str]], maybe: opaque[str] | None = None) -> str:
    assert_type(text, str)
    assert_type(many, list[str])
    assert_type(maybe, str | None)
    return text


reads("a", ["b"])
reads(1, ["b"])  # type: ignore[arg-type]
