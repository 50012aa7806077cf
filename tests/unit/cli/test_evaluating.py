"""`fastroai eval`: thresholds, and baselines whose cases must not get worse."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fastroai.cli.app import app

MODULE = """
from fastroai.evaluation import Case, compare

ANSWERS = {answers}

async def right(question):
    if ANSWERS[question] is None:
        raise LookupError("no answer")
    return ANSWERS[question]

def exact(ctx):
    return {{"exact": ctx.output == ctx.expected_output, "score": ctx.output / 10}}

async def tickets():
    cases = [Case(name=f"case {{n}}", inputs=n, expected_output={expected}) for n in ANSWERS]
    return await compare({{"{variant}": right}}, cases, [exact], progress=False)

def no_comparison():
    return 3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    sys.modules.pop("desk_evals", None)


def write(answers: dict[int, int | None], expected: str = "n", variant: str = "now") -> None:
    Path("desk_evals.py").write_text(MODULE.format(answers=answers, expected=expected, variant=variant))
    sys.modules.pop("desk_evals", None)
    for cached in Path("__pycache__").glob("*.pyc"):
        cached.unlink()


def evaluate(*options: str, function: str = "tickets") -> Result:
    return CliRunner().invoke(app, ["eval", f"desk_evals:{function}", *options], prog_name="fastroai")


def test_it_fails_under_a_threshold_and_says_which() -> None:
    write({1: 1, 2: 2, 3: 3, 4: 0})
    assert evaluate("--least", "0.75", "--least", "score=0.15").exit_code == 0
    failed = evaluate("--least", "exact=0.8", "--least", "score=0.2")
    assert failed.exit_code == 1
    assert (
        "Failed:\n  now, exact: 0.750, at least 0.8 needed\n  now, score: 0.150, at least 0.2"
        in failed.output
    )


def test_it_fails_if_cases_got_worse_than_in_a_baseline_and_names_them() -> None:
    write({1: 1, 2: 2, 3: 0, 4: 4})
    kept = evaluate("--baseline", "kept.json", "--update-baseline")
    assert (kept.exit_code, kept.output.splitlines()[-1]) == (0, "Wrote kept.json")
    assert evaluate("--baseline", "kept.json").exit_code == 0

    write({1: 1, 2: 9, 3: 3, 4: None, 5: 5})
    worse = evaluate("--baseline", "kept.json")
    assert worse.exit_code == 1
    assert worse.output.split("Failed:\n")[1].splitlines() == [
        "  now, case 'case 2': exact: passed before, not now",
        "  now, case 'case 4': it fails now: LookupError: no answer",
    ]

    write({1: 1, 2: 2, 3: 0, 4: 3}, expected="ANSWERS[n] if n == 4 else n")
    assert evaluate("--baseline", "kept.json").exit_code == 2  # case 4 has another expected output


def test_a_score_may_be_lower_by_the_tolerance() -> None:
    write({3: 3, 9: 0})
    evaluate("--baseline", "kept.json", "--update-baseline")
    found = json.loads(Path("kept.json").read_text())
    found["variants"]["now"]["case 3"]["scores"]["score"] = 0.35
    Path("kept.json").write_text(json.dumps(found))
    assert evaluate("--baseline", "kept.json", "--tolerance", "0.06").exit_code == 0
    worse = evaluate("--baseline", "kept.json", "--tolerance", "0.04")
    assert worse.exit_code == 1
    assert "now, case 'case 3': score: 0.35 before, 0.3 now" in worse.output


def test_a_baseline_is_not_written_by_an_evaluation_that_fails() -> None:
    write({1: 0})
    assert evaluate("--least", "1", "--baseline", "kept.json", "--update-baseline").exit_code == 1
    assert not Path("kept.json").exists()


@pytest.mark.parametrize(
    ("answers", "changes", "told"),
    [
        ({1: 1}, {}, "has no case 'case 2'. If that is right, --update-baseline"),
        ({1: 1, 2: 2}, {"expected": "n + 1"}, "case 'case 1' has other inputs or another expected output"),
        (
            {1: 1, 2: 2},
            {"variant": "then"},
            "results of the compared variants only; the comparison has no 'now'",
        ),
    ],
)
def test_the_baseline_of_another_dataset_is_refused(
    answers: dict[int, int | None], changes: dict[str, str], told: str
) -> None:
    write({1: 1, 2: 2})
    evaluate("--baseline", "kept.json", "--update-baseline")
    write(answers, **changes)
    refused = evaluate("--baseline", "kept.json")
    assert refused.exit_code == 2
    assert told in refused.output


@pytest.mark.parametrize(
    ("options", "function", "told"),
    [
        (["--baseline", "none.json"], "tickets", "No such file or directory); --update-baseline writes it"),
        (["--baseline", "bad.json"], "tickets", "variants.now.case 1.scores.score: Input should be"),
        (["--update-baseline"], "tickets", "needs --baseline"),
        (["--least", "high"], "tickets", "as in accuracy=0.9"),
        (["--least", "exakt=1"], "tickets", "one of 'exact', 'score'. Did you mean 'exact'?"),
        (["--tolerance", "-1"], "tickets", "0 or more"),
        ([], "no_comparison", "it returned 3"),
        ([], "ANSWERS", "a function without arguments"),
        ([], "nothing", "an attribute of 'desk_evals'"),
    ],
)
def test_mistakes_exit_with_two(options: list[str], function: str, told: str) -> None:
    write({1: 1})
    bad = {
        "format": "fastroai-baseline-1",
        "variants": {"now": {"case 1": {"asked": "x", "scores": {"score": "1"}}}},
    }
    Path("bad.json").write_text(json.dumps(bad))
    found = evaluate(*options, function=function)
    assert found.exit_code == 2, found.output
    assert told in " ".join(found.output.split())
