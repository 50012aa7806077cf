"""Every problem of a pipeline, found before it runs."""

import itertools
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from support.agents import paid_agent

from fastroai.errors import ConfigurationError, PipelineValidationError
from fastroai.pipelines import BaseStep, Pipeline, PipelineConfig, StepConfig, StepContext, step


@step
async def nothing(ctx: StepContext) -> None: ...


class Nothing(BaseStep):
    async def execute(self, context: StepContext) -> None: ...


class Router:
    """Something that could become a step."""

    def as_step(self) -> Nothing:
        return Nothing()


def undecorated(ctx: StepContext) -> None: ...


STEPS: Any = {"read": nothing, "classify": nothing, "reply": nothing}


def problems_of(
    steps: Any = STEPS, dependencies: Any = None, output_step: Any = "reply", **options: Any
) -> tuple[str, ...]:
    with pytest.raises(PipelineValidationError) as caught:
        Pipeline("support", steps, dependencies, output_step, **options)
    assert caught.value.pipeline == "support"
    return caught.value.problems


def test_a_pipeline_has_at_least_one_step() -> None:
    assert problems_of({}, output_step=None) == ("it has no steps; give at least one: steps={'name': step}",)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (undecorated, "step 'x' is not a step but a function; decorate the function with @step"),
        (Nothing, "step 'x' is not a step but the class Nothing; give an instance: Nothing()"),
        (paid_agent(), "step 'x' is not a step but a FastroAgent; use its .as_step(...)"),
        (
            Pipeline("inner", {"a": nothing}),
            "step 'x' is not a step but a Pipeline; use its .as_step(...)",
        ),
        (Router(), "step 'x' is not a step but a Router; use its .as_step(...)"),
        (
            "text",
            "step 'x' is not a step but a str; give a BaseStep, a @step function or agent.as_step(...)",
        ),
        (
            Agent(TestModel()),
            "step 'x' is not a step but a Agent; give a BaseStep, a @step function or agent.as_step(...)",
        ),
    ],
    ids=["function", "class", "agent", "pipeline", "as_step", "text", "plain agent"],
)
def test_what_is_not_a_step_is_named_with_what_to_do(wrong: Any, problem: str) -> None:
    assert problems_of({"x": wrong}, output_step="x") == (problem,)


@pytest.mark.parametrize("step_id", ["", 5, None])
def test_step_ids_are_names(step_id: Any) -> None:
    [problem] = problems_of({step_id: nothing}, output_step=None)
    assert problem == f"step id {step_id!r} is not a name; ids are non-empty strings"


def test_a_misspelt_dependency_is_named_with_the_nearest() -> None:
    assert problems_of(dependencies={"reply": ["clasify"]}) == (
        "step 'reply' depends on 'clasify', which is not a step. Did you mean 'classify'?",
    )


def test_dependencies_of_a_step_that_is_not_there_are_named_with_the_nearest() -> None:
    assert problems_of(dependencies={"replies": ["classify"]}) == (
        "dependencies name 'replies', which is not a step. Did you mean 'reply'?",
    )


@pytest.mark.parametrize("befores", ["classify", 5, {"classify": 1}])
def test_dependencies_are_lists_and_not_a_bare_name(befores: Any) -> None:
    [problem] = problems_of(dependencies={"reply": befores})
    assert problem == f"dependencies of 'reply' are {befores!r}; expected a list of step ids"


@pytest.mark.parametrize("befores", [["classify"], ("classify",), {"classify"}, frozenset({"classify"})])
def test_lists_tuples_and_sets_of_names_will_do(befores: Any) -> None:
    pipeline: Pipeline[Any, Any] = Pipeline("p", STEPS, {"reply": befores}, output_step="reply")
    assert pipeline.dependencies == {"read": (), "classify": (), "reply": ("classify",)}


def test_sets_of_names_have_the_same_order_in_every_process() -> None:
    names = [f"step {number}" for number in range(10, 30)]
    steps: Any = {**dict.fromkeys(names, nothing), "last": nothing}
    assert Pipeline("p", steps, {"last": {*names}}).dependencies["last"] == tuple(names)


def test_a_dependency_said_twice_is_one() -> None:
    pipeline: Pipeline[Any, Any] = Pipeline("p", STEPS, {"reply": ["read", "read"]}, output_step="reply")
    assert pipeline.dependencies["reply"] == ("read",)


@pytest.mark.parametrize("option", ["dependencies", "step_configs"])
def test_dependencies_and_step_configs_are_mappings(option: str) -> None:
    assert problems_of(**{option: ["read"]}) == (
        f"{option} is a list; expected a mapping with step ids as keys",
    )


