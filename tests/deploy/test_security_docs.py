"""docs/security.md names code and tests that are there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest

from tests.deploy.test_docs import ROOT, spans, tables, wrong_tests

TEXT = (ROOT / "docs" / "security.md").read_text()


def rows() -> list[list[str]]:
    """One for each control."""
    [found] = [rows for head, rows in tables(TEXT) if head[:1] == ["control"]]
    return found


def test_every_control_names_its_code_and_tests_that_exist() -> None:
    """A control without a test is a wish, and one without code is none."""
    assert len(rows()) >= 20
    wrong = {
        control: [path for path in spans(where) if not (ROOT / path).is_file()] + wrong_tests([tests])
        for control, where, tests, _, _ in rows()
    }
    assert {control: found for control, found in wrong.items() if found} == {}
    assert [control for control, where, *_ in rows() if not spans(where)] == []


@pytest.mark.slow
def test_the_number_of_attempts_is_that_of_the_tests() -> None:
    """As pytest collects them, with those that only the long run has."""
    named = {control: {span for span in spans(tests) if "::" in span} for control, _, tests, _, _ in rows()}
    files = sorted({f"tests/{test.partition('::')[0]}" for tests in named.values() for test in tests})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", "-o", "addopts=", *files]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    cases = Counter(line.removeprefix("tests/").partition("[")[0] for line in listed.splitlines())
    written = {control: int(attempts) for control, _, _, attempts, _ in rows()}
    assert written == {control: sum(cases[test] for test in tests) for control, tests in named.items()}


def test_every_link_leads_to_a_file() -> None:
    """Nobody is sent nowhere."""
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", TEXT)
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
