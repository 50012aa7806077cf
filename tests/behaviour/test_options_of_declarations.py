"""Every option of everything that is declared has a test that shows what it does, and none is forgotten."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from fastroai import (
    AgentNode,
    BasePipeline,
    Edge,
    FastroAgent,
    Graph,
    Metered,
    Node,
    Pipeline,
    PipelineConfig,
    SplitPipeline,
    StepConfig,
    StepContext,
    compute,
    flow,
    infer,
    refine,
    step,
)
from fastroai.agent import agent as agents
from fastroai.agent.own_agent import OwnAgent
from fastroai.errors import (
    ConfigurationError,
    ContractViolation,
    PipelineValidationError,
    StepExecutionError,
)
from fastroai.functions import Flow
from fastroai.functions.errors import CompileError
from fastroai.functions.function import Function
from fastroai.graphs import GraphConversation
from fastroai.graphs.errors import GraphValidationError
from fastroai.store import (
    MemoryRunStore,
    OffloadingRunStore,
    PostgresRunStore,
    RedisRunStore,
    SQLiteRunStore,
)
from fastroai.workflows import BoundWorkflow, Workflow

ROOT: Final = Path(__file__).parents[2]

DECLARATIONS: Final[dict[str, Callable[..., Any]]] = {
    "infer": infer,
    "compute": compute,
    "refine": refine,
    "flow": flow,
    "step": step,
    "Pipeline": Pipeline,
    "Pipeline.as_step": Pipeline.as_step,
    "Graph": Graph,
    "Graph.as_step": Graph.as_step,
    "Graph.from_yaml": Graph.from_yaml,
    "Node": Node,
    "Edge": Edge,
    "AgentNode": AgentNode,
    "GraphConversation": GraphConversation,
    "BasePipeline": BasePipeline,
    "BasePipeline.register_pipeline": BasePipeline.register_pipeline,
    "BasePipeline.as_step": BasePipeline.as_step,
    "SplitPipeline": SplitPipeline,
    "SplitPipeline.add_variant": SplitPipeline.add_variant,
    "Workflow": Workflow,
    "Workflow.load": Workflow.load,
    "Workflow.bind": Workflow.bind,
    "Workflow.run": Workflow.run,
    "Workflow.resume": Workflow.resume,
    "FastroAgent": FastroAgent,
    "FastroAgent.as_step": FastroAgent.as_step,
    "Flow.as_step": Flow.as_step,
    "Function.as_step": Function.as_step,
    "StepContext.map": StepContext.map,
    "MemoryRunStore": MemoryRunStore,
    "SQLiteRunStore": SQLiteRunStore,
    "RedisRunStore": RedisRunStore,
    "PostgresRunStore": PostgresRunStore,
    "OffloadingRunStore": OffloadingRunStore,
}

SUBJECTS: Final = (
    frozenset(["_bare", "function", "inputs", "key", "name", "nodes", "pipeline", "prompt", "run_id", "self"])
    | frozenset(["agent_or_step", "dsn", "items", "path", "payloads", "source", "spec", "step", "steps"])
    | frozenset(["store", "target", "url"])
)
"""Parameters that are what a declaration is about, rather than options of it."""

OF_RUNS: Final = frozenset(["deps", "options"])
"""Parameters of `Workflow.run` that `test_options.py` walks."""

SETTINGS: Final = frozenset(one for one in inspect.signature(StepConfig).parameters)
"""Options of `@step` and `config` that `test_settings.py` walks."""

SHOWN: Final[dict[str, dict[str, str]]] = {
    "tests/behaviour/functions/test_infer.py": {
        "test_a_call_gives_the_contract_and_costs_what_the_request_does": "infer.intent infer.context",
        "test_the_model_is_told_exactly_what_was_wrong_in_the_same_conversation": "infer.ensure",
        "test_what_given_refuses_sends_nothing": "infer.given",
        "test_the_model_is_that_of_the_declaration_else_the_configured_one": "infer.model",
        "test_the_temperature_and_the_name_are_those_of_the_declaration": "infer.temperature",
        "test_a_budget_stops_before_the_attempt_that_would_cross_it": "infer.budget",
        "test_retries_of_zero_mean_one_attempt": "infer.retries",
        "test_an_agent_can_be_brought_with_its_own_instructions": "infer.agent",
        "test_tools_are_offered_and_called_inside_of_one_attempt": "infer.tools",
    },
    "tests/behaviour/functions/test_caches.py": {
        "test_a_global_cache_outlives_the_process_and_costs_nothing": "infer.cache",
    },
    "tests/behaviour/functions/test_quorum_and_samples.py": {
        "test_one_sample_is_taken_in_production_and_several_in_test_mode": "infer.stable",
        "test_members_answer_side_by_side_and_the_agreed_result_has_the_best_confidence": (
            "infer.quorum infer.agree_on"
        ),
        "test_too_few_that_agree_is_a_consensus_failure_with_all_outputs": "infer.threshold",
    },
    "tests/behaviour/functions/test_refine.py": {
        "test_the_model_gets_its_last_answer_as_data_and_the_feedback": "refine.until refine.feedback",
        "test_no_convergence_is_an_error_with_the_history": "refine.max_iterations",
    },
    "tests/behaviour/functions/test_as_steps.py": {
        "test_a_function_is_a_step_and_takes_inputs_and_outputs_by_name": "Pipeline.dependencies",
        "test_given_and_ensure_are_checked_around_a_body": "compute.given compute.ensure",
        "test_what_is_called_inside_of_a_body_counts_under_its_budget": "compute.budget",
    },
    "tests/behaviour/functions/test_flows.py": {
        "test_the_budget_of_a_flow_bounds_all_that_it_calls_and_those_inside_come_on_top": "flow.budget",
    },
    "tests/behaviour/test_settings.py": {
        "test_every_setting_of_every_kind_of_run_makes_a_difference_or_is_refused": (
            "flow.config Pipeline.config Pipeline.step_configs Graph.config BasePipeline.config "
            "SplitPipeline.config Workflow.bind.config Workflow.run.config Workflow.resume.config "
            "Flow.as_step.config Function.as_step.config"
        ),
    },
    "tests/unit/steps/test_map.py": {
        "test_no_more_than_concurrency_run_at_once": "StepContext.map.concurrency",
        "test_with_continue_what_finished_is_kept_and_failures_are_in_their_places": (
            "StepContext.map.on_error"
        ),
    },
    "tests/unit/store/test_run_store_faults.py": {
        "test_fsync_waits_for_the_disk_at_every_write": "SQLiteRunStore.fsync",
        "test_a_file_that_another_process_holds_is_an_unavailable_store": "SQLiteRunStore.timeout",
    },
    "tests/unit/store/test_run_store_places.py": {
        "test_stores_under_different_names_know_nothing_of_each_other": (
            "RedisRunStore.prefix PostgresRunStore.schema"
        ),
    },
    "tests/unit/store/test_options_of_stores.py": {
        "test_a_server_that_never_answers_is_waited_for_as_long_as_the_timeout_says": (
            "RedisRunStore.timeout PostgresRunStore.timeout"
        ),
        "test_values_above_the_limit_are_moved": "OffloadingRunStore.above",
        "test_the_time_of_a_store_is_that_of_its_clock": "MemoryRunStore.clock SQLiteRunStore.clock",
        "test_the_largest_value_of_a_store_is_the_one_that_it_is_given": (
            "MemoryRunStore.largest_value SQLiteRunStore.largest_value RedisRunStore.largest_value "
            "PostgresRunStore.largest_value"
        ),
    },
    "tests/unit/steps/test_contracts.py": {
        "test_what_a_step_requires_is_asked_before_it_runs_with_validated_inputs": (
            "step.require step.accepts"
        ),
        "test_a_contract_goes_before_the_annotation_and_any_lifts_it": "step.returns",
        "test_what_a_step_ensures_is_asked_of_the_validated_output": "step.ensure",
    },
    "tests/unit/pipelines/test_contracts.py": {
        "test_the_inputs_of_a_run_are_as_the_pipeline_accepts_them": "Pipeline.accepts",
        "test_a_contract_of_the_pipeline_goes_before_that_of_the_step_field_by_field": "Pipeline.contracts",
    },
    "tests/unit/pipelines/test_nesting.py": {
        "test_it_may_have_a_config_like_any_step": (
            "Pipeline.as_step.config Graph.as_step.config BasePipeline.as_step.config"
        ),
    },
    "tests/unit/pipelines/test_router.py": {
        "test_fallback_on_is_made_of_exception_types_and_functions": (
            "BasePipeline.fallback_on SplitPipeline.fallback_on BasePipeline.register_pipeline.fallback "
            "SplitPipeline.add_variant.fallback"
        ),
        "test_weights_may_be_tiny_or_huge": "SplitPipeline.add_variant.weight",
    },
    "tests/behaviour/accounting/test_budget_stops.py": {
        "test_steps_side_by_side_wait_for_each_other_rather_than_pass_their_budget": "Pipeline.output_step",
    },
    "tests/unit/graphs/test_validation.py": {
        "test_a_plan_has_what_the_machine_needs": "Graph.edges Graph.terminals",
        "test_the_entry_is_said_where_it_could_be_several": "Graph.entry",
        "test_conditions_go_with_conditional_edges": "Edge.when Edge.condition",
        "test_a_decision_has_one_fallback_and_a_decider": "Edge.fallback Graph.decider",
        "test_a_condition_names_fields_of_the_output_and_what_is_in_memory": ("Graph.accepts Node.writes"),
        "test_an_answer_is_a_type": "Node.answer_type",
    },
    "tests/behaviour/graphs/test_conversations.py": {
        "test_isolated_calls_hear_goal_and_focus_and_nothing_of_each_other": (
            "Graph.goal Graph.conversation GraphConversation.mode Node.focus"
        ),
        "test_above_the_limit_tool_results_of_older_phases_are_dropped": (
            "GraphConversation.compact_above GraphConversation.keep_phases"
        ),
        "test_the_summarizer_reads_the_older_phases_as_text": "GraphConversation.summarizer",
    },
    "tests/behaviour/durability/test_asking_people.py": {
        "test_a_pause_node_is_answered_through_the_inbox": "Graph.pause_nodes",
    },
    "tests/behaviour/graphs/test_graph_durability.py": {
        "test_max_steps_may_be_raised_when_a_run_has_reached_it": "Graph.max_steps",
        "test_limits_of_visits_may_change_although_nodes_were_skipped_for_them": "Node.max_visits",
        "test_max_concurrency_may_change_while_branches_go_on": "Graph.max_concurrency",
    },
    "tests/behaviour/graphs/test_time_of_branches.py": {
        "test_attempts_are_work_all_together": "Graph.branch_timeout",
        "test_a_branch_works_as_long_as_one_node_in_its_forks_does": "Graph.on_branch_failure",
    },
    "tests/behaviour/graphs/test_reducers.py": {
        "test_what_the_last_branch_overwrites_is_in_the_log": "Graph.on_conflict",
        "test_a_loop_collects_what_is_written_in_each_turn": "Graph.reducers",
    },
    "tests/behaviour/graphs/test_graph_budgets.py": {
        "test_each_kind_of_budget_ends_the_run": "Graph.budget",
    },
    "tests/behaviour/graphs/test_conversations_of_graphs.py": {
        "test_an_agent_node_without_a_prompt_is_given_what_the_node_reads": "Node.reads",
    },
    "tests/unit/graphs/test_agent_node.py": {
        "test_it_goes_on_in_the_same_conversation_until_the_judge_accepts": "AgentNode.judge",
        "test_without_a_judge_the_first_output_is_good": "AgentNode.config AgentNode.agent",
    },
    "tests/behaviour/graphs/test_values_in_graphs.py": {
        "test_a_judge_that_is_not_satisfied_is_not_asked_for_more_by_the_graph": "AgentNode.max_iterations",
    },
    "tests/behaviour/workflows/test_native_runs.py": {
        "test_a_spec_that_is_none_is_refused_with_every_problem": "Workflow.flow Workflow.load.flow",
        "test_everything_that_is_missing_is_told_before_anything_runs": (
            "Workflow.bind.functions Workflow.bind.agents Workflow.bind.model Workflow.run.functions "
            "Workflow.run.agents Workflow.run.model Workflow.resume.functions Workflow.resume.agents "
            "Workflow.resume.model"
        ),
        "test_checks_see_the_files_of_the_workspace": (
            "Workflow.bind.workspace Workflow.run.workspace Workflow.resume.workspace"
        ),
    },
    "tests/behaviour/agent/test_construction.py": {
        "test_a_reference_means_its_provider": "FastroAgent.model",
        "test_a_config_says_what_the_constructor_does_not": "FastroAgent.config",
        "test_what_is_given_is_sent": (
            "FastroAgent.temperature FastroAgent.max_tokens FastroAgent.model_settings"
        ),
        "test_instructions_and_system_prompt_are_passed_through_as_what_they_are": (
            "FastroAgent.instructions FastroAgent.system_prompt"
        ),
        "test_request_retries_timeout_and_budget_come_from_the_config_too": (
            "FastroAgent.request_retries FastroAgent.timeout FastroAgent.budget FastroAgent.cost_budget"
        ),
        "test_prices_come_from_the_config_too": "FastroAgent.cost_calculator",
        "test_an_agent_that_is_brought_along_takes_what_is_fastroais": "FastroAgent.agent",
    },
    "tests/behaviour/test_limited_providers.py": {
        "test_refusals_and_rate_limits_open_no_circuit_and_keep_their_place_in_the_minute": (
            "FastroAgent.provider_limits"
        ),
        "test_a_provider_that_is_ill_opens_the_circuit": "FastroAgent.circuit_breaker",
    },
    "tests/behaviour/agent/test_hooks.py": {
        "test_a_skipped_call_fails_at_once_and_sends_nothing": "FastroAgent.on_before_dispatch",
        "test_a_failure_of_the_hook_after_is_logged_and_changes_nothing": "FastroAgent.on_after_dispatch",
    },
    "tests/unit/agent/test_step.py": {
        "test_a_step_has_the_config_that_it_is_given": "FastroAgent.as_step.config",
    },
    "tests/behaviour/test_options_of_declarations.py": {
        "test_what_pydantic_ai_builds_an_agent_from_reaches_it": (
            "FastroAgent.output_type FastroAgent.deps_type FastroAgent.description FastroAgent.retries "
            "FastroAgent.validation_context FastroAgent.tools FastroAgent.toolsets FastroAgent.end_strategy "
            "FastroAgent.defer_model_check FastroAgent.metadata FastroAgent.tool_timeout "
            "FastroAgent.max_concurrency FastroAgent.capabilities"
        ),
        "test_another_version_is_another_definition": (
            "Pipeline.version Graph.version BasePipeline.version SplitPipeline.version"
        ),
        "test_what_a_document_cannot_say_is_given_beside_it": (
            "Graph.from_yaml.config Graph.from_yaml.accepts Graph.from_yaml.version Graph.from_yaml.decider"
        ),
    },
}
"""Tests by file, each with the options that it shows."""


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("name", DECLARATIONS)
def test_every_option_of_a_declaration_has_a_test(name: str) -> None:
    left_out = SUBJECTS | (OF_RUNS if name.startswith("Workflow.") else frozenset())
    left_out |= SETTINGS if name == "step" else frozenset()
    options = {
        f"{name}.{one}" for one in inspect.signature(DECLARATIONS[name]).parameters if one not in left_out
    }
    shown = {option for tests in SHOWN.values() for options in tests.values() for option in options.split()}
    assert options - shown == set()
    assert {one for one in shown if one.rpartition(".")[0] == name} - options == set()


@pytest.mark.parametrize("path", SHOWN)
def test_the_tests_that_show_options_exist(path: str) -> None:
    assert SHOWN[path].keys() <= functions_of(path)


def test_what_pydantic_ai_builds_an_agent_from_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    class Building(OwnAgent[Any, Any]):
        def __init__(self, *args: Any, **options: Any) -> None:
            given.update(options)
            super().__init__(*args, **options)

    monkeypatch.setattr(agents, "OwnAgent", Building)
    options: dict[str, Any] = {
        "output_type": int,
        "deps_type": str,
        "description": "Counts.",
        "retries": 3,
        "validation_context": {"unit": "m"},
        "tools": [len],
        "toolsets": [],
        "defer_model_check": True,
        "end_strategy": "exhaustive",
        "metadata": {"team": "a"},
        "tool_timeout": 2.0,
        "max_concurrency": 3,
    }
    mine = Metered()
    FastroAgent[Any, Any]("openai:gpt-5-mini", capabilities=[mine], **options)
    assert {name: given[name] for name in options} == options
    assert given["capabilities"][-1] is mine


@pytest.mark.parametrize("kind", ["pipeline", "graph", "router"])
def test_another_version_is_another_definition(kind: str) -> None:
    made: dict[str, Callable[[str], Any]] = {
        "pipeline": lambda version: Pipeline[Any, Any, Any]("p", {"works": works}, version=version),
        "graph": lambda version: Graph[Any, Any, Any]("g", nodes={"works": works}, version=version),
        "router": lambda version: SplitPipeline[Any, Any, Any]("r", key=lambda i, d: "a", version=version),
    }
    first, second = (made[kind](version)._keeper(MemoryRunStore()).definition for version in ("1", "2"))
    assert first != second


def test_what_a_document_cannot_say_is_given_beside_it() -> None:
    decider, config = FastroAgent("test"), PipelineConfig(total_timeout=5)
    graph = Graph[Any, Any, Any].from_yaml(
        YAML, nodes={"a": works, "b": works}, decider=decider, config=config, accepts={"n": int}, version="7"
    )
    assert graph.config is config
    assert graph.version == "7"
    with pytest.raises(GraphValidationError, match="no decider"):
        Graph[Any, Any, Any].from_yaml(YAML, nodes={"a": works, "b": works})
    with pytest.raises(ContractViolation, match="n: Input should be"):
        graph.run_sync({"n": "many"})


YAML: Final = """\
name: g
nodes: [a, b]
edges: [{source: a, target: b, when: llm_decide, fallback: true}]
"""


# --- what would do nothing is refused ---


@step
async def works(ctx: StepContext[Any]) -> str:
    return "done"


async def body(number: int) -> int:
    return number


TIMED: Final = StepConfig(timeout=5)


def inner() -> Pipeline[Any, Any, Any]:
    return Pipeline("inner", {"works": works})


def router() -> SplitPipeline[Any, Any, Any]:
    split = SplitPipeline[Any, Any, Any]("split", key=lambda inputs, deps: "a")
    split.add_variant("only", inner(), weight=1)
    return split


@pytest.mark.parametrize(
    "nested",
    [inner(), router(), Graph[Any, Any, Any]("g", nodes={"works": works}), flow(body)],
    ids=["pipeline", "router", "graph", "flow"],
)
def test_the_step_of_a_whole_run_has_no_timeout_of_one_attempt(nested: Any) -> None:
    with pytest.raises(ConfigurationError, match="total_timeout"):
        nested.as_step(config=TIMED)
    with pytest.raises(
        PipelineValidationError, match=r"step_configs\['inner'\] sets timeout=5.*total_timeout"
    ):
        Pipeline[Any, Any, Any]("p", {"inner": nested.as_step()}, step_configs={"inner": TIMED})
    nested.as_step(config=StepConfig(timeout=None, total_timeout=5))


def test_the_timeout_of_a_router_stays_that_of_its_route() -> None:
    split = SplitPipeline[Any, Any, Any]("r", key=lambda inputs, deps: "a", config=PipelineConfig(timeout=5))
    assert split.as_step().config.timeout != 5
    assert split.config.timeout == 5


def test_a_decider_without_decisions_is_refused() -> None:
    with pytest.raises(GraphValidationError, match="llm_decide"):
        Graph[Any, Any, Any]("g", nodes={"works": works}, decider=FastroAgent("test"))


def test_iterations_without_a_judge_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="judge"):
        AgentNode(FastroAgent("test"), "Hello", max_iterations=7)


@pytest.mark.parametrize(
    "declare",
    [
        lambda config: SplitPipeline[Any, Any, Any]("r", key=lambda inputs, deps: "a", config=config),
        lambda config: flow(config=config)(body),
        lambda config: Pipeline[Any, Any, Any]("p", {"works": works}, config=config),
        lambda config: Graph[Any, Any, Any]("g", nodes={"works": works}, config=config),
        lambda config: bound(config=config),
    ],
    ids=["router", "flow", "pipeline", "graph", "workflow"],
)
@pytest.mark.parametrize("config", [StepConfig(), {"timeout": 5}], ids=["a StepConfig", "a dict"])
def test_the_config_of_a_run_is_a_pipeline_config(declare: Callable[[Any], object], config: Any) -> None:
    with pytest.raises(ConfigurationError, match="expected a PipelineConfig"):
        declare(config)


def test_an_empty_name_of_a_router_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="name"):
        SplitPipeline[Any, Any, Any]("", key=lambda inputs, deps: "a")


SPEC: Final = """\
version: "0.3"
contracts: {Out: {x: {type: string}}}
functions: {count: {mode: compute, intent: Count, output: Out}}
flows: {main: {steps: [{id: count, function: count}]}}
"""


def bound(**options: Any) -> BoundWorkflow:
    return Workflow.load(SPEC).bind(**{"functions": {"count": lambda: {"x": "1"}}, **options})


@pytest.mark.parametrize("wrong", [str, int, "count", 5], ids=str)
def test_what_a_workflow_calls_has_parameters_that_can_be_read(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"a function as functions\['count'\].*parameters"):
        bound(functions={"count": wrong})


def test_an_agent_for_what_a_callable_computes_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="agents= without 'count'"):
        bound(agents={"count": FastroAgent("test")})


def test_options_of_a_quorum_without_one_are_refused() -> None:
    with pytest.raises(CompileError, match="quorum="):

        @infer(intent="Say something", threshold=2)
        async def say(text: str) -> str:
            raise NotImplementedError


class Reversing:
    """A codec."""

    def encode(self, payload: bytes) -> bytes:
        return payload[::-1]

    decode = encode


SEALED: Final = PipelineConfig(codec=Reversing())


def sealed_router() -> SplitPipeline[Any, Any, Any]:
    split = SplitPipeline[Any, Any, Any]("inner", key=lambda inputs, deps: "a", config=SEALED)
    split.add_variant("only", inner(), weight=1)
    return split


@pytest.mark.parametrize(
    "nested",
    [
        Pipeline[Any, Any, Any]("inner", {"works": works}, config=SEALED),
        Graph[Any, Any, Any]("inner", nodes={"works": works}, config=SEALED),
        sealed_router(),
    ],
    ids=["pipeline", "graph", "router"],
)
async def test_the_codec_of_a_nested_run_is_not_left_out_on_record(nested: Any) -> None:
    plain = Pipeline[Any, Any, Any]("around", {"nested": nested.as_step()})
    assert (await plain.execute()).output == "done"  # nothing is on record
    with pytest.raises(StepExecutionError) as caught:
        await plain.execute(store=MemoryRunStore())
    assert "values of 'inner'" in str(caught.value.original_error)
    both = Pipeline[Any, Any, Any]("around", {"nested": nested.as_step()}, config=SEALED)
    assert (await both.execute(store=MemoryRunStore())).output == "done"
