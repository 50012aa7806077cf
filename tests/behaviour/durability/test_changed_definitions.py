"""A run goes on with a definition that has changed only in what the run has not reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fastroai.errors import ConfigurationError, RunDefinitionChanged
from fastroai.graphs import Edge, Graph, Node
from fastroai.pipelines import (
    BasePipeline,
    Pipeline,
    PipelineConfig,
    StepConfig,
    StepContext,
    step,
)
from fastroai.store import MemoryRunStore, RunHistory, RunStore, SQLiteRunStore

ran: list[str] = []
fails = {"c"}
pausing: dict[str, Any] = {}


@pytest.fixture
def store() -> RunStore:
    ran.clear()
    fails.clear()
    fails.add("c")
    return MemoryRunStore()


def noted(name: str) -> Any:
    @step
    async def one(ctx: StepContext) -> str:
        ran.append(name)
        if name in pausing:
            await pausing.pop(name).pause("r")
        if name in fails:
            raise ValueError(f"{name} fails today")
        return name

    return one


def pipeline(needs: Mapping[str, Sequence[str]], **options: Any) -> Pipeline[Any, Any, Any]:
    return Pipeline("p", {step_id: noted(step_id) for step_id in needs}, needs, **options)


THREE: dict[str, list[str]] = {"a": [], "b": ["a"], "c": ["b"]}
FOUR = {**THREE, "d": ["c"]}


async def stopped_at_c(door: Any, store: RunStore) -> None:
    try:
        result = await door.run({}, run_id="r", store=store)
    except Exception:
        assert (await RunHistory(store).summary("r")).status == "failed"
    else:
        assert result.status == "failed"
    fails.clear()
    ran.clear()


@pytest.mark.parametrize(
    ("before", "now", "then"),
    [
        (THREE, FOUR, ["c", "d"]),
        (FOUR, THREE, ["c"]),
        (FOUR, {**THREE, "d": ["a", "c"]}, ["c", "d"]),
        ({**FOUR, "e": ["d"]}, {**THREE, "e": ["c"], "f": ["e"]}, ["c", "e", "f"]),
    ],
    ids=["added", "removed", "needs others", "all of it"],
)
async def test_steps_that_were_not_reached_may_change(
    store: RunStore, before: Any, now: Any, then: list[str]
) -> None:
    await stopped_at_c(pipeline(before), store)
    changed = pipeline(now, version="2")
    result = await changed.resume("r", store=store)
    assert (result.status, ran, result.output) == ("finished", then, then[-1])
    trace = await RunHistory(store).trace("r")
    assert (trace.definition, trace.version) == (changed.definition, "2")
    assert "the pipeline had changed (version '2')" in trace.explain()
    assert (await changed.resume("r", store=store)).output == then[-1]


@pytest.mark.parametrize(
    ("now", "line"),
    [
        (
            {"a": [], "b": ["a"], "c": ["a", "b"]},
            "step 'c' needs 'a', 'b' (needed 'b'); the run has reached it",
        ),
        ({"a": [], "c": ["a"]}, "step 'b' was removed; the run has reached it"),
        (
            {"z": [], "a": ["z"], "b": ["a"], "c": ["b"]},
            "step 'z' is new; the run has not reached it",
        ),
    ],
)
async def test_steps_that_were_reached_may_not_change(store: RunStore, now: Any, line: str) -> None:
    await stopped_at_c(pipeline(THREE, version="1"), store)
    with pytest.raises(RunDefinitionChanged) as refused:
        await pipeline(now, version="2").resume("r", store=store)
    assert line in refused.value.changes
    assert "was started (version 1, now 2):" in str(refused.value)
    assert ran == []
    assert (await pipeline(now).resume("r", store=store, force=True)).output == "c"


async def test_on_error_of_a_step_that_was_not_reached_may_change(store: RunStore) -> None:
    await stopped_at_c(pipeline(FOUR), store)
    gentle = StepConfig(on_error="continue")
    with pytest.raises(RunDefinitionChanged, match="on_error='continue'"):
        await pipeline(FOUR, step_configs={"c": gentle}).resume("r", store=store)
    result = await pipeline(FOUR, step_configs={"d": gentle}).resume("r", store=store)
    assert result.output == "d"


async def test_a_run_that_has_finished_does_not_go_on_with_new_steps(store: RunStore) -> None:
    fails.clear()
    await pipeline(THREE).run({}, run_id="r", store=store)
    for on_existing in ("resume", "return"):
        with pytest.raises(RunDefinitionChanged):
            await pipeline(FOUR).run({}, run_id="r", store=store, on_existing=on_existing)
    assert ran == ["a", "b", "c"]


def around(inner: Any) -> Pipeline[Any, Any, Any]:
    return Pipeline("outer", {"in": inner.as_step(), "last": noted("last")}, {"last": ["in"]})


class Router(BasePipeline[None, str]):
    def __init__(self, version: str | None = None, **variants: Any) -> None:
        super().__init__("router", version=version)
        for name, variant in variants.items():
            self.register_pipeline(name, variant)

    async def route(self, inputs: Mapping[str, Any], deps: None) -> str:
        return "x"


@pytest.mark.parametrize(
    "door", [around, lambda inner: Router(x=inner), lambda inner: around(Router(x=inner))]
)
async def test_what_is_nested_is_compared_step_by_step(store: RunStore, door: Any) -> None:
    await stopped_at_c(door(pipeline(THREE)), store)
    with pytest.raises(RunDefinitionChanged, match="has reached it"):
        await door(pipeline({**THREE, "b": []}, output_step="c")).resume("r", store=store)
    assert (await door(pipeline(FOUR)).resume("r", store=store)).status == "finished"
    assert ran[:2] == ["c", "d"]


async def test_a_variant_that_was_not_taken_may_change_or_go(store: RunStore) -> None:
    other = Pipeline[Any, Any, Any]("other", {"never": noted("never")})
    await stopped_at_c(Router("1", x=pipeline(THREE), y=other), store)
    with pytest.raises(RunDefinitionChanged, match="route 'x' was removed; the run has reached it"):
        await Router("2", y=other).resume("r", store=store)
    assert (await Router("3", x=pipeline(THREE)).resume("r", store=store)).output == "c"
    assert (await RunHistory(store).trace("r")).version == "3"


# --- graphs ---


def graph(nodes: str, edges: Sequence[str], **options: Any) -> Graph[Any, Any, Any]:
    return Graph(
        "g",
        nodes={name: noted(name) for name in nodes},
        edges=[Edge(edge[0], edge[1]) for edge in edges],
        config=PipelineConfig(retries=0),
        **options,
    )


@pytest.mark.parametrize(
    ("before", "now", "then"),
    [
        (("abc", ["ab", "bc"]), ("abcd", ["ab", "bc", "cd"]), ["c", "d"]),
        (("abcd", ["ab", "bc", "cd"]), ("abc", ["ab", "bc"]), ["c"]),
        (("abcde", ["ab", "bc", "cd", "de"]), ("abced", ["ab", "bc", "ce", "ed"]), ["c", "e", "d"]),
    ],
    ids=["added", "removed", "other order"],
)
async def test_nodes_that_were_not_reached_may_change(
    store: RunStore, before: Any, now: Any, then: list[str]
) -> None:
    await paused_before_c(graph(*before), store)
    result = await graph(*now, version="2").resume("r", store=store)
    assert (result.status, ran) == ("finished", then)
    assert (await RunHistory(store).trace("r")).version == "2"


async def paused_before_c(door: Any, store: RunStore) -> None:
    fails.clear()
    pausing["b"] = door
    result = await door.run({}, run_id="r", store=store)
    assert (result.status, result.resume_at) == ("paused", ("c",))
    ran.clear()


@pytest.mark.parametrize(
    ("now", "line"),
    [
        (("abc", ["ab", "bc", "ac"]), "the edge of 'a', on_success to 'c', is new; the run has reached it"),
        (("ac", ["ac"]), "step 'b' was removed; the run has reached it"),
    ],
)
async def test_nodes_that_were_reached_may_not_change(store: RunStore, now: Any, line: str) -> None:
    await paused_before_c(graph("abc", ["ab", "bc"]), store)
    with pytest.raises(RunDefinitionChanged) as refused:
        await graph(*now).resume("r", store=store)
    assert line in refused.value.changes
    with pytest.raises(RunDefinitionChanged, match="on_branch_failure"):
        await graph("abc", ["ab", "bc"], on_branch_failure="wait_all").resume("r", store=store)


async def test_what_a_node_writes_may_change_before_it_is_reached(store: RunStore) -> None:
    def door(writes: Sequence[str]) -> Graph[Any, Any, Any]:
        nodes = {"a": noted("a"), "b": noted("b"), "c": Node(noted("c"), writes=writes)}
        return Graph("g", nodes=nodes, edges=[Edge("a", "b"), Edge("b", "c")])

    await paused_before_c(door(["x"]), store)
    assert (await door(["y"]).resume("r", store=store)).memory["y"] == "c"


async def test_a_fork_before_a_change_goes_on_with_the_new_graph(store: RunStore) -> None:
    fails.clear()
    await graph("abc", ["ab", "bc"]).run({}, run_id="r", store=store)
    ran.clear()
    other = graph("abd", ["ab", "bd"])
    with pytest.raises(RunDefinitionChanged):
        await other.fork("r", at="c", store=store)
    assert (await other.fork("r", at="b", store=store)).output == "d"
    assert ran == ["b", "d"]


# --- versions ---


async def test_versions_are_on_record_and_shown(tmp_path: Path, capsys: Any) -> None:
    from fastroai.cli.reading import show

    ran.clear()
    fails.clear()
    place = tmp_path / "runs.db"
    store = SQLiteRunStore(place)
    for door in (
        pipeline(THREE, version="2026-11"),
        graph("a", [], version="2026-11"),
        Router("2026-11", x=pipeline(THREE)),
    ):
        result = await door.run({}, run_id=door.kind, store=store)
        assert result.trace.version == door.version == "2026-11"
        await show(door.kind, str(place), None, False)
        assert "version 2026-11" in capsys.readouterr().out
    await store.aclose()


@pytest.mark.parametrize("version", ["", 2])
def test_a_version_is_a_text(version: Any) -> None:
    for make in (lambda: pipeline(THREE, version=version), lambda: Router(version)):
        with pytest.raises(ConfigurationError, match="version"):
            make()
