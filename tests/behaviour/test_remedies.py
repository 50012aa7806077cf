"""The remedies of error messages work: each row makes an error, and then types what its message says.

A message that changes fails its row, because the row names the words of the remedy.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import secrets
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import AliasPath, BaseModel, Field
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from support.agents import paid_agent
from typer.testing import CliRunner

from fastroai import (
    AgentNode,
    BasePipeline,
    BaseStep,
    Budget,
    CostCalculator,
    Edge,
    FastroAgent,
    Graph,
    Inbox,
    MemoryRunStore,
    ModelServer,
    Node,
    Pipeline,
    PipelineConfig,
    RunHistory,
    SpendLimit,
    StepContext,
    Verdict,
    compute,
    configure,
    contract,
    infer,
    parallel,
    refine,
    step,
)
from fastroai.cli.app import app
from fastroai.expressions import Expression
from fastroai.functions import debate, reset
from fastroai.graphs import Ruling, Send
from fastroai.store.record.headers import header_key
from fastroai.testing import Fault, Reply
from fastroai.tracing import set_redaction
from fastroai.workflows.answers import ErrorAnswer
from fastroai.workflows.driven_flows import WorkflowRuns
from fastroai.workflows.server.install.text_files import check_writable
from fastroai.workflows.server.user_files import sealing_key
from fastroai.workflows.spec.reading import load_spec


class Row(NamedTuple):
    name: str
    mistake: Callable[[], object]
    words: str
    """The part of the message that says what to type."""
    remedy: Callable[[], object]


ROOT = Path(__file__).parents[2]
ROWS: list[Row] = []


def row(
    words: str, mistake: object, remedy: object
) -> Callable[[Callable[[Any], object]], Callable[[Any], object]]:
    """Add a row of a function that is called with a mistake, and then with what the message says to type."""

    def add(tried: Callable[[Any], object]) -> Callable[[Any], object]:
        ROWS.append(Row(tried.__name__, lambda: tried(mistake), words, lambda: tried(remedy)))
        return tried

    return add


# --- steps and pipelines ---


async def say(ctx: StepContext[Any]) -> str:
    return "said"


said = step(say)


class Speaks(BaseStep[Any, str]):
    async def execute(self, context: StepContext[Any]) -> str:
        return "said"


@row("it has no steps; give at least one: steps={'name': step}", {}, {"name": said})
@row("decorate the function with @step", {"name": say}, {"name": step(say)})
@row("give an instance: Speaks()", {"name": Speaks}, {"name": Speaks()})
@row("use its .as_step(...)", {"name": paid_agent(1)}, {"name": paid_agent(1).as_step("hi")})
@row("ids are non-empty strings", {"": said}, {"name": said})
def a_pipeline_has_steps(steps: Any) -> object:
    return Pipeline[Any, Any]("p", steps=steps).run({})


@row("'secnd', which is not a step. Did you mean 'second'?", {"secnd": ["first"]}, {"second": ["first"]})
@row("expected a list of step ids", {"second": "first"}, {"second": ["first"]})
def dependencies_are_of_steps(dependencies: Any) -> object:
    return Pipeline[Any, Any]("p", {"first": said, "second": said}, dependencies)


class Chooses(BasePipeline[Any, Any, str]):
    def __init__(self, choice: str) -> None:
        super().__init__("router")
        self.choice = choice

    async def route(self, inputs: Mapping[str, Any], deps: Any) -> str:
        return self.choice


@row("registered: 'support'. Did you mean 'support'?", "suport", "support")
def a_router_chooses_a_registered_pipeline(choice: str) -> object:
    router = Chooses(choice)
    router.register_pipeline("support", Pipeline[Any, Any]("support", {"say": said}))
    return router.run({})


class Deep(BaseModel):
    price: int = Field(validation_alias=AliasPath("item", "price"))


class Flat(BaseModel):
    price: int = Field(validation_alias="item price")


@row("fields without AliasPath and AliasChoices; give 'price' a text as alias", Deep, Flat)
def accepted_inputs_have_one_name(accepts: Any) -> object:
    return Pipeline("p", {"say": said}, accepts=accepts)


# --- agents ---

INSIDE = Agent(TestModel(), instructions="Be brief")


@row(
    "no value, because agent= has its own; set it on that agent",
    {"agent": INSIDE, "instructions": "x"},
    {"agent": INSIDE},
)
@row("'provider:model', or a PydanticAI Model", {"model": 3}, {"model": TestModel()})
@row(
    "microcents ($1 = 1,000,000), a whole number from 1; for dollars: budget=Budget(usd=...)",
    {"model": TestModel(), "cost_budget": 0.5},
    {"model": TestModel(), "budget": Budget(usd="0.5", on_unpriced="allow", on_unbounded="allow")},
)
@row(
    "cost_budget=5: expected no value, because budget= is given too",
    {"model": TestModel(), "cost_budget": 5, "budget": Budget(requests=2)},
    {"model": TestModel(), "budget": Budget(requests=2)},
)
def an_agent_is_made(options: Any) -> object:
    return FastroAgent(**options).run("hi")


PRICES = {"input_per_mtok": 1, "output_per_mtok": 2}


@row(
    "add one: CostCalculator(pricing_overrides={'openai:gpt-new': {'input_per_mtok': ..., "
    "'output_per_mtok': ...}}) as cost_calculator= of the agent",
    {"max_tokens": 10},
    {"max_tokens": 10, "cost_calculator": CostCalculator(pricing_overrides={"openai:gpt-new": PRICES})},
)
@row(
    "or set on_unpriced='allow' on the Budget or SpendLimit",
    {"budget": Budget(usd=1), "max_tokens": 10},
    {"budget": Budget(usd=1, on_unpriced="allow"), "max_tokens": 10},
)
@row(
    "set max_tokens. To send it anyway, set on_unbounded='allow'",
    {"cost_calculator": CostCalculator(pricing_overrides={"openai:gpt-new": PRICES})},
    {"cost_calculator": CostCalculator(pricing_overrides={"openai:gpt-new": PRICES}), "max_tokens": 10},
)
async def a_budget_knows_prices(options: Any) -> None:
    with ModelServer() as server:
        server.rule(None, Reply("hello"))
        model = server.model("openai-chat:gpt-new")
        await FastroAgent(model, **{"budget": Budget(usd=1), **options}).run("hi")


@row(
    "but there is no list price to take a discount from; add input_per_mtok and output_per_mtok",
    {"discount": "0.5"},
    {"discount": "0.5", **PRICES},
)
def a_discount_is_taken_off_a_price(prices: Any) -> object:
    calculator = CostCalculator(pricing_overrides={"openai:gpt-new": prices})
    return calculator.calculate_cost("openai:gpt-new", 1, 1)


# --- budgets ---


def fails(deps: object) -> str:
    raise LookupError("no plan")


@row("on_limit='wait' as well", {"deadline": 60}, {"deadline": 60, "on_limit": "wait"})
@row("a key: printable text of 1 to 200 characters", {"key": ""}, {"key": "support"})
def a_spend_limit_is_declared(options: Any) -> object:
    return SpendLimit(usd=1, **options)


@row("Set it in the config of the pipeline or graph", "call", "config")
async def a_run_waits_for_money(where: str) -> None:
    limit = SpendLimit(usd=1, key="waits", on_limit="wait")
    config = PipelineConfig(budget=limit if where == "config" else None)
    door = Pipeline[Any, Any]("p", {"say": said}, config=config)
    await door.run({}, run_id="r", store=MemoryRunStore(), budget=limit if where == "call" else None)


# --- expressions ---


def is_short(text: str) -> bool:
    return len(text) < 3


@row("str() takes text, a number, a bool or None, not list", "str(tags) == 'a'", "str(tags[0]) == 'a'")
@row("needs a number, not str", "-name > 2", "-count > 2")
@row("is_short() raised TypeError", "is_short(count)", "is_short(tags[0])")
def an_expression_is_evaluated(text: str) -> object:
    given = {"tags": ["a"], "name": "Ada", "count": 3}
    return Expression(text, functions={"is_short": is_short}).evaluate(given)


# --- graphs ---


def graph(*edges: Edge, **options: Any) -> Graph[Any]:
    return Graph("g", nodes={"first": Node(said), "second": Node(said)}, edges=edges, **options)


@row("has fallback=True, which only edges with when='llm_decide' have", "on_success", "llm_decide")
def a_fallback_is_of_a_decision(when: Any) -> object:
    return graph(Edge("first", "second", when, fallback=True), decider=FastroAgent(TestModel()))


@row("add Edge('split', 'total', when='send')", (), (Edge("split", "total", when="send"),))
async def a_node_sends(more: tuple[Edge, ...]) -> None:
    @step
    async def split(ctx: StepContext[Any]) -> list[Send]:
        return [Send("total", {"number": 1})]

    edges = [Edge("split", "work", when="send"), Edge("work", "total"), *more]
    found = Graph("g", nodes={"split": split, "work": said, "total": said}, edges=edges)
    result = await found.run({})
    for error in result.errors.values():
        raise error


@row("a mapping of names to values", [1], {"number": 1})
def a_send_has_inputs(inputs: Any) -> object:
    return Send("work", inputs)


@row(
    "an agent with output_type=Verdict",
    FastroAgent(TestModel()),
    FastroAgent(TestModel(), output_type=Verdict),
)
@row("a function (context, output) -> Verdict", 3, lambda ctx, output: Verdict.accept())
def an_agent_node_is_judged(judge: Any) -> object:
    return AgentNode(FastroAgent(TestModel()), "hi", judge=judge)


@row("RETRY needs a reason", {}, {"reason": "It is too long"})
def a_verdict_says_why(more: Any) -> object:
    return Verdict(ruling=Ruling.RETRY, **more)


@row("which was not given in nodes={...}", {}, {"reply": said})
def nodes_of_yaml_are_given(nodes: Any) -> object:
    return Graph.from_yaml(
        "name: g\nnodes: {first: {}, reply: {}}\nedges: [{source: first, target: reply}]",
        nodes={"first": said, **nodes},
    )


# --- typed functions ---


@contract
class Named(BaseModel):
    name: str


@infer(intent="Judge the text", model=TestModel())
async def judge_text(text: str) -> bool:
    raise NotImplementedError


@row(
    "until: it calls judge_text, which asks a model, and until must not", "judge_text(name)", "len(name) < 9"
)
def a_refinement_ends_by_a_plain_condition(condition: str) -> object:
    until = {
        "judge_text(name)": lambda result: judge_text(result),
        "len(name) < 9": lambda result: result is True,
    }[condition]

    return refine(until=until)(judge_text)


@row(
    "intent names the input {text}; leave it out: inputs are added automatically",
    "Sum up {text}",
    "Sum up the text",
)
def an_intent_is_constant(intent: str) -> object:
    @infer(intent=intent, model=TestModel())
    async def shorten(text: str) -> str:
        raise NotImplementedError

    return shorten("Long")


@row("was not awaited, so it has no 'upper': write `await shorten(...)`", False, True)
async def a_call_is_awaited(awaits: bool) -> None:
    @infer(intent="Sum up the text", model=TestModel())
    async def shorten(text: str) -> str:
        raise NotImplementedError

    call: Any = shorten("Long")
    (await call if awaits else call).upper()


@row("a model of PydanticAI, or a text such as 'openai:gpt-5'", 3, "openai:gpt-5")
def a_default_model_is_set(model: Any) -> None:
    configure(default_model=model)
    reset()


def positive(number: int) -> Any:
    return [number] if number > 0 else []


@row("to return True, False or None", positive, lambda number: bool(positive(number)))
def a_condition_is_true_or_false(given: Any) -> object:
    @compute(given=given)
    def root(number: int) -> float:
        return number**0.5

    return root(4)


async def argue(topic: object, arguments: object) -> Named:
    return Named(name="Ada")


@row("agents=[]: expected a list of at least one function", ([], ()), ([argue], ()))
@row("agree_on='nmae': expected a field of Named. Did you mean 'name'?", ([argue], "nmae"), ([argue], "name"))
def people_debate(said: Any) -> object:
    return debate(said[0], "Who?", 2, agree_on=said[1])


async def one() -> int:
    return 1


@row("at most 1, the number of coroutines", (1, {"require": 2}), (1, {"require": 1}))
@row("expected at least one", (0, {"require": "any"}), (1, {"require": "any"}))
@row("'all', 'any', 0 or a number of coroutines", (1, {"require": "some"}), (1, {"require": "any"}))
async def coroutines_run_in_parallel(given: Any) -> None:
    await parallel(*(one() for _ in range(given[0])), **given[1])


# --- runs in a store ---


async def asking() -> tuple[MemoryRunStore, Pipeline[Any, Any, Any]]:
    @step
    async def ask(ctx: StepContext[Any]) -> str:
        return "yes" if await ctx.ask("Refund?", bool) else "no"

    store, door = MemoryRunStore(), Pipeline[Any, Any, Any]("p", {"ask": ask})
    await door.run({}, run_id="r", store=store)
    return store, door


@row("a mapping of question ids to answers", "True", "{id: True}")
async def a_run_is_resumed_with_answers(form: str) -> None:
    store, door = await asking()
    (question,) = await Inbox(store).list()
    answers: Any = True if form == "True" else {question.id: True}
    assert (await door.resume("r", store=store, answers=answers)).output == "yes"


@row("a position in the log of run 'r', which ends at", None, ...)
async def a_run_is_followed(after: Any) -> None:
    store, door = await asking()
    await door.resume("r", store=store, answers={(await Inbox(store).list())[0].id: True})
    history = RunHistory(store)
    ends_at = max([position async for position, _ in history.follow("r")])
    async for _ in history.follow("r", after=ends_at if after is ... else ends_at + 1):
        pass


@row("an age, 0 or more: timedelta(days=30)", 30, timedelta(days=30))
async def old_runs_are_deleted(age: Any) -> None:
    await RunHistory(MemoryRunStore()).purge(age)


@row("or choose another run_id", {"run_id": "r"}, {"run_id": "s"})
@row("execute(..., on_existing='resume')", {"run_id": "r"}, {"run_id": "r", "on_existing": "resume"})
async def an_id_is_taken(options: Any) -> None:
    store, door = await asking()
    await door.execute({}, store=store, **options)


@row("Inbox(store).list() has the open ones", False, True)
async def a_question_is_answered(is_listed: bool) -> None:
    store, _ = await asking()
    found = [question.id for question in await Inbox(store).list()] if is_listed else ["r:refund"]
    await Inbox(store).answer(found[0], True)


@row("RunHistory(store).delete('r', force=True) deletes this one", False, True)
async def a_run_that_cannot_be_read_is_deleted(deletes: bool) -> None:
    store, (_, door) = MemoryRunStore(), await asking()
    await store.compare_and_set(header_key("r"), b"{", revision=0)
    if deletes:
        await RunHistory(store).delete("r", force=True)
    await door.run({}, run_id="r", store=store, on_existing="resume")


@row("set key= to a column that differs in every row", "id", "number")
async def rows_have_keys(key: str) -> None:
    @compute
    def double(number: int) -> int:
        return 2 * number

    table = await double.map([{"id": 1, "number": 1}, {"id": 1, "number": 2}], key=key)
    for one in table.records:
        if one["error"]:
            raise ValueError(one["error"])


# --- the model server ---


@row("start it with `with ModelServer() as server:`", False, True)
def the_server_has_an_address(starts: bool) -> None:
    server = ModelServer()
    with server if starts else nullcontext():
        assert server.url


@row("expected a datetime with a time zone", datetime(2030, 1, 1), datetime(2030, 1, 1, tzinfo=UTC))
def a_server_says_when_to_come_again(after: datetime) -> object:
    return Fault.status(429, retry_after=after)


# --- traces ---


@row("a regular expression", ["sk-("], [r"sk-\("])
def texts_are_redacted(patterns: Any) -> None:
    set_redaction(patterns)
    set_redaction(None)


# --- workflows ---

HEAD = """\
version: "0.2"
contracts:
  Counted: {n: {type: integer}}
