"""The facts that a fork keeps."""

from __future__ import annotations

from time import process_time

from pydantic import JsonValue

from fastroai.runs.taking_up.forking import kept_by_pipeline
from fastroai.runtime.fact_base import Fact, Part
from fastroai.runtime.facts import RunStarted, StepFinished
from fastroai.store.record.memo import Memo


def test_a_long_pipeline_is_forked_in_time_that_grows_with_its_steps() -> None:
    def seconds(count: int) -> float:
        steps: dict[str, JsonValue] = {
            f"s{number}": {"needs": [f"s{number - 1}"] if number else [], "runs": None}
            for number in range(count)
        }
        definition: JsonValue = {"name": "long", "steps": steps}
        part = Part("run", "long", ("long",))
        entries: list[Fact] = [RunStarted(part=part, definition=definition, inputs={})]
        entries += (StepFinished(step_id, number, part=part) for number, step_id in enumerate(steps))
        recorded = Memo("run", entries)
        began = process_time()
        kept = kept_by_pipeline(recorded, definition, f"s{count // 2}", {})
        took = process_time() - began
        assert len(kept) == count // 2
        return took

    assert seconds(4_000) < 30 * seconds(500)  # 8 times as many; all pairs would take 64 times as long
