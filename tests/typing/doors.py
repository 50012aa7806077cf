"""What a type checker knows of `deps`, inputs and outputs of pipelines, routers and graphs. Never run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict, assert_type

from pydantic import BaseModel

from fastroai import (
    BasePipeline,
    FastroAgent,
    Graph,
    GraphResult,
    Pipeline,
    PipelineConfig,
    PipelineResult,
    Service,
    SplitPipeline,
    SQLiteRunStore,
    StepContext,
    step,
)
from fastroai.graphs import GraphStream
from fastroai.pipelines import CallChanged, CallLeftOver, PipelineStream
from fastroai.store import RunStoreLike
from fastroai.usage import Quote


class Deps: ...


class OtherDeps: ...


class Ticket(TypedDict):
    text: str


@step
async def free(ctx: StepContext[object]) -> str:
    return ctx.get_input("text", str)


@step
async def needy(ctx: StepContext[Deps]) -> str:
    return ctx.get_input("text", str)


pipeline = Pipeline[Deps, Ticket, str]("p", {"needy": needy}, accepts=Ticket)
graph = Graph[Deps, Ticket, str]("g", nodes={"needy": needy}, accepts=Ticket)
without_deps = Pipeline[None, dict[str, str], int]("w", {"free": free})
store = SQLiteRunStore("runs.db")


class Router(BasePipeline[Deps, Ticket, str]):
    async def route(self, inputs: Ticket, deps: Deps) -> str:
        return inputs["text"]


router = Router()
router.register_pipeline("p", pipeline)
router.register_pipeline("any", Pipeline("any", {"free": free}))
router.register_pipeline("w", without_deps)  # type: ignore[arg-type]  # an int, and needs other inputs


async def outputs() -> None:
    assert_type(await pipeline.execute({"text": "a"}, Deps()), PipelineResult[str])
    assert_type((await pipeline.run({"text": "a"}, deps=Deps())).output, str | None)
    assert_type(await pipeline.execute(deps=Deps(), run_id="r"), PipelineResult[str])
    assert_type(await pipeline.execute(Ticket(text="a"), Deps()), PipelineResult[str])
    assert_type(pipeline.run_sync({"text": "a"}, Deps()), PipelineResult[str])
    assert_type(pipeline.stream({"text": "a"}, Deps()), PipelineStream[str])
    assert_type(pipeline.run_sync({"text": "a"}, Deps(), store="a.db", on_event=print), PipelineResult[str])
    pipeline.run_sync({"text": "a"}, Deps(), store=5)  # type: ignore[call-overload]
    pipeline.run_sync({"text": "a"}, Deps(), on_event=5)  # type: ignore[call-overload]
    assert_type(PipelineConfig(store=Path("a.db")).store, RunStoreLike | None)
    PipelineConfig(store=5)  # type: ignore[arg-type]
    assert_type(await pipeline.resume("r", deps=Deps(), inputs={"text": "b"}), PipelineResult[str])
    assert_type(await pipeline.fork("r", at="needy", deps=Deps()), PipelineResult[str])
    assert_type(pipeline.estimate_sync({"text": "a"}, Deps()), Quote)
    assert_type((await router.execute({"text": "a"}, Deps())).output, str | None)
    assert_type((await graph.execute({"text": "a"}, Deps())).output, str | None)
    assert_type(graph.stream({"text": "a"}, Deps()), GraphStream[str])
    assert_type(await graph.resume("r", input=True, deps=Deps()), GraphResult[str])


# --- an editor reports deps that are needed and not given ---


async def missing_deps() -> None:
    await pipeline.execute({"text": "a"})  # type: ignore[call-overload]
    await pipeline.run({"text": "a"})  # type: ignore[call-overload]
    pipeline.execute_sync({"text": "a"})  # type: ignore[call-overload]
    pipeline.run_sync({"text": "a"})  # type: ignore[call-overload]
    pipeline.stream({"text": "a"})  # type: ignore[call-overload]
    pipeline.estimate_sync({"text": "a"})  # type: ignore[call-overload]
    await pipeline.resume("r")  # type: ignore[call-arg]
    pipeline.resume_sync("r")  # type: ignore[call-arg]
    pipeline.resume_stream("r")  # type: ignore[call-arg]
    await pipeline.fork("r", at="needy")  # type: ignore[call-arg]
    pipeline.fork_sync("r", at="needy")  # type: ignore[call-arg]
    await pipeline.recover()  # type: ignore[call-arg]
    await pipeline.wake()  # type: ignore[call-arg]
    await router.execute({"text": "a"})  # type: ignore[call-overload]
    await graph.execute({"text": "a"})  # type: ignore[call-overload]
    graph.stream({"text": "a"})  # type: ignore[call-overload]
    await graph.resume("r", input=True)  # type: ignore[call-arg]
    graph.resume_stream("r", input=True)  # type: ignore[call-arg]
    Service(pipeline, graph, store=store)  # type: ignore[arg-type]
    await pipeline.wake_every(5)  # type: ignore[call-arg]  # the last, as it never returns


async def deps_missing_for_ever() -> None:
    await pipeline.recover_every(5)  # type: ignore[call-arg]


async def deps_missing_in_a_service() -> None:
    await pipeline.serve()  # type: ignore[call-arg]


def one_service() -> None:
    service = Service(pipeline, graph, router, deps_for=lambda run: Deps(), every=1, store=store)
    assert_type(service, Service)
    Service(without_deps, store=store, on_error=lambda run, error: print(run.run_id, error))
    Service(pipeline, deps_for=lambda run: OtherDeps())  # type: ignore[arg-type, return-value]
    Service("pipeline")  # type: ignore[call-overload]


async def wrong_deps() -> None:
    await pipeline.execute({"text": "a"}, OtherDeps())  # type: ignore[call-overload]
    await pipeline.resume("r", deps=OtherDeps())  # type: ignore[arg-type]
    await graph.execute({"text": "a"}, deps=None)  # type: ignore[call-overload]


async def no_deps_needed() -> None:
    await without_deps.execute({"text": "a"}, run_id="r")
    await without_deps.resume("r")
    await without_deps.recover()
    await without_deps.wake(deps_for=None)
    await pipeline.wake(deps_for=lambda run: Deps())
    without_deps.estimate_sync()
    optional = Pipeline[Deps | None, Ticket, str]("o", {"free": free})
    await optional.execute({"text": "a"})
    await optional.execute({"text": "a"}, Deps())


# --- and inputs that are not what the pipeline takes ---


typed_without_deps = Pipeline[None, Ticket, str]("t", {"free": free})


async def wrong_inputs() -> None:
    await pipeline.execute({"txt": "a"}, Deps())  # type: ignore[call-overload]
    await pipeline.execute({"text": 3}, Deps())  # type: ignore[call-overload]
    await router.execute({"text": 3}, Deps())  # type: ignore[call-overload]
    await graph.execute({"text": "a", "tone": "b"}, Deps())  # type: ignore[call-overload]
    await without_deps.execute({"text": 3})  # type: ignore[dict-item]
    await typed_without_deps.execute({"txt": "a"})  # type: ignore[arg-type]
    typed_without_deps.execute_sync({"text": 3})  # type: ignore[arg-type]
    await pipeline.execute("a", Deps())  # type: ignore[call-overload]


Pipeline[Deps, str]("two", {"needy": needy})  # type: ignore[type-var]  # the second one is that of the inputs
SplitPipeline[None, Ticket, str]("s", key=lambda inputs, deps: inputs["user"])  # type: ignore[typeddict-item]


# --- what is inferred without types ---


async def inferred() -> None:
    needs = Pipeline("n", {"needy": needy})
    assert_type(needs, Pipeline[Deps, Mapping[str, Any], Any])
    await needs.execute({"anything": 1})  # type: ignore[call-overload]
    assert_type(await needs.execute({"anything": 1}, Deps()), PipelineResult[Any])
    needs_none = Pipeline("f", {"free": free, "ask": FastroAgent("openai:gpt-5-mini").as_step("hi")})
    assert_type(await needs_none.execute({"anything": 1}), PipelineResult[Any])
    checked = Pipeline("m", {"needy": needy}, accepts=Model)
    await checked.execute({"text": "a"}, Deps())
    await checked.execute({"text": "a"})  # type: ignore[call-overload]


class Model(BaseModel):
    text: str


# --- calls that have changed ---


async def changed() -> None:
    result = await without_deps.resume("r", on_changed="keep")
    assert_type(result.changed_calls, tuple[CallChanged, ...])
    assert_type(result.left_over_calls, tuple[CallLeftOver, ...])
    assert_type(
        (await graph.resume("r", deps=Deps(), on_changed="ask")).changed_calls, tuple[CallChanged, ...]
    )
    await without_deps.recover(on_changed="fail")
    await without_deps.wake(on_changed="fail")
    await without_deps.resume("r", on_changed="never")  # type: ignore[call-overload]
    await without_deps.recover(on_changed="never")  # type: ignore[call-overload]
    PipelineConfig(on_changed="never")  # type: ignore[arg-type]
