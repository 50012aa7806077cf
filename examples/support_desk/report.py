"""What there is to say when it is done: tables on the console, and the account as JSON."""

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from statistics import mean

from account import LedgerCheck, ModelAccount, StepAccount, slowest
from documents import printable
from pipelines import Answered
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastroai.records import Usage


def show_steps(console: Console, accounts: Sequence[StepAccount], total: Usage) -> None:
    """A table by step."""
    table = _table("step", "requests", "input", "output", "cost", "mean", "longest", "critical")
    costs = _costs([*(account.usage for account in accounts), total])
    for account, cost in zip(accounts, costs, strict=False):
        times = account.durations_ms
        table.add_row(
            account.step,
            *_counts(account.usage, cost),
            _time(mean(times)) if times else "-",
            _time(max(times)) if times else "-",
            f"{account.critical} of {len(times)}",
        )
    table.add_section()
    table.add_row("all", *_counts(total, costs[-1]))
    _say(console, "By step; critical: how often the step was on the critical path of a ticket.\n")
    console.print(table)


def show_models(console: Console, accounts: Sequence[ModelAccount]) -> None:
    """A table by model."""
    table = _table("model", "requests", "input", "output", "cost", "waited for")
    for account, cost in zip(accounts, _costs([account.usage for account in accounts]), strict=True):
        table.add_row(Text(account.model), *_counts(account.usage, cost), _time(account.waited_ms))
    _say(console, "\nBy model; waited for: the time of all its answers, which overlap.\n")
    console.print(table)


def show_critical_path(console: Console, answered: Sequence[Answered]) -> None:
    """The path of the document that took longest: what to make faster first."""
    if (found := slowest(answered)) is None:
        return
    one, result = found
    path = " -> ".join(f"{step} {_time(result.timings[step].duration_ms)}" for step in result.critical_path)
    total = _time(result.usage.processing_time_ms)
    _say(console, f"\nCritical path of the slowest ticket, {one.document.title}, {total}:\n  {path}\n")


def show_failures(console: Console, answered: Sequence[Answered]) -> None:
    """Every reason why there is no reply, with the documents that it concerns."""
    concerned: dict[str, list[str]] = {}
    for one in answered:
        for problem in one.problems:
            concerned.setdefault(problem, []).append(one.document.title)
    for problem, names in concerned.items():
        others = f" and {len(names) - 3} others" if len(names) > 3 else ""
        _say(console, f"FAILED {problem}\n  {', '.join(names[:3])}{others}\n")


def show_ledger(console: Console, check: LedgerCheck) -> None:
    """Whether the account is what the server counted."""
    if check.differences:
        _say(console, "The account and the server's ledger differ:\n  " + "\n  ".join(check.differences))
        return
    _say(
        console,
        f"Ledger: the server served {check.requests:,} requests with {check.tokens:,} tokens, "
        f"{exact(check.cost_usd)}; each of them was measured, to the last digit.",
    )


def write_account(
    path: Path,
    *,
    answered: Sequence[Answered],
    steps: Sequence[StepAccount],
    models: Sequence[ModelAccount],
    total: Usage,
    ledger: LedgerCheck | None,
) -> None:
    """The account as JSON; costs are exact US dollars, as strings."""
    content = {
        "total": _usage(total),
        "by_step": {
            account.step: _usage(account.usage)
            | {"duration_ms": sum(account.durations_ms), "on_critical_path": account.critical}
            for account in steps
        },
        "by_model": {
            account.model: _usage(account.usage) | {"waited_ms": account.waited_ms} for account in models
        },
        "ledger": ledger
        and {
            "requests": ledger.requests,
            "tokens": ledger.tokens,
            "cost_usd": exact(ledger.cost_usd)[1:],
            "differences": ledger.differences,
        },
        "documents": {one.document.name: _document(one) for one in answered},
    }
    text = json.dumps(content, indent=2, ensure_ascii=False)
    # A file name that is no text has lone surrogates, which JSON can write and UTF-8 cannot.
    path.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def exact(usd: Decimal) -> str:
    """All digits of an amount, at least two decimals."""
    whole, _, decimals = f"{usd:f}".partition(".")
    return f"${whole}.{decimals.rstrip('0').ljust(2, '0')}"


def _document(one: Answered) -> dict[str, object]:
    result = one.result
    return {
        "outcome": one.outcome,
        "problems": one.problems,
        **_usage(one.usage),
        "duration_ms": result.usage.processing_time_ms if result else None,
        "critical_path": result.critical_path if result else [],
    }


def _usage(usage: Usage) -> dict[str, object]:
    return {
        "requests": usage.request_count,
        "input_tokens": usage.input_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": exact(usage.cost_usd)[1:],
        "cost_complete": usage.cost_complete,
    }


def _table(first: str, *numbers: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column(first, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _counts(usage: Usage, cost: str) -> tuple[str, str, str, str]:
    return f"{usage.request_count:,}", f"{usage.input_tokens:,}", f"{usage.output_tokens:,}", cost


def _costs(usages: Sequence[Usage]) -> list[str]:
    """Exact costs, with as many decimals as the longest needs, so that they stand in line."""
    known = [exact(usage.cost_usd) for usage in usages]
    decimals = max((len(cost.partition(".")[2]) for cost in known), default=0)
    return [f"${usage.cost_usd:.{decimals}f}" + ("" if usage.cost_complete else " + ?") for usage in usages]


def _time(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.2f} s"


def _say(console: Console, text: str) -> None:
    console.print(printable(text), markup=False, soft_wrap=not console.is_terminal)
