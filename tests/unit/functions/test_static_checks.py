"""What is found wrong with declarations before anything is called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from fastroai import compute, flow, infer, refine
from fastroai.functions.declaring.static_checks import (
    agreement_problems,
    call_problems,
    flow_problems,
    quorum_problems,
)
from fastroai.functions.errors import CompileError


class Reply(BaseModel):
    label: Literal["a", "b"]


class Asking:
    """What stands here for a function that asks a model."""

    __name__ = "judge"

    def __call__(self, reply: Reply) -> bool:
        return True


judge = Asking()
here: Any = sys.modules[__name__]
NEITHER = "quorum= needs agree_on=, the field that must be equal, or threshold=, how many must agree"


def plain(reply: Reply) -> bool:
    return True


def calls_it(reply: Reply) -> bool:
    """Not only lambdas are read."""
    if plain(reply):
        return judge(reply)
    return False


def test_functions_that_ask_a_model_must_not_be_called() -> None:
    inner = Asking()
    expected = ["until: it calls judge, which asks a model, and until must not"]
    assert call_problems("until", lambda r: plain(r) and judge(r), Asking) == expected
    assert call_problems("until", calls_it, Asking) == expected
    assert call_problems("until", lambda r: here.judge(r), Asking) == [
        "until: it calls here.judge, which asks a model, and until must not"
    ]
    assert call_problems("feedback", lambda r: f"{inner(r)}", Asking) == [
        "feedback: it calls inner, which asks a model, and feedback must not"
    ]
    assert call_problems("until", judge, Asking) == ["until: judge asks a model, and until must not"]


@pytest.mark.parametrize(
    "function",
    [None, plain, lambda r: plain(r), lambda judge: judge(1), len, lambda r: here.unknown(r)],
)
def test_other_calls_are_no_problem(function: Callable[..., object] | None) -> None:
    assert call_problems("until", function, Asking) == []


def test_a_call_without_source_is_left_to_run_time() -> None:
    names: dict[str, Any] = {"judge": judge}
    exec("until = lambda r: judge(r)", names)
    assert call_problems("until", names["until"], Asking) == []


def test_a_variable_that_has_no_value_yet_is_no_problem() -> None:
    assert call_problems("until", lambda r: later(r), Asking) == []
    later: Callable[[Reply], bool] = plain


@pytest.mark.parametrize(
    ("quorum", "agree_on", "threshold", "problems"),
    [
        (None, None, None, []),
        (3, "label", None, []),
        (3, None, 2, []),
        (3, "label", 3, []),
        (3, None, None, [NEITHER]),
        (3, None, 4, ["threshold=4 is more than the 3 members of the quorum, which can never agree"]),
        (None, "label", None, ["agree_on='label' needs quorum=, the number of members that vote"]),
        (None, None, 2, ["threshold=2 needs quorum=, the number of members that vote"]),
        (0, "label", None, ["quorum=0: expected a whole number, 1 or more"]),
        (True, "label", None, ["quorum=True: expected a whole number, 1 or more"]),
        (3, None, 0, ["threshold=0: expected a whole number, 1 or more"]),
        (3, None, 0.5, ["threshold=0.5: expected a whole number, 1 or more"]),
        (0, None, 0, ["quorum=0: expected a whole number, 1 or more",
                      "threshold=0: expected a whole number, 1 or more"]),
    ],
)  # fmt: skip
def test_votes_that_cannot_work(quorum: Any, agree_on: Any, threshold: Any, problems: list[str]) -> None:
    assert [*quorum_problems(quorum, agree_on, threshold)] == problems


@pytest.mark.parametrize(
    ("returns", "problems"),
    [
        (Reply, []),
        (str, ["agree_on='label': str has no field 'label'."]),
        (Reply | None, []),
        (list[Reply], ["agree_on='label': list has no field 'label'."]),
    ],
)
def test_outputs_must_have_the_field_on_which_they_agree(returns: Any, problems: list[str]) -> None:
    typo, several = "agree_on='lable': Reply has no field 'lable'. Did you mean 'label'?", ["label"]
    assert agreement_problems("lable", Reply) == [typo]
    assert agreement_problems(several, Reply) == ["agree_on=['label']: expected the name of a field"]  # type: ignore[arg-type]
    assert agreement_problems("label", returns) == problems


class Around(BaseModel):
    reply: Reply | None


@pytest.mark.parametrize(
    ("agree_on", "problems"),
    [
        ("reply.label", []),
        ("reply.lable", ["agree_on='reply.lable': Reply | NoneType has no field 'lable'. "
                         "Did you mean 'label'?"]),
        ("answer.label", ["agree_on='answer.label': Around has no field 'answer'."]),
    ],
)  # fmt: skip
def test_a_dot_leads_into_a_field(agree_on: str, problems: list[str]) -> None:
    assert agreement_problems(agree_on, Around) == problems
    assert agreement_problems(agree_on, dict[str, Around]) == []


def test_a_flow_is_async() -> None:
    async def flow() -> None: ...

    assert flow_problems(flow) == []
    assert flow_problems(plain) == [
        "a flow awaits the functions that it calls, so it must be async: write `async def`"
    ]


def test_decorators_without_the_options_that_they_need_say_what_to_write() -> None:
    async def classify(text: str) -> str:
        raise NotImplementedError

    for decorator, needed in (
        (infer, 'infer takes options, by name: @infer(intent="what the function does")'),
        (refine, "refine takes options, by name: @refine(until=lambda r: ...)"),
    ):
        bare: Any = decorator
        with pytest.raises(CompileError, match="function 'classify'") as raised:
            bare(classify)
        assert raised.value.problems == (needed,)
        with pytest.raises(CompileError, match="function \"'Classify'\""):
            bare("Classify")
    without: Any = infer()  # type: ignore[call-overload]
    with pytest.raises(CompileError, match="intent='': expected a text that says what the function does"):
        without(classify)
    endless: Any = refine()  # type: ignore[call-overload]
    with pytest.raises(CompileError, match="until=: expected a function of the output"):
        endless(infer(intent="Classify")(classify))


async def test_decorators_that_need_no_options_stand_with_and_without_parentheses() -> None:
    async def double(number: int) -> int:
        return 2 * number

    for decorator in (compute, compute(), flow, flow()):
        made: Any = decorator(double)
        assert await made(2) == 4
