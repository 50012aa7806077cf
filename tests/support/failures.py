"""Failures are said when they happen: `pytest -q` names them when all tests have ended."""

from __future__ import annotations

import pytest


class FailuresAtOnce:
    """A plugin for the process that has the terminal."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self.terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = f": {crash.message.splitlines()[0]}" if crash is not None and crash.message else ""
            self.terminal.write_line(f"\nFAILED {report.nodeid} ({report.when}){reason}", red=True)
            self.terminal.flush()