functions:
  count: {mode: compute, intent: Count, input: {n: {type: integer}}, output: Counted}
  sure: {mode: gate, intent: Is it good}
flows:
  main:
    input: {n: {type: integer}}
    steps:
"""


@row(
    "does not give count what it takes: n", "id: a, function: count", "id: a, function: count, inputs: {n: 1}"
)
@row(
    "has skip_reason without skip_if, which it needs",
    "id: a, intent: b, skip_reason: It is small",
    "id: a, intent: b, skip_reason: It is small, skip_if: input.n > 3",
)
@row(
    "has exit_criterion without max_iterations, which it needs",
    "id: a, intent: b, exit_criterion: result.ok",
    "id: a, intent: b, exit_criterion: result.ok, max_iterations: 2",
)
@row(
    "count takes n", "id: a, function: count, inputs: {n: 1, m: 2}", "id: a, function: count, inputs: {n: 1}"
)
@row(
    "type is 'text'; expected one of",
    "id: a, intent: b, output_schema: {type: text}",
    "id: a, intent: b, output_schema: {type: string}",
)
def a_workflow_is_read(part: str) -> object:
    return load_spec(f"{HEAD}      - {{{part}}}\n")


@row("has a default; only inputs have one", "{type: integer, default: 1}", "{type: integer}")
def fields_of_contracts_have_no_default(field: str) -> object:
    return load_spec(f"{HEAD}      - {{id: a, intent: b}}\n".replace("{type: integer}", field, 1))


async def driven(call: Callable[[WorkflowRuns, str], Any]) -> None:
    runs = WorkflowRuns(MemoryRunStore())
    steps = (
        "      - {id: sure, function: sure, on_approve: two, on_kill: ~}\n"
        "      - {id: two, intent: Go on, depends_on: [sure], max_iterations: 1}\n"
    )
    begun = await runs.plan(HEAD + steps, inputs={"n": 1})
    answer = await call(runs, begun.flow_id)
    if isinstance(answer, ErrorAnswer):
        raise ValueError(answer.model_dump_json())


@row("is not an outcome of a gate", {"outcome": "yes"}, {"outcome": "approve"})
@row(
    "expected the kind of the one who decided, not a name.",
    {"outcome": "approve", "resolved_by": "Ada"},
    {"outcome": "approve", "resolved_by": "human"},
)
def a_gate_is_decided(options: Any) -> object:
    return driven(lambda runs, flow: runs.gate_resolve(flow, "sure", **options))


@row("A label is printable text of 1 to", "", "before the review")
def a_commit_has_a_label(label: str) -> object:
    return driven(lambda runs, flow: runs.commit(flow, label))


@row("Report the step with step_done", "iteration_start", "step_done")
def a_loop_that_has_ended_is_reported(method: str) -> object:
    async def call(runs: WorkflowRuns, flow: str) -> Any:
        await runs.gate_resolve(flow, "sure", outcome="approve")
        await runs.iteration_start(flow, "two")
        await runs.iteration_report(flow, "two", {})
        if method == "step_done":
            return await runs.step_done(flow, "two", {})
        return await runs.iteration_start(flow, "two")

    return driven(call)


# --- the command line ---


def told(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments], prog_name="fastroai")
    if result.exit_code:
        raise ValueError(f"{result.output} {result.exception}")
    return result.output


CODE = """
from fastroai.evaluation import Case, compare