def test_the_members_of_a_cycle_are_named_in_order() -> None:
    [problem] = problems_of(dependencies={"classify": ["read"], "reply": ["classify"], "read": ["reply"]})
    cycle = problem.removeprefix("steps wait for each other: ").split(";")[0].split(" -> ")
    assert cycle[0] == cycle[-1]
    assert sorted(cycle[1:]) == ["'classify'", "'read'", "'reply'"]
    needs = {("'classify'", "'read'"), ("'reply'", "'classify'"), ("'read'", "'reply'")}
    assert set(itertools.pairwise(cycle)) == needs, "each waits for the next"
    assert problem.endswith("; remove one of these dependencies")


def test_a_misspelt_output_step_is_named_with_the_nearest() -> None:
    assert problems_of(output_step="reply_") == ("output_step 'reply_' is not a step. Did you mean 'reply'?",)


def test_several_terminal_steps_need_a_word_on_which_gives_the_output() -> None:
    [problem] = problems_of(dependencies={"classify": ["read"]}, output_step=None)
    assert problem == (
        "several steps are needed by no other: 'classify', 'reply'; "
        "say which one gives the output: output_step=..."
    )


def test_the_only_terminal_step_gives_the_output_unless_another_is_named() -> None:
    chain = {"classify": ["read"], "reply": ["classify"]}
    pipeline: Pipeline[Any, Any] = Pipeline("p", STEPS, chain)
    assert pipeline.output_step == "reply"
    pipeline = Pipeline("p", STEPS, chain, output_step="classify")
    assert pipeline.output_step == "classify"


def test_step_configs_are_for_steps_that_are_there_and_are_step_configs() -> None:
    assert problems_of(step_configs={"replly": StepConfig(), "read": PipelineConfig()}) == (
        "step_configs name 'replly', which is not a step. Did you mean 'reply'?",
        "step_configs['read'] is a PipelineConfig; expected a StepConfig",
    )


@pytest.mark.parametrize("config", [None, {"timeout": 3}, PipelineConfig()])
def test_a_steps_own_config_is_a_step_config(config: Any) -> None:
    class Configured(Nothing): ...

    Configured.config = config
    assert problems_of({"x": Configured()}, output_step="x") == (
        f"the config of step 'x' is a {type(config).__name__}; expected a StepConfig",
    )


def test_every_problem_is_in_one_error() -> None:
    problems = problems_of(
        {"read": nothing, "classify": undecorated, "reply": nothing},
        {"reply": ["clasify", "read"], "read": ["reply"], "other": []},
        "end",
        step_configs={"nobody": StepConfig()},
    )
    assert [problem.split(" ")[0:3] for problem in problems] == [
        ["step", "'classify'", "is"],
        ["step", "'reply'", "depends"],
        ["dependencies", "name", "'other',"],
        ["step_configs", "name", "'nobody',"],
        ["steps", "wait", "for"],
        ["output_step", "'end'", "is"],
    ]
    with pytest.raises(PipelineValidationError, match=r"^pipeline 'p' has 2 problems:\n  - .*\n  - .*$"):
        Pipeline("p", {"a": undecorated, "b": undecorated}, output_step="a")  # type: ignore[dict-item]


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_pipeline_has_a_name(name: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^name="):
        Pipeline(name, STEPS, output_step="reply")


@pytest.mark.parametrize("steps", [None, [nothing], "steps"])
def test_steps_are_a_mapping(steps: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^steps=.*a mapping of step ids to steps"):
        Pipeline("p", steps)


@pytest.mark.parametrize("config", [StepConfig(), {"timeout": 3}, 5])
def test_the_config_of_a_pipeline_is_a_pipeline_config(config: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^config=.*a PipelineConfig"):
        Pipeline("p", STEPS, output_step="reply", config=config)


def test_what_the_caller_does_to_its_dicts_later_changes_nothing() -> None:
    steps, dependencies = dict(STEPS), {"reply": ["read"]}
    pipeline: Pipeline[Any, Any] = Pipeline("p", steps, dependencies, output_step="reply")
    steps.clear()
    dependencies["reply"].append("classify")
    assert list(pipeline.steps) == ["read", "classify", "reply"]
    assert pipeline.dependencies["reply"] == ("read",)


def test_levels_are_for_reading() -> None:
    pipeline: Pipeline[Any, Any] = Pipeline(
        "p",
        dict.fromkeys("abcdef", nothing),
        {"c": ["a"], "d": ["c", "b"], "e": ["a"], "f": ["d", "e"]},
    )
    assert [sorted(level) for level in pipeline.levels] == [["a", "b"], ["c", "e"], ["d"], ["f"]]
    assert repr(pipeline) == "Pipeline('p', 6 steps)"
