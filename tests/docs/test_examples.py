"""Every file in `examples/` runs as it is, offline, and prints what it is there to show."""

from __future__ import annotations

import io
import logging
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import pytest
from support.patience import PATIENCE

from fastroai.functions import reset
from fastroai.testing import ModelServer

EXAMPLES = Path(__file__).parents[2] / "examples"

PRINTS = {
    "ask_a_person": [
        r"^looking up the order\nwaits for 1 answer$",
        r"^for finance: Refund 120 dollars\?\nanswered; run order-1182 waits for no other answer: resume it$",
        r"\nrefunded 120 dollars$",
    ],
    "budget": [
        r"budget of 'book' reached in step 'write'",
        r"spent: \$0\.00[1-3]\d+ of \$0\.004",
        r"went on, for \$0\.0001",
    ],
    "chat": [r"Your name is Ada\."],
    "compare_models": [
        r"^small +50\.0 % \(31\.4 to 68\.6\) +\$0\.0000066 +24 +0 ",
        r"^large - small, equals_expected: \+50\.0 % \(\+25\.6 to \+66\.7\)$",
        r"^12 cases differ:\n  I could not pay for order 0\n     small  other ",
        r"^The comparison has cost \$0\.0009504$",
    ],
    "contracts": [
        r"^order 1001: \$12\.50$",
        r"^step 'invoice': its inputs do not fit its contract: order\.id: .* \(got 'one'\)$",
        r"^step 'price': its output does not fit its contract: .* \(got 'a dozen'\)$",
        r"^step 'price': what it ensures does not hold: the price is positive$",
    ],
    "conversation": [r"What is the number of your order\?", r"-> It is on its way\."],
    "durable_run": [
        r"^read the invoice\npaid\n-- the process dies --\npaid$",
        r"^paper, ink: receipt ....?, for \$0\.03$",
        r"the run was resumed; its process had died or stopped in pay$",
        r"^all runs of 'invoice': \$0\.03 for 'ocr'$",
    ],
    "failing_step": [
        r"step 'look_up' failed: ConnectionError",
        r"ok: False, output: None",
        r"skipped: \{'publish'",
    ],
    "fan_out": [r"\['3 words', '6 words', '2 words'\]", r"3 calls, \$0\.0000"],
    "first_agent": [r"The capital of France is Paris\.", r"cost \$0\.0000195 exactly"],
    "functions_01_sentiment": [
        r"^negative, since: The praise is sarcastic\.$",
        r"^classify \{'text': '<opaque>'\} success$",
        r"^2 attempts, \$0\.000\d+, since ensure: result\.confidence > 0\.7 \(result = .*confidence=0\.42",
    ],
    "functions_02_compute": [
        r"^by_model: billing, urgent: False, 1 requests so far$",
        r"^by_rule: billing, urgent: False, 1 requests so far$",
    ],
    "functions_03_parallel": [
        r"^\['angry', 'billing', 'ModelRequestRejectedError'\]\nbilling$",
        r"^language: failed, \$0\.00$",
        r"^tone: success, \$0\.0000\d+$",
    ],
    "functions_04_refine": [
        r"^text='Warm as a sheep\.' score=9$",
        r"^function 'perfect_slogan': no output of 2 iterations fulfils until=",
        r"^text='Sheep are woolly\.' score=6 until: result\.score == 10 \(result = Slogan\(.*score=6\)\)$",
    ],
    "functions_05_debate": [
        r"^Shall we merge\? \['no', 'no'\], after 3 rounds, converged: True\n6 calls$",
    ],
    "functions_06_human_gate": [
        r"^flow 'refund' is paused",
        r"^paid 80 dollars\n1 request$",
    ],
    "graph_approval": [
        r"^working out the question\norder-1182 waits: Refund order 1182\?$",
        r"^input=.* expected an answer that fits the question of node 'ask': approved: Input should be a "
        r"valid boolean",
        r"^finished: refunded by Mia, \['ask', 'refund'\]$",
    ],
    "graph_conversation": [
        r"^compaction: The story is in a barn, at night\.$",
        r"^user-prompt: Done: node 'imagine' wrote place = \"A barn\. .*Next: node 'write'\.$",
        r"^instructions: You shorten\. .* goal: A story in a sentence .*Your focus now: Every word counts$",
        r"^-> It snows\.$",
        r"^edit: 2 requests, \$0\.0000",
    ],
    "graph_fan_out": [
        r"^\['web: a page on sheep', 'library: a page on sheep'\] \{'archive': 'closed on Mondays'\}$",
        r"^Sheep are woolly, and say so\. \(degraded, \$0\.0000\d+\)$",
        r"^\['plan', \{'web': \['web'\], 'library': \['library'\], 'archive': \['archive'\]\}, 'combine'\]$",
    ],
    "graph_review_loop": [
        r"^Sheep are woolly and kind\. \(write -> read -> write -> read -> publish\)$",
        r"^write 1: 2 requests, \$0\.0000\d+\n(.*\n)write 2: 1 requests, \$0\.0000\d+$",
    ],
    "graph_support": [
        r"^We have refunded the second charge\. \(classify -> reply, \$0\.0000\d+\)$",
        r"the conditional edge to 'reply' is not taken: confidence \(0\.41\) >= 0\.8 is false$",
        r"^A person looks at '.*' \(classify -> escalate, \$0\.0000\d+\)$",
    ],
    "langgraph_node": [
        r"^Sorry for that\.\nclassify: gpt-5-nano, \$0\.0000\d+\nreply: gpt-5-mini, \$0\.0000\d+$",
        r"^praise: \$0\.0000\d+$",
    ],
    "pipeline": [r"We look into it today\.", r"it waited for (classify|summarise) -> reply"],
    "pipeline_events": [
        r"write starts: it needs no other step",
        r"check is done: 'True\.'",
        r"total: \$0\.0000",
    ],
    "plain_agents": [r"A poem about sheep\.(\n.*)*gpt-5-nano: \$0\.0000", r"Sheep, at length\. \$0\.0000"],
    "provider_limits": [
        r"^4 of 6 requests waited: no more than 2 are sent at once$",
        r"^openai failed, anthropic; circuit closed\nopenai failed, anthropic; circuit open$",
        r"^anthropic; circuit open\nanthropic; circuit open$",
    ],
    "quote": [
        r"^agent: \$0\.000001\d* to \$0\.00\d+, expected \$0\.0008\d*$",
        r"^  check: \$0\.00 to \$0\.002, expected \$0\.00$",
        r"^0 requests sent so far$",
        r"^it cost \$0\.0000\d+; the next one is expected to: \$0\.0000",
    ],
    "spend": [
        r"^spend: text-embedding-3-small, \$0\.00000024$",
        r"^spend: search, \$0\.01$",
        r"^2 requests to models, \$0\.0101 in all$",
    ],
    "record_usage": [r"search: search-engine, \$0\.005$", r"total: \$0\.0050"],
    "retries_and_timeouts": [
        r"\['released', 'released', 'settled'\]",
        r"Baa, at last\. after 2 requests, 1 unmeasured",
    ],
    "retry_policy": [
        r"^look_up: the database is starting \(recoverable\), again in 0\.\d s$",
        r"^Invoice 42 is paid\. \[\('released', 0\), \('released', \d+\), \('settled', \d+\)\]$",
        r"^look_up failed: no such invoice\ntold of LookupError\('no such invoice'\) once$",
    ],
    "rows_of_a_table": [
        r"^60 rows will cost about \$0\.0003960$",
        r"^failed budget_exceeded\nfinished 60 rows for \$0\.0003960$",
        r"^T7 is about billing$",
    ],
    "router": [r"gpt-5-nano \(settled\)", r"gpt-5 \(released\), gpt-5-nano \(settled\)"],
    "spend_limit": [
        r"grace: 25% of \$0\.002 is spent\n(.|\n)*grace: 50% of \$0\.002 is spent\n",
        r"ada: 5 of 5 answered for \$0\.0000",
        r"grace: 1\d\d of 200 answered for \$0\.00",
        r"(within the limit: True, until 00:00 UTC\n(.|\n)*){2}",
    ],
    "streaming": [r"what it would cost\.\n\.\.\. \$0\.0000", r"'Once upon a time' is enough\."],
    "structured_output": [r"Ticket\(category='billing', urgent=True\) after 2 requests"],
    "tools": [r"temperature\(\{'city': 'Atlantis'\}\)", r"2 requests, \$0\.0000"],
    "workflow_run": [
        r"^paused: 'approval' waits for an answer$",
        r"^complete: \{'text': 'To migrate, await run\(\)\.', 'breaking': \['run\(\) is async'\]\}$",
        r"^2 requests, \$0\.000\d+$",
    ],
    "usage_report": [
        r"^total +0\.0\d+ +100\.0% +5 ",
        r"^by step(\n  .*)*\n  grade +0\.0000\d+ ",
        r"^by agent(\n  .*)*\n  researcher +0\.00\d+ .* 1,024$",
        r"^by model(\n  .*)*\n  search-engine +0\.0002 ",
        r"^by outcome\n",
        r"^grade: \$0\.0000\d+ exactly, in 2 requests$",
        r"^total,total,5,0,",
    ],
    "tracing": [r"pipeline question: ok after", r"chat gpt-5-mini: ok after .* fastroai\.cost\.usd='0\.0000"],
    "workflow_agent": [
        r"^> May these notes be published\?$",
        r"^fastroai_plan\nfastroai_step_done\nfastroai_step_done$",
        r"^Flow 'release' is complete\.$",
    ],
}
"""What each example must print, as regular expressions."""

