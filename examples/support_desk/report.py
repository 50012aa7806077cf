"""What there is to say when it is done: tables on the console, and the account as JSON."""

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from statistics import mean

from account import Account, LedgerCheck
from documents import printable
from pipelines import Answered
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastroai.records import Usage

# --- on the console ---


def show(console: Console, account: Account) -> None:
    """By step, by model, the critical path, failures, and the ledger."""
    _show_steps(console, account)
    _show_models(console, account)
    _show_critical_path(console, account)
    _show_failures(console, account)
    if account.ledger:
        _show_ledger(console, account.ledger)


def _show_steps(console: Console, account: Account) -> None:
    table = _table("step", "requests", "input", "output", "cost", "mean", "longest", "critical")
    *costs, total = _costs([*(step.usage for step in account.steps), account.total])
    for step, cost in zip(account.steps, costs, strict=True):
        times = step.durations_ms
        table.add_row(
            step.step,
            *_counts(step.usage, cost),
            _time(mean(times)) if times else "-",
            _time(max(times)) if times else "-",
            f"{step.critical} of {len(times)}",
        )
    table.add_section()
    table.add_row("all", *_counts(account.total, total))
    _say(console, "By step; critical: how often the step was on the critical path of a ticket.\n")
    console.print(table)


def _show_models(console: Console, account: Account) -> None:
    table = _table("model", "requests", "input", "output", "cost", "waited for")
    costs = _costs([model.usage for model in account.models])
    for model, cost in zip(account.models, costs, strict=True):
        table.add_row(Text(model.model), *_counts(model.usage, cost), _time(model.waited_ms))
    _say(console, "\nBy model; waited for: the time of all its answers, which overlap.\n")
    console.print(table)


def _show_critical_path(console: Console, account: Account) -> None:
    if (found := account.slowest()) is None:
        return
    one, result = found
    path = " -> ".join(f"{step} {_time(result.timings[step].duration_ms)}" for step in result.critical_path)
    total = _time(result.usage.processing_time_ms)
    _say(console, f"\nCritical path of the slowest ticket, {one.document.title}, {total}:\n  {path}\n")


def _show_failures(console: Console, account: Account) -> None:
    """Every reason why there is no reply, once, with the documents that it concerns."""
    concerned: dict[str, list[str]] = {}
    for one in account.answered:
        for problem in one.problems:
            concerned.setdefault(problem, []).append(one.document.title)
    for problem, names in concerned.items():
        others = f" and {len(names) - 3} others" if len(names) > 3 else ""
        _say(console, f"FAILED {problem}\n  {', '.join(names[:3])}{others}\n")


def _show_ledger(console: Console, check: LedgerCheck) -> None:
    if check.differences:
        _say(console, "The account and the server's ledger differ:\n  " + "\n  ".join(check.differences))
        return
    _say(
        console,
        f"Ledger: the server served {check.requests:,} requests with {check.tokens:,} tokens, "
        f"{_exact(check.cost_usd)}; each of them was measured, to the last digit.",
    )


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
    decimals = max((len(_exact(usage.cost_usd).partition(".")[2]) for usage in usages), default=0)
    return [f"${usage.cost_usd:.{decimals}f}" + ("" if usage.cost_complete else " + ?") for usage in usages]


def _exact(usd: Decimal) -> str:
    """All digits of an amount, at least two decimals."""
    whole, _, decimals = f"{usd:f}".partition(".")
    return f"${whole}.{decimals.rstrip('0').ljust(2, '0')}"


def _time(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.2f} s"


def _say(console: Console, text: str) -> None:
    safe = "\n".join(printable(line) for line in text.split("\n"))
    console.print(safe, markup=False, soft_wrap=not console.is_terminal)


# --- in a file ---


def write(path: Path, account: Account) -> None:
    """The account as JSON; costs are exact US dollars, as strings."""
    content = {
        "total": _usage(account.total),
        "by_step": {
            step.step: _usage(step.usage)
            | {"duration_ms": sum(step.durations_ms), "on_critical_path": step.critical}
            for step in account.steps
        },
        "by_model": {
            model.model: _usage(model.usage) | {"waited_ms": model.waited_ms} for model in account.models
        },
        "ledger": _ledger(account.ledger) if account.ledger else None,
        "documents": {one.document.name: _document(one) for one in account.answered},
    }
    text = json.dumps(content, indent=2, ensure_ascii=False)
    # A file name that is no text has lone surrogates, which JSON can write and UTF-8 cannot.
    path.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def _usage(usage: Usage) -> dict[str, object]:
    return {
        "requests": usage.request_count,
        "input_tokens": usage.input_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": f"{usage.cost_usd:f}",
        "cost_complete": usage.cost_complete,
    }


def _ledger(check: LedgerCheck) -> dict[str, object]:
    return {
        "requests": check.requests,
        "tokens": check.tokens,
        "cost_usd": f"{check.cost_usd:f}",
        "differences": check.differences,
    }


def _document(one: Answered) -> dict[str, object]:
    result = one.result
    return {
        "outcome": one.outcome,
        "problems": one.problems,
        **_usage(one.usage),
        "duration_ms": result.usage.processing_time_ms if result else None,
        "critical_path": result.critical_path if result else [],
    }
