"""What failed in a run of pytest, a line each: `-p tests.helpers.failures --failures FILE`."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """One option."""
    parser.addoption("--failures", type=Path, metavar="FILE", help="write each failed test and its error there")


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """Write {test: first line of its first error}; of a run that was not whole, too."""
    yield
    file: Path | None = session.config.option.failures
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if file is None or reporter is None or hasattr(session.config, "workerinput"):
        return
    failed: dict[str, str] = {}
    for report in (*reporter.stats.get("failed", ()), *reporter.stats.get("error", ())):
        failed.setdefault(report.nodeid, first_line(report))
    file.write_text(json.dumps(failed))


def first_line(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Say in a line why it failed."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text: str = crash.message if crash is not None else str(report.longrepr)
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason is known")
