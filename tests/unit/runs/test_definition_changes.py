"""What has changed between two definitions."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from support.durable import Counted

from fastroai.pipelines import BasePipeline, Pipeline, PipelineConfig, StepConfig
from fastroai.runs.definition_changes import changes, shape_of
from fastroai.store.record.definitions import fingerprint

NEEDS = {"a": [], "b": ["a"]}


class Router(BasePipeline[Any, Any]):
    async def route(self, inputs: Mapping[str, Any], deps: Any) -> str:
        return "x"


def flat(needs: Mapping[str, Any] | None = None, name: str = "p", **options: Any) -> Pipeline[Any, Any]:
    return Counted().pipeline(name, needs or NEEDS, **options)


def around(inner: Pipeline[Any, Any] | BasePipeline[Any, Any] | None) -> Pipeline[Any, Any]:
    return Pipeline("outer", {"in": Counted().step("in") if inner is None else inner.as_step()})


def routed(name: str = "router", **pipelines: Pipeline[Any, Any]) -> Router:
    router = Router(name)
    for route, pipeline in pipelines.items():
        router.register_pipeline(route, pipeline)
    return router


@pytest.mark.parametrize(
    "other",
    [
        lambda: flat(),
        lambda: flat({"b": ["a"], "a": []}),
        lambda: flat(config=PipelineConfig(retries=3, timeout=5, max_concurrency=1, cost_budget=3)),
        lambda: flat(step_configs={"a": StepConfig(retries=1)}),
        lambda: flat(accepts={"x": int}),
    ],
)
def test_what_may_be_different(other: Callable[[], Pipeline[Any, Any]]) -> None:
    assert changes(flat().definition, other().definition) == ()


def later(definition: Any) -> Any:
    """A definition as a later FastroAI may tell it: with an entry more."""
    if not isinstance(definition, dict):
        return definition
    told = {name: later(part) for name, part in definition.items()}
    for name in {"steps", "routes"} & told.keys():
        del told[name]["since"]  # it is no step or route
    return {**told, "since": 2}


def test_rows_are_compared_without_versions_and_what_a_later_fastroai_adds() -> None:
    inner = routed(x=flat(version="1"), y=flat(name="q"))
    known = Pipeline("outer", {"in": inner.as_step()}).definition
    assert shape_of(later(known)) == shape_of(known) != known
    assert fingerprint(shape_of(known)) == "646e9871eead088b1f629e4ec7b4fc48", (
        "rows on record would be asked again"
    )
    for before, now, _ in CHANGED:
        assert shape_of(before.definition) != shape_of(now.definition)


THREE = {"a": [], "b": [], "c": ["a", "b"]}
CHANGED: list[tuple[Pipeline[Any, Any], Pipeline[Any, Any], tuple[str, ...]]] = [
    (flat(), flat(name="q"), ("the name is 'q' (was 'p')",)),
    (flat(), flat(output_step="a"), ("the output is that of 'a' (was 'b')",)),
    (flat(), flat({**NEEDS, "c": ["b"]}, output_step="b"), ("step 'c' is new",)),
    (flat({**NEEDS, "c": ["b"]}, output_step="b"), flat(), ("step 'c' was removed",)),
    (
        flat(THREE),
        flat({**THREE, "c": []}, output_step="c"),
        ("step 'c' needs nothing (needed 'a', 'b')",),
    ),
    (
        flat(),
        flat(step_configs={"a": StepConfig(on_error="continue")}),
        ("step 'a' has on_error='continue' (had 'fail')",),
    ),
    (around(None), around(flat()), ("in: it runs 'p' (was no pipeline)",)),
    (around(flat()), around(None), ("in: it runs no pipeline (was 'p')",)),
    (
        around(around(flat())),
        around(around(flat({**NEEDS, "b": []}, output_step="b"))),
        ("in: in: step 'b' needs nothing (needed 'a')",),
    ),
    (
        around(routed(x=flat())),
        around(routed(x=flat({"a": []}), y=flat())),
        ("in: x: the output is that of 'a' (was 'b')", "in: x: step 'b' was removed", "in: route 'y' is new"),
    ),
    (around(routed(x=flat(), y=flat())), around(routed(x=flat())), ("in: route 'y' was removed",)),
    (
        around(routed(x=flat())),
        around(routed("other", x=flat())),
        ("in: the name is 'other' (was 'router')",),
    ),
    (
        around(routed(x=flat())),
        around(flat()),
        (
            "in: the name is 'p' (was 'router')",
            "in: the output is that of 'b' (was None)",
            "in: step 'a' is new",
            "in: step 'b' is new",
            "in: route 'x' was removed",
        ),
    ),
]


@pytest.mark.parametrize(("before", "now", "expected"), CHANGED, ids=[lines[0] for _, _, lines in CHANGED])
def test_each_change_is_a_line(
    before: Pipeline[Any, Any], now: Pipeline[Any, Any], expected: tuple[str, ...]
) -> None:
    assert tuple(one.text for one in changes(before.definition, now.definition)) == expected
