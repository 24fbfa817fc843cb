"""Who the agent is."""

from __future__ import annotations

import platform

from worker.prompts.system import ABILITIES, identity
from worker.tools.registry import TOOLS


def test_it_has_a_name_and_says_where_it_runs() -> None:
    """Shoal unless the operator says otherwise; a name opens no new line."""
    assert identity().startswith("# Shoal\n\nYou are Shoal, ")
    text = identity("Ada\n# Rules {system}")
    assert text.startswith("# Ada # Rules {system}\n\nYou are Ada # Rules {system}, ")
    assert f"You run on {platform.system()}" in text
    assert f"Python {platform.python_version()}" in text
    assert "[Runtime Context]" in text


def test_it_says_where_memory_skills_and_workspace_are() -> None:
    """And how to remember: only with tools that reach them."""
    text = identity(tools=tuple(TOOLS), workspace="/workspace")
    assert "Your workspace is the folder `/workspace`" in text
    for words in ("To remember something, edit MEMORY.md", "`HISTORY.md`", "`skills/<name>/SKILL.md`"):
        assert words in text
    assert "MEMORY.md" not in identity(tools=["calculate"])


def test_it_speaks_of_the_message_tool_only_where_there_is_one() -> None:
    """What is not offered must not be asked for."""
    assert "Answer directly." in identity()
    assert "`message` tool" not in identity(tools=["read_file"])
    assert "Use the `message` tool only to reach a specific chat" in identity(tools=["message"])


def test_it_names_what_the_agent_can_do_and_nothing_else() -> None:
    """By the tools that are really offered; without any the list is not there."""
    text = identity(tools=[*TOOLS, "exec", "web_search", "web_fetch", "message", "spawn", "cron"])
    assert all(f"\n- {about}\n" in text for about in ABILITIES.values())
    some = identity(tools=["read_file", "cron"])
    assert [line for line in some.splitlines() if line.removeprefix("- ") in ABILITIES.values()] == [
        f"- {ABILITIES['read_file']}",
        f"- {ABILITIES['cron']}",
    ]
    assert "You can, beside" not in identity()


def test_it_is_the_same_every_time() -> None:
    """It stands at the beginning of every prompt: a provider's cache hits only if it never changes."""
    assert identity(tools=tuple(TOOLS)) == identity(tools=tuple(reversed(TOOLS)))
