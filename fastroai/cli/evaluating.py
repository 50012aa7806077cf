"""`eval`: an evaluation in CI, which fails under a threshold, or if cases got worse."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastroai.cli.exits import FAILED, OK
from fastroai.cli.targets import import_target
from fastroai.errors import ConfigurationError
from fastroai.plain_text import plain

if TYPE_CHECKING:
    from fastroai.evaluation.comparison import Comparison

_TARGET = "FUNCTION"


async def evaluate(
    function: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="A function that returns a Comparison, or an EvaluationReport of pydantic_evals.",
            show_default=False,
        ),
    ],
    least: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]NUMBER",
            help="The least share that passes, or mean score, as in accuracy=0.9; several times. Without a "
            "name, of the first evaluation.",
            show_default=False,
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            help="A file with earlier results: no case may be worse than there.", show_default=False
        ),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="By how much the score of a case may be lower than in the baseline.")
    ] = 0.0,
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="Write the baseline instead of comparing with it.")
    ] = False,
) -> int:
    """Evaluate, and exit with 1 under a threshold, or if cases got worse than in a baseline."""
    from fastroai.evaluation.baseline import Baseline

    if update_baseline and baseline is None:
        raise ConfigurationError("--update-baseline", ..., "--baseline too, which names the file to write")
    if tolerance < 0:
        raise ConfigurationError("--tolerance", tolerance, "0 or more")
    thresholds = [_threshold(one) for one in least or ()]
    kept = None if baseline is None or update_baseline else Baseline.read(baseline)
    comparison = await _comparison(function)
    print(plain(str(comparison)))
    failed = [*_missing(comparison), *_under(comparison, thresholds)]
    if kept is not None and baseline is not None:
        failed += kept.worse_in(comparison, tolerance, baseline)
    if failed:
        print(plain("\n".join(["", "Failed:", *(f"  {one}" for one in failed)])))
        return FAILED
    if update_baseline and baseline is not None:
        Baseline.of(comparison).write(baseline)
        print(plain(f"\nWrote {baseline}"))
    return OK


async def _comparison(function: str) -> Comparison:
    """Call the user's function, and return what it has compared."""
    from fastroai.evaluation.comparison import Comparison

    target = import_target(_TARGET, function)
    if not callable(target):
        raise ConfigurationError(_TARGET, function, "a function without arguments")
    made: Any = target()
    if inspect.isawaitable(made):
        made = await made
    if isinstance(made, Comparison):
        return made
    if hasattr(made, "cases") and hasattr(made, "failures"):
        from fastroai.evaluation.reports import comparison_of

        return comparison_of(made)
    expected = f"a function that returns a Comparison or an EvaluationReport; it returned {made!r}"
    raise ConfigurationError(_TARGET, function, expected)


def _threshold(text: str) -> tuple[str | None, float]:
    """Return the name, if there is one, and the number of `accuracy=0.9` or `0.9`."""
    name, equals, number = text.rpartition("=")
    try:
        return (name if equals else None), float(number)
    except ValueError:
        expected = "a number, or the name of an evaluation and a number, as in accuracy=0.9"
        raise ConfigurationError("--least", text, expected) from None


def _missing(comparison: Comparison) -> list[str]:
    return [
        f"{one.name}: {len(one.missing)} cases were not asked: {one.reason}"
        for one in comparison.variants.values()
        if one.missing
    ]


def _under(comparison: Comparison, thresholds: Sequence[tuple[str | None, float]]) -> list[str]:
    told: list[str] = []
    for name, least in thresholds:
        for variant, quality in comparison.quality(name).items():
            if quality is None or quality.value < least:
                shown = "no value" if quality is None else f"{quality.value:.3f}"
                told.append(
                    f"{variant}, {name or comparison.evaluations[0]}: {shown}, at least {least:g} needed"
                )
    return told
