"""The system text is the identity and what the operator wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.prompts.identity import system_text


def test_bootstrap_files_follow_in_a_fixed_order_and_missing_ones_are_skipped(tmp_path: Path) -> None:
    """Each under its name; other files are not read; blank ones count as missing."""
    for name, text in (
        ("USER.md", "likes fish\n"),
        ("AGENTS.md", "be kind"),
        ("SOUL.md", " \n"),
        ("NOTES.md", "secret"),
    ):
        (tmp_path / name).write_text(text)
    identity, *parts = system_text(tmp_path).split("\n\n---\n\n")
    assert identity.startswith("# Shoal")
    assert parts == ["## AGENTS.md\n\nbe kind", "## USER.md\n\nlikes fish"]


def test_without_a_folder_there_is_the_identity_alone(tmp_path: Path) -> None:
    """And it is the same every time."""
    text = system_text(tmp_path / "missing")
    assert text == system_text(tmp_path)
    assert "[Runtime Context]" in text


def test_rules_that_cannot_be_read_stop_the_start(tmp_path: Path) -> None:
    """An agent without its rules must not run."""
    (tmp_path / "AGENTS.md").write_bytes(b"\xff\xfe")
    with pytest.raises(UnicodeDecodeError):
        system_text(tmp_path)
