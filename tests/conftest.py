"""What a machine cannot run is listed at the end, with the reason; in CI it is a failure."""

from __future__ import annotations

import os
import time

import pytest

STARTED = time.monotonic()
SPENT: dict[str, float] = {}
SKIPPED: list[tuple[str, str]] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    part = "/".join(report.nodeid.split("::")[0].split("/")[:3])
    SPENT[part] = SPENT.get(part, 0.0) + report.duration
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        SKIPPED.append((report.nodeid, reason.removeprefix("Skipped: ")))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("where the time went")
    for part, seconds in sorted(SPENT.items(), key=lambda item: -item[1])[:25]:
        terminalreporter.write_line(f"{seconds:7.1f} s  {part}")
    terminalreporter.write_line(f"{time.monotonic() - STARTED:7.1f} s  in all")
    if SKIPPED:
        terminalreporter.section("this machine could not run")
        for name, reason in SKIPPED:
            terminalreporter.write_line(f"{name}: {reason}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if SKIPPED and os.environ.get("CI") == "true" and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
