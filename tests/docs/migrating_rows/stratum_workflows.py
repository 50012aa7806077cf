"""What users of Stratum's MCP server and its command line type."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, chdir, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import platformdirs
import pytest
from support.migrating import Tried
from support.workflow_servers import Flow, Tools, server_here
from support.workflow_specs import ARTICLE, DRAFT
from typer.testing import CliRunner, Result

from fastroai.cli.app import app
from fastroai.workflows import load_spec
from fastroai.workflows.errors import WorkflowValidationError
from fastroai.workflows.server.user_files import user_store

TRIED: Final = Tried()

LOOP: Final = """
version: "0.3"
flows:
  main:
    input: {}
    steps:
      - {id: find, intent: x, max_iterations: 3, exit_criterion: dry_streak >= 1, accumulate: items,
         ensure: ["result.accumulated_count == 2"]}
      - {id: mend, intent: y, inputs: {all: $.steps.find.output.accumulated,
         count: $.steps.find.output.accumulated_count}}
"""


@contextmanager
def folder_of(files: Mapping[str, str]) -> Iterator[Path]:
    """A folder that has these files."""
    with TemporaryDirectory() as place:
        for name, text in files.items():
            file = Path(place, name)
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        yield Path(place)


@asynccontextmanager
async def served(files: Mapping[str, str] = {}) -> AsyncIterator[Tools]:
    """A server whose workspace has these files."""
    with folder_of(files) as folder:
        async with server_here(folder) as call:
            yield call


async def moved(call: Tools, *tools: str) -> None:
    """These tools of Stratum are not there, and the error says which of ours are meant, which are."""
    ours = {tool.name for tool in (await call.client.list_tools()).tools}
    for tool in tools:
        refused = (await call.client.call_tool(f"stratum_{tool}", {})).structured_content
        assert refused is not None
        assert refused["error_type"] == "unknown_tool"
        assert refused["message"].endswith(f"Here, it is fastroai_{tool}.")
        assert f"fastroai_{tool}" in ours


async def planned(call: Tools) -> str:
    flow: str = (await call("plan", spec=ARTICLE, inputs={"topic": "tides"}))["flow_id"]
    return flow


async def at_gate(call: Tools) -> str:
    flow = await planned(call)
    assert (await call("step_done", flow_id=flow, step_id="draft", result=DRAFT))["status"] == "await_gate"
    return flow


async def decided(call: Tools, flow: str, outcome: str) -> Flow:
    return await call(
        "gate_resolve", flow_id=flow, step_id="ship", outcome=outcome, rationale="why", resolved_by="human"
    )


# --- tools ---


@TRIED("`stratum_validate`")
async def validate() -> None:
    async with served() as call:
        await moved(call, "validate")
        assert (await call("validate", spec=ARTICLE))["valid"]


@TRIED("`stratum_plan`")
async def plan() -> None:
    async with served() as call:
        await moved(call, "plan")
        given = await call("plan", spec=ARTICLE, flow="article", inputs={"topic": "tides"})
        assert given["status"] == "execute_step"
        assert (await call("plan", spec=LOOP))["step_id"] == "find"


@TRIED("`stratum_step_done`")
async def step_done() -> None:
    async with served() as call:
        await moved(call, "step_done")
        flow = await planned(call)
        for status in ("ensure_failed", "ensure_failed", "failed"):
            bad = {"text": "Tides.", "words": 1}
            assert (await call("step_done", flow_id=flow, step_id="draft", result=bad))["status"] == status


@TRIED("`stratum_gate_resolve`")
async def gate_resolve() -> None:
    async with served() as call:
        await moved(call, "gate_resolve")
        flow = await at_gate(call)
        asked = await call("gate_resolve", flow_id=flow, step_id="ship")
        assert asked["status"] == "await_gate", "this client cannot ask its user"
        assert (await decided(call, flow, "approve"))["status"] == "complete"
        assert (await call("audit", flow_id=flow))["trace"][1]["resolved_by"] == "agent"


@TRIED("`stratum_skip_step`")
async def skip_step() -> None:
    async with served() as call:
        await moved(call, "skip_step")
        text = 'version: "0.3"\nflows: {main: {input: {}, steps: [{id: a, intent: x}, {id: b, intent: y}]}}'
        flow = (await call("plan", spec=text))["flow_id"]
        skipped = await call("skip_step", flow_id=flow, step_id="a", reason="not needed")
        assert (skipped["status"], skipped["step_id"]) == ("execute_step", "b")


@TRIED("`stratum_check_timeouts`")
async def check_timeouts() -> None:
    async with served() as call:
        await moved(call, "check_timeouts")
        assert (await call("check_timeouts", flow_id=await at_gate(call)))["status"] == "no_timeout"


@TRIED("`stratum_iteration_start`, `stratum_iteration_report`, `stratum_iteration_abort`")
async def iterations() -> None:
    async with served() as call:
        await moved(call, "iteration_start", "iteration_report", "iteration_abort")
        flow = (await call("plan", spec=LOOP))["flow_id"]
        early = await call("step_done", flow_id=flow, step_id="find", result={"items": []})
        assert early["error_type"] == "iteration_not_active"
        assert (await call("iteration_start", flow_id=flow, step_id="find"))["status"] == "iteration_started"
        ended = await call("iteration_abort", flow_id=flow, step_id="find", reason="enough")
        assert ended["status"] == "iteration_aborted"


@TRIED("`stratum_commit`, `stratum_revert`")
async def checkpoints() -> None:
    async with served() as call:
        await moved(call, "commit", "revert")
        flow = await planned(call)
        assert (await call("commit", flow_id=flow, label="first"))["checkpoints"] == ["first"]
        await call("step_done", flow_id=flow, step_id="draft", result=DRAFT)
        back = await call("revert", flow_id=flow, label="first")
        assert (back["step_id"], back["reverted_to"]) == ("draft", "first")


@TRIED("`stratum_resume`")
async def resume() -> None:
    async with served() as call:
        await moved(call, "resume")
        assert (await call("resume", flow_id=await at_gate(call)))["status"] == "await_gate"


@TRIED("`stratum_audit`")
async def audit() -> None:
    async with served() as call:
        await moved(call, "audit")
        assert (await call("audit", flow_id=await planned(call)))["status"] == "in_progress"


@TRIED("`stratum_compile_speckit`")
async def compile_speckit() -> None:
    async with served({"tasks/01.md": "# Task: Build\n"}) as call:
        await moved(call, "compile_speckit")
        made = await call("compile_speckit", tasks_dir="tasks", flow_name="work")
        assert (made["flow_name"], len(made["steps"])) == ("work", 1)
        assert load_spec(made["yaml"]).entry == "work"


@TRIED("`stratum_draft_pipeline`")
async def draft_pipeline() -> None:
    with folder_of({}) as folder:
        async with server_here(folder) as call:
            await moved(call, "draft_pipeline")
            phases = [{"name": "look", "capability": "scout", "policy": "gate"}]
            made = await call("draft_pipeline", draft={"name": "look", "phases": phases})
            assert load_spec(made["yaml"]).entry == made["flow_name"]
            assert ".stratum" not in os.listdir(folder)


@TRIED("`stratum_list_workflows`")
async def list_workflows() -> None:
    async with served({"article.stratum.yaml": ARTICLE}) as call:
        await moved(call, "list_workflows")
        (found,) = (await call("list_workflows", workflows_dir="."))["workflows"]
        assert found["name"] == "article"
        assert (await call("list_workflows", workflows_dir=".."))["error_type"] == "invalid_input"


@TRIED("`stratum_parallel_done`, steps of the types `decompose` and `parallel_dispatch`")
async def parallel_steps() -> None:
    async with served() as call:
        refused = (await call.client.call_tool("stratum_parallel_done", {})).structured_content
        assert refused is not None
        assert refused["error_type"] == "unknown_tool"
    for kind in ("decompose", "parallel_dispatch"):
        steps = f"[{{id: a, type: {kind}, intent: x}}]"
        with pytest.raises(WorkflowValidationError, match=r"unknown key flows\.main\.steps\[0\]\.type"):
            load_spec(f'version: "0.3"\nflows: {{main: {{input: {{}}, steps: {steps}}}}}')


# --- files and commands ---


@contextmanager
def project(files: Mapping[str, str] = {}) -> Iterator[None]:
    """A folder that has these files, and is the current one."""
    with folder_of(files) as folder, chdir(folder):
        yield


def typed(line: str, code: int = 0) -> Result:
    """Run `fastroai` with these words, in a project whose store is `flows.db`."""
    env = {"FASTROAI_STORE": "flows.db", "COLUMNS": "200", "NO_COLOR": "1"}
    result = CliRunner(env=env).invoke(app, line.split(), prog_name="fastroai")
    assert result.exit_code == code, result.output
    return result


def moved_to(line: str, here: str) -> None:
    """A command of Stratum is refused, and the error says which one of ours is meant."""
    assert f"Here, it is: fastroai {here}" in typed(line, 2).output


def printed(line: str) -> Any:
    return json.loads(typed(line).stdout)


def flow_at_gate() -> str:
    """A flow in the store of the project that waits at a gate."""

    async def driven() -> str:
        async with server_here(Path()) as call:
            return await at_gate(call)

    return asyncio.run(driven())


@TRIED("`~/.stratum/flows/ID.json`")
def place_of_flows() -> None:
    place = Path(user_store())
    assert place.name == "workflows.db"
    assert place.parent == Path(platformdirs.user_data_dir("fastroai", appauthor=False))
    with project():
        assert flow_at_gate() in typed("flow list").output, "FASTROAI_STORE names the store"


@TRIED("`stratum-mcp`")
def mcp_server() -> None:
    assert "Serve workflows to coding agents over MCP" in typed("mcp --help").output


@TRIED("`stratum-mcp install`, `setup`, `uninstall --keep-skills`")
def install() -> None:
    moved_to("install", "mcp install")
    moved_to("setup", "mcp install")
    moved_to("uninstall --keep-skills", "mcp uninstall")
    with project():
        typed("mcp install --client claude-code")
        assert Path(".mcp.json").is_file()
        typed("mcp uninstall --keep-skills")
        assert not Path(".mcp.json").exists()
        assert list(Path(".claude/skills").iterdir())


@TRIED("skills such as `/stratum-review`")
def skills() -> None:
    with project():
        typed("mcp install --client claude-code --part skills")
        skills = {file.name for file in Path(".claude/skills").iterdir()}
    words = "onboard plan feature review debug refactor migrate test learn build speckit"
    assert skills == {f"fastroai-{word}" for word in words.split()}


@TRIED("`stratum-mcp validate FILE`")
def validate_file() -> None:
    moved_to("validate a.stratum.yaml", "workflow validate")
    with project({"a.stratum.yaml": ARTICLE}):
        typed("workflow validate a.stratum.yaml")


@TRIED("`stratum-mcp compile FOLDER --output FILE --flow NAME`")
def compile_tasks() -> None:
    moved_to("compile tasks", "workflow compile")
    with project({"tasks/01.md": "# Task: Build\n"}):
        typed("workflow compile tasks --output work.stratum.yaml --flow work")
        assert load_spec(Path("work.stratum.yaml")).entry == "work"


@TRIED("`stratum-mcp query flows`")
def query_flows() -> None:
    moved_to("query flows", "flow list --json")
    with project():
        flow = flow_at_gate()
        assert [one["flow_id"] for one in printed("flow list --json")] == [flow]


@TRIED("`stratum-mcp query flow ID`")
def query_flow_id() -> None:
    moved_to("query flow 5f3c", "flow show FLOW --json")
    with project():
        flow = flow_at_gate()
        assert printed(f"flow show {flow} --json")["next"]["status"] == "await_gate"


@TRIED("`stratum-mcp query gates`")
def query_gates() -> None:
    moved_to("query gates", "gate list --json")
    with project():
        flow_at_gate()
        (gate,) = printed("gate list --json")
        assert gate["node"] == "ship"


@TRIED("`stratum-mcp gate approve FLOW STEP --note … --resolved-by …`, `reject`, `revise`")
def gates() -> None:
    with project():
        for outcome in ("approve", "reject", "revise"):
            flow = flow_at_gate()
            typed(f"gate {outcome} {flow} ship --note good --resolved-by human")
            if outcome != "revise":
                typed(f"gate {outcome} {flow} ship", 4)
        typed(f"gate approve {flow_at_gate()}")


@TRIED("`stratum-mcp help`")
def help_as_a_command() -> None:
    assert typed("help").output == typed("--help").output


# --- specs and answers ---


@TRIED("`workflow.name` in `a` to `z`, digits and `-`, a letter first")
def workflow_name() -> None:
    text = 'version: "0.3"\nworkflow: {{name: "{0}", description: d, input: {{}}}}\nflows:\n  main: {1}'
    flow = "{input: {}, steps: [{id: a, intent: x}]}"
    for name in ("code-review", "a", "a1-b-2", "Code_Review", "_a", "a" * 200):
        info = load_spec(text.format(name, flow)).workflow
        assert info is not None
        assert info.name == name
    for name in ("1a", "-a", "code review", "code.review", "é", "", "a" * 201):
        with pytest.raises(WorkflowValidationError, match="line 2"):
            load_spec(text.format(name, flow))


@TRIED("`accumulated` and `accumulated_count` after a loop")
async def accumulated() -> None:
    async with served() as call:
        flow = (await call("plan", spec=LOOP))["flow_id"]
        await call("iteration_start", flow_id=flow, step_id="find")
        for items in (["a", "b"], ["b"]):
            at = await call("iteration_report", flow_id=flow, step_id="find", result={"items": items})
        assert at["status"] == "iteration_exit"
        mend = await call("step_done", flow_id=flow, step_id="find", result={"items": []})
        assert mend["inputs"] == {"all": ["a", "b"], "count": 2}


@TRIED("`retries` of versions 0.1 and 0.2: attempts in all")
async def retries() -> None:
    text = 'version: "{0}"\nflows: {{main: {{input: {{}}, steps: [{{id: a, intent: x, retries: 2}}]}}}}'
    async with served() as call:
        for version, attempts in (("0.2", 2), ("0.3", 3)):
            assert (await call("plan", spec=text.format(version)))["max_attempts"] == attempts


@TRIED("`max_rounds`")
async def max_rounds() -> None:
    async with served() as call:
        flow = await at_gate(call)
        for _round in range(3):
            assert (await decided(call, flow, "revise"))["step_id"] == "draft"
            await call("step_done", flow_id=flow, step_id="draft", result=DRAFT)
        assert (await decided(call, flow, "revise"))["error_type"] == "no_revisions_left"


@TRIED("`ir_parse_error`, `ir_validation_error`, `ir_semantic_error`")
async def errors_of_specs() -> None:
    async with served() as call:
        for spec in ("{", 'version: "9"', ARTICLE.replace("function: write", "function: wirte")):
            refused = await call("plan", spec=spec)
            assert refused["error_type"] == "invalid_spec"
            assert all(problem["line"] and problem["column"] for problem in refused["problems"])


@TRIED("`wrong_step`, `flow_already_complete`")
async def errors_of_steps() -> None:
    async with served() as call:
        flow = await at_gate(call)
        again = await call("step_done", flow_id=flow, step_id="draft", result=DRAFT)
        assert again["error_type"] == "step_not_due"
        await decided(call, flow, "approve")
        late = await call("step_done", flow_id=flow, step_id="draft", result=DRAFT)
        assert late["error_type"] == "flow_ended"


# --- audits ---


async def audited(outcome: str = "approve") -> Flow:
    """The audit of a flow whose gate was decided."""
    async with served() as call:
        flow = await at_gate(call)
        await decided(call, flow, outcome)
        return await call("audit", flow_id=flow)


@TRIED("`flow_id`, `status`, `trace`, `total_duration_ms`")
async def keys_that_are_the_same() -> None:
    audit = await audited()
    assert audit["status"] == "complete"
    assert {"flow_id", "trace", "total_duration_ms"} <= audit.keys()
    async with served() as call:
        flow = await planned(call)
        for _attempt in range(3):
            await call("step_done", flow_id=flow, step_id="draft", result={"text": "", "words": 0})
        assert (await call("audit", flow_id=flow))["status"] == "failed"


@TRIED("`flow_name`")
async def flow_name() -> None:
    audit = await audited()
    assert audit["flow"] == "article"
    assert "flow_name" not in audit


@TRIED("`steps_completed`, `total_steps`")
async def numbers_of_steps() -> None:
    audit = await audited("revise")
    assert (audit["steps_completed"], audit["total_steps"]) == (0, 2)
    audit = await audited()
    assert (audit["steps_completed"], audit["total_steps"]) == (2, 2)


@TRIED("`round`, `rounds`, `iterations`, `archived_iterations`, `child_audits`")
async def rounds() -> None:
    audit = await audited("revise")
    assert audit["round"] == 1
    assert [one["round"] for one in audit["rounds"]] == [0]
    assert (audit["iterations"], audit["archived_iterations"], audit["child_audits"]) == ({}, [{}], {})


@TRIED("`type`, `step_id`, `attempts`, `duration_ms`, `step_mode`, `agent`, `child_flow_id` of a record")
async def keys_of_records() -> None:
    spec = """
