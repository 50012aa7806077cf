"""Processes that are forked inside of a budget, each with a copy of it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from support.fork_server import run_script

SCRIPT = '''
import asyncio, os, sys, threading
from decimal import Decimal
from fastroai import *
from fastroai.errors import ForkedScopeError
from fastroai.runtime import current_scope
from fastroai.store import MemoryRunStore, SQLiteSpendStore
from support.agents import paid_agent

agent = paid_agent(100)

def ask():
    """What becomes of a request, in a word."""
    try:
        return f"answered for {agent.run_sync('?').cost_microcents}"
    except (ForkedScopeError, BudgetExceeded) as error:
        return f"{type(error).__name__}: {error}"

def in_child(work):
    """Do something in a forked process, whose output comes before that of its parent."""
    sys.stdout.flush()
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
        return
    try:
        print(work(), flush=True)
        code = 0
    except BaseException as error:
        print("failed", repr(error), flush=True)
        code = 1
    os._exit(code)
'''


def printed(tmp_path: Path, script: str) -> list[str]:
    """The lines that a script of processes prints."""
    done = run_script(SCRIPT + script, tmp_path)
    assert done.code == 0, done.out + done.err
    return done.out.splitlines()


pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.slow,
]


def test_a_budget_is_refused_in_a_forked_process_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    refused, left = printed(
        tmp_path,
        """
with budget_scope(Budget(microcents=200)) as scope:
    in_child(ask)
    ask()
    print(scope.usage.request_count, scope.remaining.microcents)
""",
    )
    assert re.fullmatch(
        r"ForkedScopeError: process \d+ cannot spend the budget of budget_scope: it was forked from "
        r"process \d+, "
        r"and each .* Open a budget in this process \(with budget_scope\(\.\.\.\)\), or share "
        r"one limit: SpendLimit\(usd=\.\.\., store=SQLiteSpendStore\(\.\.\.\)\)",
        refused,
    )
    assert left == "1 100"


def test_a_budget_of_its_own_is_what_a_forked_process_spends_from(tmp_path: Path) -> None:
    assert printed(
        tmp_path,
        """
def own():
    with budget_scope(Budget(microcents=150)) as scope:
        return [ask()[:25], ask()[:25], scope.usage.cost_microcents]

with budget_scope(Budget(microcents=100)) as scope:
    in_child(own)
    print(scope.usage.request_count)
""",
    ) == ["['answered for 100', 'CostBudgetExceeded: budge', 100]", "0"]


def test_budgets_of_agents_are_no_budget_of_the_process(tmp_path: Path) -> None:
    """They are for each call, and would let each process spend without end."""
    assert printed(
        tmp_path,
        """
agent = paid_agent(100, cost_budget=500)
with budget_scope(Budget(microcents=200)):
    in_child(lambda: ask()[:16])
""",
    ) == ["ForkedScopeError"]


def test_without_a_budget_a_forked_process_goes_on_and_keeps_its_account(tmp_path: Path) -> None:
    assert printed(
        tmp_path,
        """
@step
def work(ctx):
    in_child(lambda: [ask(), ctx.run_sync(agent, "?").cost_microcents])
    return ask()

result = Pipeline("p", {"work": work}).execute_sync()
print(result.output, result.usage.total.request_count)
""",
    ) == ["['answered for 100', 100]", "answered for 100 1"]


def test_a_process_that_a_forked_one_forks_may_not_spend_from_the_budget_either(tmp_path: Path) -> None:
    assert printed(
        tmp_path,
        """
def again():
    refused = ask()[:16]
    in_child(lambda: ask()[:16])
    return refused

with budget_scope(Budget(microcents=200)):
    in_child(again)
""",
    ) == ["ForkedScopeError", "ForkedScopeError"]


def test_a_step_is_named_in_the_records_of_a_forked_process(tmp_path: Path) -> None:
    assert printed(
        tmp_path,
        """
@step
def work(ctx):
    in_child(lambda: [one.step_id for one in ctx.run_sync(agent, "?").records])

Pipeline("p", {"work": work}).execute_sync()
""",
    ) == ["['work']"]


def test_a_run_on_record_has_one_writer(tmp_path: Path) -> None:
    refused, result = printed(
        tmp_path,
        """
def with_own_budget():
    with budget_scope(Budget(usd=1)):
        return ask()

@step
def work(ctx):
    in_child(with_own_budget)
    return ask()

print(Pipeline("p", {"work": work}).execute_sync(store=MemoryRunStore()).output)
""",
    )
    assert re.match(r"ForkedScopeError: process \d+ cannot work on the run of p / work", refused)
    assert result == "answered for 100"


def test_recording_and_reserving_are_refused_like_requests(tmp_path: Path) -> None:
    assert printed(
        tmp_path,
        """
def tries(ctx):
    for attempt in (lambda: ctx.record_usage(model="x", cost_usd=1), lambda: ctx.spend(1).__enter__(),
                    lambda: spend(1).__enter__()):
        try:
            attempt()
        except ForkedScopeError as error:
            yield error.left

@step(budget=Budget(usd=9))
def work(ctx):
    in_child(lambda: list(tries(ctx)))

Pipeline("p", {"work": work}).execute_sync()
""",
    ) == ["['budget', 'budget', 'budget']"]


def test_a_spend_limit_holds_for_all_of_them(tmp_path: Path) -> None:
    assert printed(
        tmp_path,
        """
limit = SpendLimit(microcents=250, window="total", store=SQLiteSpendStore("spend.db"))
with budget_scope(limit):
    for _ in range(3):
        in_child(lambda: ask()[:16])
    print(ask()[:18], asyncio.run(limit.status()).spent_usd)
""",
    ) == ["answered for 100", "answered for 100", "SpendLimitExceed", "SpendLimitExceeded 0.0002"]


def test_a_forked_process_can_leave_the_block_whoever_held_the_lock(tmp_path: Path) -> None:
    assert printed(
        tmp_path,
        """
held, free = threading.Event(), threading.Event()

def hold(scope):
    with scope.tree.lock:
        held.set()
        free.wait()

def leave():
    with budget_scope(Budget(requests=1)):
        ask()
    block.__exit__(None, None, None)
    return [current_scope(), ask()]

block = budget_scope(Budget(requests=1))
with block:
    thread = threading.Thread(target=hold, args=(current_scope(),))
    thread.start()
    held.wait()
    in_child(leave)
    free.set()
    thread.join()
""",
    ) == ["[None, 'answered for 100']"]
