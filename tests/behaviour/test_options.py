"""Every option of every method that runs something makes a difference for a kind of run, or is refused."""

from __future__ import annotations

import asyncio
import inspect
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Never

import pytest
from support.agents import paid_agent
from support.doors import door
from support.tracing import RecordingTracer

from fastroai import Edge, Graph, StepContext, step
from fastroai.errors import ConfigurationError, FastroAIError
from fastroai.functions import HumanReviewContext, await_human
from fastroai.human import Inbox
from fastroai.runtime import current_scope
from fastroai.store import MemoryRunStore, RunHistory
from fastroai.usage import Budget, SpendLimit
from fastroai.workflows import Workflow

Look = Callable[["Stage", str], object]
Observe = Callable[[str, str], Awaitable[list[object]]]

KINDS = ("pipeline", "graph", "router", "flow", "workflow")


A = {"text": "a"}
BEGIN = ("execute", "execute_stream", "run", "stream")
LOOPS = ("wake_every", "recover_every", "serve")
TAKING_UP = ("wake", "recover", *LOOPS)
AT = {"pipeline": "works", "graph": "works", "router": "route", "flow": "body"}
"""The step at which a fork runs the body again."""


@dataclass
class Stage:
    """One run, what its body does, and what it has seen."""

    kind: str
    store: MemoryRunStore = field(default_factory=MemoryRunStore)
    texts: list[str] = field(default_factory=list)
    seen: list[object] = field(default_factory=list)
    deps: list[object] = field(default_factory=list)
    shared: list[object] = field(default_factory=list)
    does: str = ""
    """What the body does: nothing, `ask`, `break`, `pay` or `wait`."""
    instructions: str = ""
    """The instructions of an agent that the body asks first; empty for none."""
    asked: list[str] = field(default_factory=list)
    """The instructions with which that agent was asked."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    running: Any = None

    @property
    def door(self) -> Any:
        limit = SpendLimit(usd=1, window="day", key=self.key_of)
        is_keyed = self.kind == "flow" and self.does == "pay"
        return door(self.kind, self.body, {"retries": 0} | ({"budget": limit} if is_keyed else {}))

    async def body(self, ctx: StepContext[Any] | None, text: str) -> str:
        scope = current_scope()
        assert scope is not None
        self.texts.append(text)
        self.seen.append(scope.run_id)
        if ctx is not None:
            self.deps.append(ctx.deps)
            self.shared.append(dict(ctx.shared))
        output = await self.work(ctx, text)
        self.done.set()
        return output

    def key_of(self, deps: object) -> str:
        """The key of a spend limit, which is all that has the deps of a flow."""
        self.deps.append(deps)
        return "all"

    async def work(self, ctx: StepContext[Any] | None, text: str) -> str:
        if self.instructions:
            await paid_agent(100, before=self.note, instructions=self.instructions).run("hello")
        match self.does:
            case "ask":
                if ctx is not None:
                    return str(await ctx.ask("Go on?", bool))
                return str((await await_human(HumanReviewContext("Go on?"), bool)).value)
            case "break":
                raise ValueError("broken")
            case "pay":
                await paid_agent(100).run("hello")
            case "wait":
                self.arrived.set()
                await self.leave.wait()
        return f"said {text}"

    async def note(self, prompt: str) -> None:
        self.asked.append(self.instructions)

    async def attempt(self, method: str, *args: Any, **options: Any) -> str:
        """How a call ends: "ended", or the name of its error. Mistakes in options are raised."""
        self.seen.clear()
        try:
            made = getattr(self.door, method)(*args, **options)
            if method.endswith("stream"):
                async with made as stream:
                    async for _ in stream:
                        pass
                result = stream.result
            elif method in LOOPS:
                await self.until_done(made)
                result = None
            else:
                result = await made
        except ConfigurationError:
            raise
        except (FastroAIError, ValueError) as error:
            return type(error).__name__
        if method in ("wake", "recover"):
            result = next(iter(result.values()), None)
        failure = result if isinstance(result, Exception) else getattr(result, "error", None)
        if failure is not None:
            return type(failure).__name__
        return "paused" if getattr(result, "status", "") == "paused" else "ended"

    async def until_done(self, loop: Coroutine[Any, Any, Never]) -> None:
        """Run a loop that never ends, until the body has done its work, or an error ends the loop."""
        running = asyncio.ensure_future(loop)
        done = asyncio.ensure_future(self.done.wait())
        await asyncio.wait((running, done), return_when=asyncio.FIRST_COMPLETED)
        done.cancel()
        if running.done():
            await running
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    # --- runs that are on record ---

    async def broken(self) -> None:
        self.does = "break"
        await self.attempt("execute", A, run_id="r", store=self.store)
        self.does = ""

    async def finished(self) -> None:
        await self.attempt("execute", A, run_id="r", store=self.store)

    async def paused(self) -> None:
        self.does = "ask"
        await self.attempt("execute", A, run_id="r", store=self.store)

    async def answered(self) -> None:
        await self.paused()
        (question,) = await Inbox(self.store).list()
        await Inbox(self.store).answer(question.id, True)

    async def interrupted(self) -> None:
        async with self.waiting() as run:
            await self.running.interrupt("r")
            run.cancel()
            await asyncio.wait([run])
        self.does = ""

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[asyncio.Task[Any]]:
        """A run whose body waits until `leave` is set."""
        self.does, self.running = "wait", self.door
        run = asyncio.create_task(self.running.execute(A, run_id="r", store=self.store))
        await self.arrived.wait()
        yield run
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)

    async def ready_for(self, method: str) -> tuple[Any, ...]:
        """Bring about what a method goes on with, and return its positional arguments."""
        match method:
            case "execute" | "execute_stream" | "run" | "stream":
                return () if method in ("run", "stream") and self.kind == "flow" else (A,)
            case "resume" | "resume_stream":
                await self.broken()
                return ("r",)
            case "fork":
                await self.finished()
                return ("r",)
            case "wake" | "wake_every" | "serve":
                await self.answered()
            case _:
                await self.interrupted()
        return (1.0,) if method in ("wake_every", "recover_every") else ()


async def observed(
    kind: str, method: str, look: Look, *choices: dict[str, Any], does: str | None = None
) -> list[object]:
    """What is seen of a call with each of some choices of options."""
    seen: list[object] = []
    for options in choices:
        stage = Stage(kind)
        args = await stage.ready_for(method)
        stage.does = stage.does if does is None else does
        on_record: dict[str, Any] = {} if method in BEGIN else {"store": stage.store}
        if method == "fork" and "outputs" not in options:
            on_record["at"] = AT[kind]
        stage.done.clear()
        ending = await stage.attempt(method, *args, **{**on_record, **options})
        found = look(stage, ending)
        seen.append(await found if inspect.isawaitable(found) else found)
    return seen


def ending_of(stage: Stage, ending: str) -> object:
    return ending


async def kept_of(stage: Stage, ending: str) -> object:
    return [(one.tags, one.tenant) for one in await RunHistory(stage.store).list()]


async def inputs(kind: str, method: str) -> list[object]:
    if method in ("execute", "execute_stream"):
        return [await texts(kind, method, A), await texts(kind, method, {"text": "b"})]
    return await observed(kind, method, lambda stage, _: [*stage.texts], {}, {"inputs": {"text": "b"}})


async def texts(kind: str, method: str, given: dict[str, Any]) -> list[str]:
    stage = Stage(kind)
    await stage.attempt(method, given)
    return stage.texts


async def deps(kind: str, method: str) -> list[object]:
    """What the body finds as `ctx.deps`, or for flows, which have no ctx, the key of its spend limit."""
    name, given = ("deps_for", lambda run: "Ada") if method in TAKING_UP else ("deps", "Ada")
    return await observed(kind, method, lambda stage, _: [*stage.deps], {}, {name: given}, does="pay")


async def tracer(kind: str, method: str) -> list[object]:
    tracer = RecordingTracer()
    await observed(kind, method, ending_of, {}, {"tracer": tracer})
    return [0, len(tracer.spans)]


async def context(kind: str, method: str) -> list[object]:
    return await observed(kind, method, lambda stage, _: [*stage.shared], {}, {"context": {"client": 1}})


async def store(kind: str, method: str) -> list[object]:
    if method in BEGIN:
        kept = MemoryRunStore()
        await observed(kind, method, ending_of, {}, {"store": kept})
        return [0, len([*await RunHistory(kept).list()])]
    with_runs = await observed(kind, method, lambda stage, _: len(stage.texts), {})
    if method in LOOPS:  # without a run to take up, a loop looks on for ever
        with pytest.raises(ConfigurationError, match="store"):
            await observed(kind, method, ending_of, {"store": 5})
        return [0, *with_runs]
    return with_runs + await observed(kind, method, ending_of, {"store": MemoryRunStore()})


async def labels(kind: str, method: str, **option: Any) -> list[object]:
    own = MemoryRunStore()
    await observed(kind, method, ending_of, {"store": own}, {"store": own, **option})
    return [(one.tags, one.tenant) for one in await RunHistory(own).list()]


async def on_existing(kind: str, method: str) -> list[object]:
    one = {"store": MemoryRunStore(), "run_id": "r"}
    _, *rest = await observed(kind, method, ending_of, one, one, {**one, "on_existing": "return"})
    return rest


async def busy(kind: str, method: str, *choices: dict[str, Any]) -> list[object]:
    seen: list[object] = []
    for options in choices:
        stage = Stage(kind)
        more = {"run_id": "r", "on_existing": "return"} if method in BEGIN else {}
        args = ("r",) if method not in BEGIN else () if method in ("run", "stream") else (A,)
        async with stage.waiting():
            call = asyncio.create_task(stage.attempt(method, *args, store=stage.store, **more, **options))
            if options.get("busy_timeout") == 60:
                stage.leave.set()
            seen.append(await call)
    return seen


async def force(kind: str, method: str) -> list[object]:
    stage = Stage(kind)
    async with stage.waiting():
        stage.does = ""
        return [await stage.attempt(method, "r", store=stage.store, force=force) for force in (False, True)]


async def reserve(kind: str, method: str) -> list[object]:
    (without,) = await observed(kind, method, ending_of, {})
    with pytest.raises(ConfigurationError, match="upper limit"):
        await observed(kind, method, ending_of, {"reserve": "quote"})
    return [without, "refused"]


async def answers(kind: str, method: str) -> list[object]:
    endings: list[object] = []
    for answered in (False, True):
        stage = Stage(kind)
        await stage.paused()
        (question,) = await Inbox(stage.store).list()
        given = {"answers": {question.id: True}} if answered else {}
        endings.append(await stage.attempt(method, "r", store=stage.store, **given))
    return endings


async def on_changed(kind: str, method: str) -> list[object]:
    """How often an agent is asked whose instructions have changed since its answer was put on record."""
    asked: list[object] = []
    for options in ({}, {"on_changed": "keep"}):
        stage = Stage(kind, instructions="Be brief.")
        goes_on = ("wake", "wake_every", "serve")
        await (stage.answered() if method in goes_on else stage.interrupted())
        stage.instructions = "Be exact."
        args = ("r",) if method not in TAKING_UP else (1.0,) if method.endswith("_every") else ()
        stage.done.clear()
        await stage.attempt(method, *args, store=stage.store, **options)
        asked.append([*stage.asked])
    assert asked[1] == ["Be brief."]
    return asked


def pick(name: str, value: object, *, does: str | None = None, look: Look = ending_of) -> Observe:
    async def observe(kind: str, method: str) -> list[object]:
        return await observed(kind, method, look, {}, {name: value}, does=does)

    return observe


async def on_event(kind: str, method: str) -> list[object]:
    told: list[object] = []
    await observed(kind, method, ending_of, {}, {"on_event": told.append})
    return [0, len(told)]


async def on_progress(kind: str, method: str) -> list[object]:
    told: list[object] = []
    await observed(kind, method, ending_of, {}, {"on_progress": told.append})
    return [0, len(told)]


async def progress(kind: str, method: str) -> list[object]:
    lines = io.StringIO()
    with redirect_stderr(lines):
        await observed(kind, method, ending_of, {}, {"progress": True})
    return ["", lines.getvalue()]


async def outputs(kind: str, method: str) -> list[object]:
    again = {"outputs": {AT[kind]: "said b"}}
    return await observed(kind, method, lambda stage, _: len(stage.texts), {}, again)


ENQUEUE = {"on_busy": "enqueue", "busy_timeout": 60}
OBSERVED: dict[str, Observe] = {
    "inputs": inputs,
    "deps": deps,
    "deps_for": deps,
    "tracer": tracer,
    "context": context,
    "run_id": pick("run_id", "mine", look=lambda stage, _: "mine" in stage.seen),
    "new_run_id": pick("new_run_id", "mine", look=lambda stage, _: "mine" in stage.seen),
    "store": store,
    "tags": lambda kind, method: labels(kind, method, tags=["red"]),
    "tenant": lambda kind, method: labels(kind, method, tenant="Ada"),
    "on_existing": on_existing,
    "on_busy": lambda kind, method: busy(kind, method, {}, ENQUEUE),
    "busy_timeout": lambda kind, method: busy(kind, method, {**ENQUEUE, "busy_timeout": 0}, ENQUEUE),
    "reserve": reserve,
    "budget": pick("budget", Budget(microcents=1), does="pay"),
    "on_event": on_event,
    "progress": progress,
    "on_progress": on_progress,
    "answers": answers,
    "force": force,
    "on_changed": on_changed,
    "at": outputs,
    "outputs": outputs,
}
"""How to find out whether an option of a method makes a difference: what is seen without it, and with it."""


REFUSED = {
    ("flow", "context"): "ctx.shared",
}
"""Options that a kind of run has no use for, with a part of the error."""

WAITING = "tests/behaviour/durability/test_waiting.py"
HANDING_OVER = "tests/behaviour/durability/test_handing_over.py"
ELSEWHERE = {
    "seconds": (WAITING, "test_a_service_wakes_runs_again_and_again_until_it_is_cancelled"),
    "every": (HANDING_OVER, "test_one_service_has_several_definitions_and_can_be_opened_again"),
    "on_error": (HANDING_OVER, "test_an_error_of_one_run_is_told_once_and_the_others_go_on"),
    "max_concurrency": (
        HANDING_OVER,
        "test_at_most_so_many_runs_go_on_at_once_and_other_processes_can_have_the_rest",
    ),
    "graceful_timeout": (HANDING_OVER, "test_steps_that_are_too_slow_are_cut_off"),
    "input": ("tests/behaviour/test_options.py", "test_an_input_answers_the_pause_node_that_it_is_for"),
    "node": ("tests/behaviour/test_options.py", "test_an_input_answers_the_pause_node_that_it_is_for"),
}
"""Options for which another test shows that they make a difference."""

METHODS = ("execute", "execute_stream", "resume", "resume_stream", "fork", *TAKING_UP)


def cases() -> list[Any]:
    found = []
    for kind in KINDS:
        made = Stage(kind).door
        methods = [*METHODS, "run", "stream"] if kind == "flow" else METHODS
        for method in methods:
            if (kind, method) == ("workflow", "fork"):
                continue
            for one in inspect.signature(getattr(made, method)).parameters.values():
                is_option = one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
                is_subject = one.name == "run_id" and method not in BEGIN
                if is_option and not is_subject and one.name not in ELSEWHERE:
                    found.append(pytest.param(kind, method, one.name, id=f"{one.name} of {method} of {kind}"))
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "method", "option"), cases())
async def test_every_option_of_every_method_makes_a_difference_or_is_refused(
    kind: str, method: str, option: str
) -> None:
    if (part := REFUSED.get((kind, option))) is not None:
        with pytest.raises(ConfigurationError, match=part):
            await OBSERVED[option](kind, method)
        return
    one, other = await OBSERVED[option](kind, method)
    assert one != other


@pytest.mark.parametrize("method", ["resume", "resume_stream", *TAKING_UP])
@pytest.mark.parametrize("kind", KINDS)
async def test_what_to_do_with_changed_calls_is_checked_before_a_run_is_taken_up(
    kind: str, method: str
) -> None:
    stage = Stage(kind)
    args = await stage.ready_for(method)
    stage.texts.clear()
    with pytest.raises(ConfigurationError, match="on_changed.*'ask', 'keep' or 'fail'"):
        await stage.attempt(method, *args, store=stage.store, on_changed="never")
    assert not stage.texts


@pytest.mark.parametrize(("path", "name"), sorted({*ELSEWHERE.values()}))
def test_the_tests_elsewhere_exist(path: str, name: str) -> None:
    assert f"def {name}(" in (Path(__file__).parents[2] / path).read_text(encoding="utf-8")


async def test_a_workflow_refuses_to_be_forked() -> None:
    with pytest.raises(ConfigurationError, match="fastroai flow revert"):
        await Stage("workflow").door.fork("r", at="works")


@pytest.mark.parametrize("node", ["left", "right"])
async def test_an_input_answers_the_pause_node_that_it_is_for(node: str) -> None:
    @step
    async def works(ctx: StepContext[Any]) -> str:
        return "which?"

    edges = [Edge("begin", "left"), Edge("begin", "right"), Edge("left", "end"), Edge("right", "end")]
    nodes = dict.fromkeys(("begin", "left", "right", "end"), works)
    graph = Graph[Any, Any, Any]("g", nodes=nodes, edges=edges, pause_nodes=["left", "right"])
    store = MemoryRunStore()
    await graph.run(run_id="r", store=store)
    result = await graph.resume("r", input="mine", node=node, store=store)
    assert {one: output for one, output in result.outputs.items() if one != "begin"} == {node: "mine"}


def test_workflow_run_and_resume_take_the_options_of_the_methods_that_they_call() -> None:
    """`Workflow.run` passes on all that it does not know itself, so the tests above are for it, too."""
    for name in ("run", "resume"):
        one = inspect.signature(getattr(Workflow, name)).parameters
        assert one["options"].kind is inspect.Parameter.VAR_KEYWORD
