"""What it takes to validate a workflow spec, by its size; and to check a result."""

from __future__ import annotations

from collections.abc import AsyncIterator

from benchmarks.measure import Row, medians
from fastroai.workflows import load_spec
from fastroai.workflows.checks import Checks

MOST_OVER_TEN_TIMES = 1.5
"""Times ten: how much longer a spec may take that has ten times as many steps. What one step costs must not
grow with their number."""
MOST_OF_A_CHECK = 200e-6
"""Seconds."""
CHECKS = 100
"""Checks in a row."""


def spec_of(steps: int) -> str:
    """A spec in which each step uses the two before it, half of them with schemas and conditions."""
    lines = []
    for number in range(steps):
        inputs = "".join(
            f"      v{back}: $.steps.s{number - back}.output.items[0]\n"
            for back in (1, 2)
            if number - back >= 0
        )
        lines.append(f"    - id: s{number}\n      function: work\n")
        if inputs:
            lines.append(f"      inputs:\n{inputs.replace('      v', '        v')}")
        if number % 2:
            lines.append(
                "      output_schema: {type: object, properties: {items: {items: {type: string}}}}\n"
            )
            lines.append(f"      skip_if: $.steps.s{number - 1}.output.ok and $.input.quick\n")
    return (
        "version: '0.2'\ncontracts:\n  Out: {ok: {type: boolean}, items: {type: array}}\nfunctions:\n"
        "  work: {mode: infer, intent: Work, output: Out, ensure: [result.ok, len(result.items) > 0]}\n"
        f"flows:\n  main:\n    input: {{quick: {{type: boolean}}}}\n    steps:\n{''.join(lines)}"
    )


async def validation() -> AsyncIterator[Row]:
    small, large = spec_of(100), spec_of(1_000)

    async def load_small() -> None:
        load_spec(small)

    async def load_large() -> None:
        load_spec(large)

    took = await medians({"small": load_small, "large": load_large}, rounds=9)
    ratio = took["large"] / took["small"] / 10
    yield Row(
        "validation of a spec of 1,000 steps, beside ten times one of 100",
        f"{took['large'] * 1e3:.0f} ms",
        f"{took['small'] * 1e4:.0f} ms",
        ratio,
        f"≤ {MOST_OVER_TEN_TIMES} x",
        ratio <= MOST_OVER_TEN_TIMES,
    )


async def result_check() -> AsyncIterator[Row]:
    spec = load_spec(spec_of(2))
    checks, step = Checks(spec), spec.flows["main"].steps[1]
    result = {"ok": True, "items": ["a", "b"]}

    async def check() -> None:
        for _ in range(CHECKS):
            assert checks.of_result(step, result, {}) is None

    took = (await medians({"check": check}, rounds=15))["check"] / CHECKS
    yield Row(
        "check of a result by schema, contract and two conditions",
        f"{took * 1e6:.0f} µs",
        "",
        None,
        f"≤ {MOST_OF_A_CHECK * 1e6:.0f} µs",
        took <= MOST_OF_A_CHECK,
    )


BENCHMARKS = (validation, result_check)
