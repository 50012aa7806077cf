"""Hashes of the code of evaluators: the same in every process, and others when the code changes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from fastroai.evaluation.code import code_digest, plain

PROCESS = """
from dataclasses import dataclass
from functools import partial
from fastroai.evaluation.code import code_digest

class Grader:
    def __call__(self, ctx):
        return ctx.output in {"a", "b", "c", "d"}

def graded(ctx, with_=Grader()):
    return [one for one in {"a", "b", "c", "d"} if one == "x" or one in {"e", "f", "g"}]

@dataclass
class Allowed:
    names: set

    def evaluate(self, ctx):
        return ctx.output in self.names

def given(ctx, *, names):
    return ctx.output in names

def defaulted(ctx, names=frozenset("abcd"), more=[{1: {"a", "b", "c", "d"}}]):
    return ctx.output in names

print(code_digest(graded), code_digest(Grader()), code_digest(Grader().__call__))
print(code_digest(Allowed(set("abcd"))), code_digest(partial(given, names=set("abcd"))))
print(code_digest(defaulted))
"""


def test_a_hash_is_the_same_in_every_process() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", PROCESS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1


def test_other_code_has_another_hash_wherever_it_stands() -> None:
    def same(ctx: Any) -> bool:
        return bool(ctx.output == 1)

    first = code_digest(same)

    def same(ctx: Any) -> bool:  # type: ignore[no-redef]
        return bool(ctx.output == 1)

    def inner(ctx: Any) -> Any:
        return lambda: ctx.output == 2

    def other(ctx: Any) -> Any:
        return lambda: ctx.output == 3

    assert code_digest(same) == first
    assert len({first, code_digest(inner), code_digest(other), code_digest(lambda ctx: True)}) == 4


def test_values_are_the_same_json_in_every_process() -> None:
    class Known:
        pass

    assert [*{0, 8}] != [*{8, 0}]
    assert plain({"of": [Known(), {0, 8}]}) == plain({"of": [Known(), {8, 0}]})
    assert plain([{0, 8}, {"a": b"\xff"}, float("nan")]) == plain([{0, 8}, {"a": b"\xff"}, float("nan")])
    assert plain({0, 8}) != plain({0, 7})


def test_code_of_the_library_of_evaluators_does_not_count() -> None:
    def now(self: Any, ctx: Any) -> bool:
        return bool(ctx.output == 1)

    def later(self: Any, ctx: Any) -> bool:
        return True

    def judge(evaluate: Any, module: str) -> Any:
        evaluate.__module__ = module
        return type("Judge", (), {"evaluate": evaluate, "__repr__": lambda self: "Judge()"})()

    for module, is_same in (("pydantic_evals.evaluators.llm_judge", True), ("mine", False)):
        hashes = {code_digest(judge(evaluate, module)) for evaluate in (now, later)}
        assert len(hashes) == (1 if is_same else 2)