def count(n):
    return {"n": n}

functions = {"count": count}

async def right(question):
    return question

async def tickets():
    cases = [Case(name="a", inputs=1)]
    return await compare({"now": right}, cases, [lambda ctx: ctx.output == 1], progress=False)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    Path("remedy_code.py").write_text(CODE)
    Path("spec.yaml").write_text(HEAD + "      - {id: a, function: count, inputs: {n: $.input.n}}\n")
    yield tmp_path
    sys.modules.pop("remedy_code", None)


@row("a mapping of names, as in app:functions", "remedy_code:count", "remedy_code:functions")
def a_workflow_is_run_from_a_shell(target: str) -> object:
    return told("workflow", "run", "spec.yaml", "--input", "n=3", "--functions", target, "--store", "runs.db")


@row("--baseline too, which names the file to write", (), ("--baseline", "baseline.json"))
def a_baseline_is_updated(options: tuple[str, ...]) -> object:
    return told("eval", "remedy_code:tickets", "--update-baseline", *options)


@row("an age, as in 7d or 12h, or a day or time of UTC, as in 2026-03-01", "week", "7d")
@row("an age, as in 7d or 12h, or a day or time of UTC, as in 2026-03-01", "March", "2026-03-01")
def spending_is_reported(since: str) -> object:
    Pipeline[Any, Any]("p", {"say": said}).run_sync({}, store="runs.db")
    return told("spend", "report", "--since", since, "--store", "runs.db")


