"""Fails a suite that skips a test for a reason that nobody listed; a conftest takes it in by importing the hook."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails a suite that skips a test for a reason that tests/skips.txt does not list, where launch/test.sh asks for that."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not os.environ.get("JDISTILL_ONLY_LISTED_SKIPS"):  # a worker; somebody's own pytest
        return
    lines = (Path(__file__).parent / "skips.txt").read_text().splitlines()
    listed = re.compile("|".join(line for line in lines if line and not line.startswith("#")))
    reasons = {(report.nodeid, str(report.longrepr)) for report in reporter.stats.get("skipped", [])}
    unlisted = sorted(f"{test}: {reason}" for test, reason in reasons if not listed.search(reason))
    if unlisted:
        reporter.write_line("\nskipped for a reason that is not in tests/skips.txt:\n" + "\n".join(unlisted), red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
