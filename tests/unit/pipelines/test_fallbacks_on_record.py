"""Fallbacks of routers, in runs that go on in another process."""

from typing import Any

import pytest
from support.interruptions import RUN, DyingStore, nth

from fastroai import BasePipeline, Pipeline, StepContext, step
from fastroai.errors import RunStoreUnavailable
from fastroai.runtime.facts import StepFinished
from fastroai.store import MemoryRunStore


class First(BasePipeline[Any, Any, Any]):
    """A router that tries `one`, and then `two`."""

    async def route(self, inputs: Any, deps: Any) -> str:
        return "one"


def answering(with_text: str, *, fails: bool) -> Pipeline[Any, Any, Any]:
    @step
    async def look(ctx: StepContext[Any]) -> str:
        return with_text

    @step
    async def write(ctx: StepContext[Any]) -> str:
        if fails:
            raise LookupError("nothing to write")
        return f"{ctx.get_dependency('look', str)} is written"

    return Pipeline("answer", {"look": look, "write": write}, {"write": ["look"]}, output_step="write")


def router(one: Any, two: Any, name: str = "desk") -> First:
    made = First(name)
    made.register_pipeline("one", one, fallback="two")
    made.register_pipeline("two", two)
    return made


@pytest.mark.parametrize("is_nested", [False, True])
async def test_a_fallback_takes_over_nothing_of_a_variant_of_the_same_name(is_nested: bool) -> None:
    def desk() -> First:
        bad, good = answering("bad", fails=True), answering("good", fails=False)
        failing = router(bad, answering("bad again", fails=True), "inner") if is_nested else bad
        return router(failing, good)

    failed = 2 if is_nested else 1
    store = MemoryRunStore()
    dying = DyingStore(store, nth(StepFinished, failed + 1))
    with pytest.raises(RunStoreUnavailable):
        await desk().execute({}, run_id=RUN, store=dying)

    result = await desk().resume(RUN, store=store)

    assert result.output == "good is written"
    places = [one.place for one in result.trace.entries if isinstance(one, StepFinished) and one.part.place]
    assert places[failed:] == [f"route@1/answer#{failed + 1}/look", f"route@1/answer#{failed + 1}/write"]
    assert result.trace.replay(desk()) is None