version: "0.3"
flows:
  inner: {input: {}, steps: [{id: a, intent: x, agent: claude}]}
  main: {input: {}, steps: [{id: in, flow: inner}]}
"""
    async with served() as call:
        flow = await call("plan", spec=spec, flow="main")
        child = flow["child_step"]["flow_id"]
        await call("step_done", flow_id=child, step_id="a", result={})
        (outer,) = (await call("audit", flow_id=flow["child_step"]["flow_id"].partition("/")[0]))["trace"]
        (inner,) = (await call("audit", flow_id=child))["trace"]
    assert (outer["type"], outer["step_id"], outer["step_mode"]) == ("step", "in", "flow")
    assert outer["child_flow_id"] == child
    assert (inner["agent"], inner["attempts"], inner["step_mode"]) == ("claude", 1, "inline")
    assert inner["duration_ms"] >= 0


@TRIED("`function_name` of a record")
async def function_name() -> None:
    assert [record["function"] for record in (await audited())["trace"]] == ["write", "ship"]


@TRIED("`outcome`, `rationale`, `resolved_by`, `skip_reason` of a record")
async def decisions_and_skips() -> None:
    record = (await audited())["trace"][1]
    assert (record["outcome"], record["rationale"], record["resolved_by"]) == ("approve", "why", "agent")
    async with served() as call:
        flow = await planned(call)
        await call("skip_step", flow_id=flow, step_id="draft", reason="not needed")
        skips = [one for one in (await call("audit", flow_id=flow))["trace"] if one["type"] == "skip"]
    assert [one["skip_reason"] for one in skips] == ["not needed"]


@TRIED("`effective_policy`, `resolved_outcome` of a record")
async def policies() -> None:
    async with served() as call:
        spec = ARTICLE.replace("on_approve: null", "policy: flag\n        on_approve: null")
        flow = (await call("plan", spec=spec, inputs={"topic": "tides"}))["flow_id"]
        await call("step_done", flow_id=flow, step_id="draft", result=DRAFT)
        record = (await call("audit", flow_id=flow))["trace"][1]
    assert (record["type"], record["policy"], record["outcome"]) == ("policy", "flag", "approve")


@TRIED("`round`, `round_start_step_id` of a record")
async def rounds_of_records() -> None:
    audit = await audited("revise")
    ((draft, ship),) = (one["steps"] for one in audit["rounds"])
    assert (draft["step_id"], ship["outcome"]) == ("draft", "revise")
    assert not {"round", "round_start_step_id"} & draft.keys()


@TRIED("`iteration`, `outcome`, `exit_criterion_met` of a report")
async def keys_of_reports() -> None:
    async with served() as call:
        flow = (await call("plan", spec=LOOP))["flow_id"]
        await call("iteration_start", flow_id=flow, step_id="find")
        for items in (["a"], []):
            await call("iteration_report", flow_id=flow, step_id="find", result={"items": items})
        first, last = (await call("audit", flow_id=flow))["iterations"]["find"]
    assert (first["iteration"], first["outcome"]) == (1, "continue")
    assert (last["iteration"], last["outcome"], last["exit_criterion_met"]) == (2, "exit_success", True)
    assert not {"round", "timestamp", "result"} & last.keys()
