"""docs/security.md names code and tests that are there."""

from __future__ import annotations

import re

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
        for control, where, tests, _ in rows()
    }
    assert {control: found for control, found in wrong.items() if found} == {}
    assert [control for control, where, _, _ in rows() if not spans(where)] == []


def test_every_link_leads_to_a_file() -> None:
    """Nobody is sent nowhere."""
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", TEXT)
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