RUN_BY_PYTEST = {"testing_your_agent"}


@pytest.fixture
def as_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No key, and the servers that the examples leave running are stopped."""
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "replaced by the example")
    started: list[ModelServer] = []
    start = ModelServer.start

    def start_and_remember(server: ModelServer) -> ModelServer:
        started.append(server)
        return start(server)

    monkeypatch.setattr(ModelServer, "start", start_and_remember)
    yield
    reset()  # what an example has configured for its process
    for server in started:
        server.stop()


@contextmanager
def unconfigured_logging() -> Iterator[None]:
    """As Python starts: pytest has handlers, which would keep `logging.basicConfig` from doing anything."""
    root, tracing = logging.getLogger(), logging.getLogger("fastroai.tracing")
    before = root.handlers, root.level, tracing.level
    root.handlers = []
    try:
        yield
    finally:
        root.handlers = before[0]
        root.setLevel(before[1])
        tracing.setLevel(before[2])


@pytest.mark.usefixtures("as_in_a_process_of_its_own")
@pytest.mark.parametrize("name", PRINTS)
def test_an_example_runs_and_prints_what_it_shows(name: str) -> None:
    printed = io.StringIO()
    with redirect_stdout(printed), unconfigured_logging():
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    for expected in PRINTS[name]:
        assert re.search(expected, printed.getvalue(), re.MULTILINE), printed.getvalue()


def test_an_example_ends_by_itself_and_leaves_nothing_open() -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / "first_agent.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", sorted(RUN_BY_PYTEST))
def test_an_example_that_is_a_test_passes(name: str) -> None:
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:logfire", "-p", "no:langsmith_plugin")
    command = [sys.executable, "-m", "pytest", *options, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_every_example_is_run_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*PRINTS, *RUN_BY_PYTEST}


def test_an_example_is_short_and_begins_by_saying_what_it_shows() -> None:
    for path in EXAMPLES.glob("*.py"):
        source = path.read_text()
        docstring = source.split('"""')[1]
        assert docstring.count("\n") == 3, f"{path.name}: what it shows, an empty line, how to run it"
        assert source.count("\n") <= 60, path.name
