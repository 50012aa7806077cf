"""What type checkers know of the methods of front doors is what these take."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from fastroai.graphs import Graph
from fastroai.graphs.resuming import GraphResumeOptions
from fastroai.pipelines import Pipeline
from fastroai.runs.signatures import OpenOptions, ResumeOptions

OPENING = {"self", "inputs", "deps", "tracer", *OpenOptions.__annotations__}
RESUMING = {"self", "run_id", "deps", *ResumeOptions.__annotations__}


def parameters_of(method: Any) -> set[str]:
    return set(inspect.signature(method).parameters)


@pytest.mark.parametrize("method", ["execute", "run", "execute_sync", "run_sync", "stream"])
def test_help_shows_each_option_of_a_new_run(method: str) -> None:
    assert parameters_of(getattr(Graph, method)) == OPENING


@pytest.mark.parametrize("method", ["resume", "resume_sync", "resume_stream"])
def test_the_options_of_a_graph_that_goes_on_are_those_of_the_method(method: str) -> None:
    assert parameters_of(getattr(Graph, method)) == RESUMING | set(GraphResumeOptions.__annotations__)


@pytest.mark.parametrize("method", ["execute", "stream", "resume", "resume_stream"])
def test_a_method_that_has_overloads_is_the_plain_function_that_it_was(method: str) -> None:
    assert inspect.isfunction(getattr(Pipeline, method))
    assert inspect.getdoc(getattr(Pipeline, method))
