"""What happens around a fork: objects start anew in the child, and a gate keeps code whole."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable

import pytest
from support.patience import PATIENCE

from fastroai.forks import ForkGate, in_forked_process

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

gate = ForkGate()


def exit_code(work: Callable[[], object]) -> int:
    """Do something in a forked process: 0 if it is done, 1 if it raised."""
    child = os.fork()
    if not child:  # pragma: no cover
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Counter:
    def __init__(self) -> None:
        self.forks = 0
        in_forked_process(self.note)

    def note(self) -> None:
        self.forks += 1


def test_a_method_is_called_in_the_forked_process_and_only_there() -> None:
    counter = Counter()

    def work() -> None:
        assert counter.forks == 1
        assert exit_code(lambda: check(counter.forks == 2)) == 0

    assert exit_code(work) == 0
    assert counter.forks == 0


def test_an_object_that_is_gone_is_not_called_and_not_kept() -> None:
    told: list[str] = []

    class Short:
        def note(self) -> None:
            told.append("called")

    short = Short()
    in_forked_process(short.note)
    del short
    gc.collect()
    assert exit_code(lambda: check(not told)) == 0


def test_a_fork_waits_until_nobody_is_inside_of_the_gate() -> None:
    state: list[str] = []
    inside, may_end = threading.Event(), threading.Event()

    def work() -> None:
        with gate:
            inside.set()
            may_end.wait(PATIENCE)
            with gate:  # again, though a fork waits
                state.append("whole")

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(PATIENCE)
    threading.Timer(0.05, may_end.set).start()
    assert exit_code(lambda: check(state == ["whole"])) == 0
    thread.join(PATIENCE)


def test_the_gate_is_open_in_both_processes_after_a_fork() -> None:
    def work() -> None:
        with gate:
            pass

    assert exit_code(work) == 0
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_thread_may_fork_inside_of_the_gate() -> None:
    def nested() -> None:
        with gate:
            pass

    with gate:
        assert exit_code(nested) == 0
    nested()


@pytest.mark.slow
def test_a_call_before_a_fork_has_nobody_inside_and_sees_what_was_left() -> None:
    own = ForkGate()
    seen: list[int] = []
    values: list[int] = []
    own.before_fork(lambda: seen.append(len(values) % 2))
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            with own:
                values.append(1)
                values.append(1)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            assert exit_code(lambda: check(len(values) % 2 == 0)) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert seen == [0] * len(seen)
    assert len(seen) >= 20


def check(holds: bool) -> None:
    assert holds
