"""FastroAI in a minute: `python -m demo`. `python -m demo view` shows the runs in a browser."""

import asyncio
import os
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from time import perf_counter

import pydantic_ai
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from demo import offline
from fastroai import Budget, CostBudgetExceeded, Inbox, RunHistory, SQLiteRunStore
from fastroai.testing import ModelServer

FOLDER = Path(__file__).parents[2] / "out" / "demo"
STORE = FOLDER / "runs.db"
PORT = 8420

console = Console(highlight=False, width=min(Console().width, 100))


def main(arguments: list[str]) -> int:
    """Tell the story, do the work of one process of it, or show its runs."""
    pydantic_ai.BANNER_ENABLED = False
    if arguments == ["night-shift"]:
        return asyncio.run(night_shift())
    with ModelServer() as server:
        offline.install(server)
        os.environ |= server.environment()
        if arguments == ["view"]:
            return view()
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        return asyncio.run(story(server))


async def night_shift() -> int:
    """Answer five tickets, one after the other. The story kills this process in the middle."""
    from demo.pipelines import night_shift

    await night_shift.run({}, run_id="night-shift", store=SQLiteRunStore(STORE))
    return 0


def view() -> int:
    """Show the runs of the demo in a browser, and let them be resumed and forked."""
    if not STORE.exists():
        print("there are no runs yet: make demo", file=sys.stderr)
        return 2
    command = [sys.executable, "-m", "fastroai.cli", "view", "--store", str(STORE), "--port", str(PORT)]
    return subprocess.call([*command, "--import", "demo.pipelines"])


async def story(server: ModelServer) -> int:
    """Show what FastroAI does, in five acts."""
    from demo.pipelines import TICKETS, night_shift, support

    started = perf_counter()
    store = SQLiteRunStore(STORE)
    console.print("[bold]FastroAI in a minute.[/] Two models, served on this machine: nothing costs money.\n")

    act(1, "A pipeline answers a ticket, and says exactly what it cost")
    ticket = TICKETS["T-1"]
    result = await support.run({"ticket": ticket}, run_id="ticket-1", store=store)
    beside = Table.grid(expand=True, padding=(0, 1))
    beside.add_row(Panel(ticket, title="ticket"), Panel(result.output or "", title="reply"))
    console.print(beside)
    console.print(f"{result.usage.request_count} requests, exactly ${result.usage.cost_usd}\n")

    act(2, "A budget stops before the request that would cross it")
    before = server.ledger.totals().requests
    limit = Decimal("0.0001")
    try:
        await support.run({"ticket": ticket}, run_id="ticket-1-cheap", store=store, budget=Budget(usd=limit))
    except CostBudgetExceeded as stop:
        sent = server.ledger.totals().requests - before
        console.print(f"budget ${limit}: {sent} request sent, ${stop.usage.cost_usd} spent, then it stopped:")
        console.print(f"[dim]{stop}[/]\n")

    act(3, "A person decides, and the run waits without a process")
    paused = await support.run({"ticket": TICKETS["T-2"]}, run_id="ticket-2", store=store)
    (asked,) = await Inbox(store).list()
    console.print(f"ticket-2 is {paused.status}: {asked.question} [dim](for the {asked.to})[/]")
    await Inbox(store).answer(asked.id, True, reviewer="Mia", rationale="broken on arrival")
    answered = await support.resume("ticket-2", store=store)
    console.print(f"Mia says yes: {answered.output}\n")
    await support.run({"ticket": TICKETS["T-2"]}, run_id="ticket-3", store=store)

    act(4, "kill -9 in the middle, and nothing is paid twice")
    before = server.ledger.totals().requests
    command = [sys.executable, "-m", "demo", "night-shift"]
    worker = await asyncio.create_subprocess_exec(*command, cwd=Path(__file__).parents[1])
    await server.ledger.wait_for(before + 5)
    worker.kill()
    await worker.wait()
    killed = server.ledger.totals().requests - before
    resumed = await night_shift.resume("night-shift", store=store)
    both = server.ledger.totals().requests - before
    again = resumed.usage.unmeasured_requests
    console.print(
        f"5 tickets need 10 requests. Killed after {killed}, resumed with {both - killed}: {both} were sent"
    )
    console.print(f"{again} was in flight at the kill, and was sent again; nothing else was paid for twice\n")

    act(5, "What each model cost, beside the ledger of the server")
    for row in await RunHistory(store).spending(by=("model",)):
        usage = row.usage
        served = [entry for entry in server.ledger.billed if str(row.model).endswith(f":{entry.model}")]
        tokens = sum(entry.usage.input_tokens + entry.usage.output_tokens for entry in served)
        console.print(
            f"{row.model}: ${usage.cost_usd} for {usage.request_count} requests and {usage.total_tokens:,} "
            f"tokens; the server counts {len(served)} and {tokens:,}"
        )
        if usage.unmeasured_requests:
            console.print(
                f"  [dim]the other {tokens - usage.total_tokens:,} tokens are of the request that the kill "
                "cut off: no answer came, so budgets count the most that it can have cost[/]"
            )
    console.print()
    await store.aclose()

    console.print(
        f"{perf_counter() - started:.1f} s. [bold]make view[/] shows these runs on "
        f"http://127.0.0.1:{PORT}; one of them waits for your answer."
    )
    return 0


def act(number: int, title: str) -> None:
    """Begin an act of the story."""
    console.print(f"[bold cyan]{number}[/] [bold]{title}[/]")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