@row("There is no terminal to ask on; add --yes to confirm", (), ("--yes",))
def a_run_is_deleted(options: tuple[str, ...]) -> object:
    store = f"runs{len(options)}.db"
    Pipeline[Any, Any]("p", {"say": said}).run_sync({}, run_id="r", store=store)
    return told("runs", "delete", "r", "--store", store, *options)


@row("an existing file, or the URL of Redis or PostgreSQL", "none.db", "some.db")
def the_command_line_reads_a_store(store: str) -> object:
    Pipeline[Any, Any]("p", {"say": said}).run_sync({}, store="some.db" if store == "none.db" else store)
    return told("runs", "list", "--store", store)


@row("random characters, and not 5: secrets.token_hex()", "short", secrets.token_hex())
def a_server_of_workflows_has_a_key(key: str) -> object:
    Path("key").write_text(key)
    Path("key").chmod(0o600)
    return sealing_key("flows.db", Path("key"))


@row("a file that only its owner can read, and not of mode 644: chmod 600", 0o644, 0o600)
def a_key_is_private(mode: int) -> object:
    Path("key").write_text(secrets.token_hex())
    Path("key").chmod(mode)
    return sealing_key("flows.db", Path("key"))


@row("it is read-only: chmod u+w", False, True)
def a_file_is_installed(chmod: bool) -> None:
    file = Path("AGENTS.md")
    file.touch()
    file.chmod(0o400)
    if chmod:
        subprocess.run(["chmod", "u+w", file], check=True)
    check_writable(Path.cwd(), Path.cwd() / file)


