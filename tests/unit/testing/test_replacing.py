"""Steps of pipelines and graphs, replaced for a test."""

import asyncio

import pytest

from fastroai import Pipeline, StepConfig, StepContext, step
from fastroai.errors import ConfigurationError, StepExecutionError
from fastroai.graphs import Edge, Graph
from fastroai.testing import replaced


@step
async def look_up(ctx: StepContext[None]) -> str:
    return f"found {ctx.step_id}"


@step
def shout(ctx: StepContext[None]) -> str:
    return ctx.get_dependency("look_up", str).upper()


LETTERS = Pipeline("letters", {"look_up": look_up, "shout": shout}, dependencies={"shout": ["look_up"]})


async def test_an_output_is_given_instead_and_afterwards_the_step_runs_again() -> None:
    with replaced(LETTERS, {"look_up": "a parcel"}):
        assert (await LETTERS.run()).output == "A PARCEL"
    assert (await LETTERS.run()).output == "FOUND LOOK_UP"


async def test_a_replacement_may_be_a_function_a_coroutine_function_or_a_step() -> None:
    async def later(ctx: StepContext[None]) -> str:
        await asyncio.sleep(0)
        return ctx.get_input("text")

    @step
    def in_a_thread(ctx: StepContext[None]) -> str:
        return "from a thread"

    for replacement, output in (
        (later, "HELLO"),
        (lambda ctx: ctx.step_id, "LOOK_UP"),
        (in_a_thread, "FROM A THREAD"),
    ):
        with replaced(LETTERS, {"look_up": replacement}):
            assert (await LETTERS.run({"text": "hello"})).output == output


async def test_an_exception_is_raised_under_the_settings_of_the_step() -> None:
    failures = [TimeoutError("no answer"), "at last"]

    def in_turn(ctx: StepContext[None]) -> object:
        failure = failures.pop(0)
        if isinstance(failure, Exception):
            raise failure
        return failure

    retried = Pipeline(
        "p", {"look_up": look_up}, step_configs={"look_up": StepConfig(retries=1, retry_delay=0)}
    )
    with replaced(retried, {"look_up": in_turn}):
        assert (await retried.run()).output == "at last"
    with replaced(LETTERS, {"look_up": LookupError("lost")}), pytest.raises(StepExecutionError, match="lost"):
        await LETTERS.run()


async def test_a_step_that_is_used_under_two_ids_is_replaced_under_one() -> None:
    twice = Pipeline("twice", {"a": look_up, "b": look_up}, dependencies={"b": ["a"]})
    with replaced(twice, {"b": "instead"}):
        assert dict((await twice.run()).step_outputs) == {"a": "found a", "b": "instead"}


async def test_nodes_of_graphs_and_steps_of_nested_pipelines_are_replaced() -> None:
    graph = Graph(
        "g", nodes={"first": look_up, "letters": LETTERS}, edges=[Edge("first", "letters", when="always")]
    )
    with replaced(graph, {"first": "instead"}), replaced(LETTERS, {"look_up": "inside"}):
        result = await graph.run()
    assert result.outputs == {"first": "instead", "letters": "INSIDE"}


def test_a_step_that_is_not_there_is_named_with_those_that_are() -> None:
    there_are = r"look_up, shout\. Did you mean 'look_up'\?"
    with pytest.raises(ConfigurationError, match=there_are), replaced(LETTERS, {"lookup": "x"}):
        pass


async def test_a_class_of_exceptions_is_raised_and_is_no_output() -> None:
    with replaced(LETTERS, {"look_up": LookupError}), pytest.raises(StepExecutionError, match="LookupError"):
        await LETTERS.run()
