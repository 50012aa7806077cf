"""The model server, run by hand: `python -m fastroai.testing`."""

import argparse
import logging
import runpy
import signal
import sys
import threading
from collections.abc import Sequence

from fastroai.testing.answers_of_the_docs import rules
from fastroai.testing.ledger import LedgerTotals
from fastroai.testing.server import ModelServer


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C, with a line for each request, and print the totals."""
    options = _parser().parse_args(arguments)
    try:
        server = ModelServer(
            host=options.host, port=options.port, latency=options.latency, allow_remote=options.allow_remote
        )
        if options.rules is None:
            rules(server)
        else:
            _add_rules(server, options.rules)
        server.start()
    except (ImportError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    logger = logging.getLogger("fastroai.testing")
    logger.addHandler(logging.StreamHandler(sys.stdout))
    logger.setLevel(logging.INFO)
    # A supervisor's signal ends the process as Ctrl-C does, totals included.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        print(f"The model server of FastroAI listens at {server.url}. Ctrl-C ends it. To reach it:\n")
        for name, value in server.environment().items():
            print(f"export {name}={value}")
        print(flush=True)
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        server.stop()
    _print_totals(server.ledger.totals())
    return 0


def _add_rules(server: ModelServer, path: str) -> None:
    """Call the function `rules` of a Python file with the server.

    Raises:
        ValueError: the file cannot be run, or it has no such function.
    """
    try:
        add = runpy.run_path(path, run_name="rules").get("rules")
        if not callable(add):
            raise ValueError(
                "it has no function `rules(server)`, in which server.rule(...) and server.script(...) work"
            )
        add(server)
    except Exception as error:  # it is the user's code
        raise ValueError(f"--rules {path}: {type(error).__name__}: {error}") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fastroai.testing",
        description="A local model server that speaks the protocols of OpenAI and Anthropic, and echoes.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="0 takes a free one (default: %(default)s)")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before every answer")
    parser.add_argument(
        "--rules",
        metavar="FILE",
        help="Python file whose function rules(server) sets the answers (default: those that the docs show)",
    )
    parser.add_argument("--allow-remote", action="store_true", help="permit a host that is not loopback")
    return parser


def _print_totals(totals: LedgerTotals) -> None:
    usage = totals.usage
    print(
        f"\n{totals.requests} requests, {totals.billed} of them billed: "
        f"{usage.input_tokens} input tokens ({usage.cache_read_tokens} cached), "
        f"{usage.output_tokens} output tokens",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