@pytest.mark.filterwarnings("ignore::fastroai.usage.UnpricedModelWarning")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.name}: {row.words}")
def test_the_remedy_of_a_message_works(row: Row) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        try_it(row.mistake)
    assert row.words in " ".join(str(caught.value).split())
    try_it(row.remedy)


def try_it(call: Callable[[], object]) -> None:
    async def awaited(found: Any) -> None:
        await found

    if inspect.isawaitable(found := call()):
        asyncio.run(awaited(found))


def test_the_extra_that_an_error_names_brings_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def packages(extra: str) -> set[str]:
        found = {"starlette"} if extra == "web" else set[str]()  # FastAPI brings it
        for needed in extras[extra]:
            name, _, own = re.split(r"[<>=]", needed)[0].strip("]").partition("[")
            found.add(name)
            if name == project["name"]:
                found |= {package for one in own.split(",") for package in packages(one)}
        return found

    named = list[tuple[str, str]]()
    for file in (ROOT / "fastroai").rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("MissingExtraError"):
                match call.args:
                    case [_, ast.Constant(value=str(extra)), ast.Constant(value=str(text))]:
                        named += [(extra, name) for name in re.split(" and |, ", text) if name[0] != "v"]
    wrong = [(extra, name) for extra, name in named if name not in packages(extra)]
    assert len(named) > 15
    assert wrong == []
