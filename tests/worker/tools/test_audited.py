"""What tools do that somebody may ask about later leaves a line, and no text."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.errors import ToolFailed
from shared.ids import log_id
from shared.media.store import MediaStore
from shared.settings import MediaSettings
from shared.store.access.audit import Audit
from shared.store.client.redis_client import RedisClient
from tests.worker.tools.test_message import Effects
from worker.agent.tools.tool import ToolContext
from worker.guards.chats import ChatPolicy
from worker.guards.workspace import Workspaces
from worker.sandbox.command import CommandLimits, Finished, Limiter, SandboxCommand
from worker.tools.exec import Exec, ExecArguments
from worker.tools.message import MessageArguments, MessageTool

SESSION = "web:owner/a"


class Sandbox:
    """Runs nothing; keeps what it was given, and what the record said then."""

    tier = "none"
    limited_by: Limiter = "census"

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self.before: list[str] = []

    async def run(self, command: SandboxCommand) -> Finished:
        self.before = [line.kind for line in await self._audit.newest(9)]
        return Finished(ended="exit", output=b"", code=0)

    async def close(self) -> None:
        pass


async def test_a_command_leaves_a_line_before_it_runs(client: RedisClient, tmp_path: Path) -> None:
    """With the hash of its arguments, which the log has too: a command that takes its worker down is known as well."""
    audit = Audit(client)
    sandbox = Sandbox(audit)
    tool = Exec(sandbox, Workspaces(tmp_path), limits=CommandLimits(wall_s=60), audit=audit)
    context = ToolContext(session=SESSION, turn=3, call_id="c1")
    for line in ("echo secret", "echo secret", "echo other"):
        await tool.run(ExecArguments(line), context)
    lines = await audit.newest(9)
    assert sandbox.before == ["exec"] * 3
    assert {(one.kind, one.outcome, one.actor, one.session, one.turn) for one in lines} == {
        ("exec", "run", "agent", log_id(SESSION), 3)
    }
    other, again, first = (one.about for one in lines)
    assert again == first != other
    assert "secret" not in str(lines)


async def test_a_chat_of_somebody_else_that_was_asked_for_leaves_a_line(client: RedisClient, tmp_path: Path) -> None:
    """Refused or granted by the operator; the person's own chats leave none."""
    audit = Audit(client)
    media = MediaStore(MediaSettings(dir=tmp_path))
    tool = MessageTool(ChatPolicy(["web:ann/*"]), media, files=2, audit=audit)
    context = ToolContext(session=SESSION, turn=7, call_id="c", effects=Effects())
    for chat in ("a", "b", None):
        await tool.run(MessageArguments(text="psst", chat=chat), context)
    assert await audit.newest(9) == []
    with pytest.raises(ToolFailed, match="not your chat"):
        await tool.run(MessageArguments(text="psst", chat="bob/main"), context)
    await tool.run(MessageArguments(text="psst", chat="web:ann/main"), context)
    granted, refused = await audit.newest(9)
    assert (refused.kind, refused.outcome, refused.turn) == ("message", "not_your_chat", 7)
    assert (granted.outcome, granted.about) == ("granted", log_id("web:ann/main"))
    assert "psst" not in str([granted, refused])
