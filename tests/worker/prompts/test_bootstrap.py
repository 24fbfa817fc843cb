"""What the operator wrote for the agent."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from shared.errors import SettingsError
from tests.helpers.clock import HandClock
from worker.prompts.system import BOOTSTRAP, Bootstrap


def test_files_follow_in_a_fixed_order_and_missing_ones_are_skipped(tmp_path: Path) -> None:
    """Each under its name; other files are not read; blank ones count as missing; there may be no folder."""
    for name, text in (
        ("USER.md", "likes fish\n"),
        ("AGENTS.md", "be kind"),
        ("SOUL.md", " \n"),
        ("NOTES.md", "secret"),
    ):
        (tmp_path / name).write_text(text)
    assert Bootstrap(tmp_path).parts() == ("## AGENTS.md\n\nbe kind", "## USER.md\n\nlikes fish")
    assert Bootstrap(tmp_path / "missing").parts() == ()
    assert BOOTSTRAP == ("AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "IDENTITY.md")


@pytest.mark.parametrize("name", BOOTSTRAP)
def test_rules_that_cannot_be_read_stop_the_start_with_one_line(tmp_path: Path, name: str) -> None:
    """An agent without its rules must not run."""
    (tmp_path / name).write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match=f"agent.dir: '.*{name}' cannot be read .*: mend it") as raised:
        Bootstrap(tmp_path)
    assert "\n" not in str(raised.value)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    with pytest.raises(SettingsError, match="Is a directory"):
        Bootstrap(tmp_path)


def test_an_edit_takes_effect_within_a_second_without_a_restart(tmp_path: Path) -> None:
    """New files and files taken away, too; in between the same object comes back."""
    clock = HandClock()
    (tmp_path / "AGENTS.md").write_text("one")
    bootstrap = Bootstrap(tmp_path, clock=clock)
    first = bootstrap.parts()
    (tmp_path / "AGENTS.md").write_text("two!")
    (tmp_path / "USER.md").write_text("Ada")
    assert bootstrap.parts() is first
    clock.at += 1
    second = bootstrap.parts()
    assert second == ("## AGENTS.md\n\ntwo!", "## USER.md\n\nAda")
    (tmp_path / "AGENTS.md").unlink()
    clock.at += 1
    assert bootstrap.parts() == ("## USER.md\n\nAda",)


def test_a_file_that_becomes_unreadable_keeps_its_last_good_text_and_is_logged_once(tmp_path: Path) -> None:
    """A worker that runs goes on with the rules it has."""
    clock = HandClock()
    (tmp_path / "AGENTS.md").write_text("be kind")
    bootstrap = Bootstrap(tmp_path, clock=clock)
    first = bootstrap.parts()
    (tmp_path / "AGENTS.md").write_bytes(b"be \xff")
    (tmp_path / "USER.md").mkdir()
    with capture_logs() as logs:
        for _ in range(3):
            clock.at += 1
            assert bootstrap.parts() is first
    assert [(line["event"], line["file"]) for line in logs] == [
        ("bootstrap unreadable", "AGENTS.md"),
        ("bootstrap unreadable", "USER.md"),
    ]
    assert "kind" not in str(logs)
