"""How a run gets on record, whatever it is that runs."""

from dataclasses import replace
from typing import Any

import pytest
from support.stored_runs import entries_of

from fastroai.errors import ConfigurationError, RunCorrupt
from fastroai.records import Usage
from fastroai.runs.openings import RunKeeper
from fastroai.runtime.facts import RunFinished, StepFinished
from fastroai.store import MemoryRunStore


def keeper(**options: Any) -> RunKeeper:
    return RunKeeper(
        definition={
            "name": "g",
            "kind": "graph",
            "steps": {"ask": {"needs": [], "on_error": "fail", "runs": None}},
        },
        input_types={},
        output_types={},
        store=MemoryRunStore(),
        durability="sync",
        codec=None,
        kind="graph",
        **options,
    )


async def test_what_is_given_with_a_resume_is_there_when_the_run_goes_on() -> None:
    kept = keeper()
    run = await kept.begin("r", {"x": 1}).open({"x": 1})
    await run.end(RunFinished(status="paused"), Usage())
    answer = StepFinished("ask", "yes")
    opening = await kept.take_up("r", None, force=False, also=lambda recorded, inputs, status: [answer])
    assert len(await entries_of(kept.store, "r")) == 2, "nothing is on record before it is opened"
    run = await opening.open(opening.inputs)
    assert [entry.kind for entry in await entries_of(kept.store, "r")][2:] == ["run_resumed", "step_finished"]
    assert run.recorded.outputs == {"ask": answer}
    await run.release()


async def test_errors_call_what_runs_and_its_steps_what_they_are() -> None:
    kept = keeper()
    run = await kept.begin("r", {"x": 1}).open({"x": "one"})
    await run.end(RunFinished(status="finished"), Usage())
    with pytest.raises(ConfigurationError, match="the id of a node of this graph"):
        await kept.fork("r", at="aks", inputs=None, outputs=None, new_run_id=None)
    with pytest.raises(RunCorrupt, match="the graph does not accept its inputs"):
        await replace(kept, input_types={"x": int}).take_up("r", None, force=False)
