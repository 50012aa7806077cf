"""Hashes of the code of evaluators: the same in every process, and others when the code changes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from fastroai.evaluation.code import code_digest

PROCESS = """
from fastroai.evaluation.code import code_digest

class Grader:
    def __call__(self, ctx):
        return ctx.output in {"a", "b", "c", "d"}

def graded(ctx, with_=Grader()):
    return [one for one in {"a", "b", "c", "d"} if one == "x" or one in {"e", "f", "g"}]

print(code_digest(graded), code_digest(Grader()), code_digest(Grader().__call__))
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
