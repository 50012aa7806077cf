"""Answers a folder of support tickets: `python examples/support_desk --docs FOLDER --out FOLDER`."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import pydantic_ai
import report
from account import Account
from desk import Desk, load_orders
from documents import Document, FolderError, read_folder
from lines import Lines
from models import ModelError, Staff, hire
from pipelines import desk_pipeline, ticket_pipeline
from rich.console import Console

from fastroai import Budget, ConfigurationError, FastroAIError, format_cost, usage_of

TICKETS = Path(__file__).with_name("tickets")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo. 0: every document has a reply; 1: not every one; 2: nothing was tried, bad input."""
    options = _parser().parse_args(arguments)
    console = _console()
    pydantic_ai.BANNER_ENABLED = False  # it would land in the middle of the progress display
    try:
        documents = read_folder(options.docs)
        _make_folder(options.out, options.docs)
        with hire(os.environ.get("FASTROAI_MODEL")) as staff:
            console.print(f"{staff.description}\n", markup=False)
            return asyncio.run(_answer(documents, staff, options, console))
    except (FolderError, ModelError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except FastroAIError as error:
        print(f"error: {error}; {_spent(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        print(f"stopped; {_spent(stop)}", file=sys.stderr)
        return 130


async def _answer(
    documents: Sequence[Document], staff: Staff, options: argparse.Namespace, console: Console
) -> int:
    tickets = ticket_pipeline(staff.agents)
    started = perf_counter()
    with Lines(console) as lines:
        desk = desk_pipeline(
            tickets,
            concurrency=options.concurrency,
            budget=options.budget,
            on_event=lines.on_event,
        )
        run = await desk.execute({"documents": documents}, Desk(staff.agents, load_orders(), options.out))
    seconds = perf_counter() - started

    account = Account.of(run, list(tickets.steps), staff.ledger)
    path = options.out / "report.json"
    report.write(path, account)
    console.print(f"\n{len(documents)} documents in {seconds:.1f} s, {options.concurrency} at a time\n")
    report.show(console, account)
    console.print(
        f"{account.replies} replies in {options.out}, the account in {path}", markup=False, soft_wrap=True
    )
    return 0 if account.is_clean else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="support_desk", description="Answer a folder of support tickets, and account for every token."
    )
    parser.add_argument("--docs", type=Path, default=TICKETS, metavar="FOLDER", help="the tickets")
    parser.add_argument(
        "--out", type=Path, default=Path("out/replies"), metavar="FOLDER", help="for the replies"
    )
    parser.add_argument(
        "--concurrency", type=_count, default=4, metavar="N", help="tickets at once (default: 4)"
    )
    parser.add_argument(
        "--budget",
        type=_budget,
        default="1.00",
        metavar="DOLLARS",
        help="what the whole run may cost (default: 1.00)",
    )
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number, 1 or more; got {text!r}")
    return int(text)


def _budget(text: str) -> Budget:
    try:
        return Budget(usd=text)
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _console() -> Console:
    """Plain text where the output is no terminal, wide enough for the tables."""
    if reconfigure := getattr(sys.stdout, "reconfigure", None):
        reconfigure(errors="replace")
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, force_terminal=False, no_color=True, width=110)


def _spent(error: BaseException) -> str:
    spent = usage_of(error)
    return f"spent {format_cost(spent)}" if spent else "nothing was spent"


def _make_folder(folder: Path, documents: Path) -> None:
    if folder.resolve() == documents.resolve():
        raise FolderError(
            "--out is the folder of the documents, and replies have their names; choose another"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderError(f"cannot write to the folder {str(folder)!r}: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
