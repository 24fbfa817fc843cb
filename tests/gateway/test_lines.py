"""Stored lines as the frames of the page."""

from __future__ import annotations

import pytest

from gateway.channels.web.renderer import MarkdownRenderer
from gateway.channels.web.socket.frames import LineRenderer
from shared.messages.outbound import OutboundMessage
from shared.messages.schedule import HEARTBEAT, tick_message
from shared.messages.subagent import SubagentTask, report
from shared.messages.web import ReplyFrame
from shared.store.delivery.outbox import NumberedLine
from tests.helpers.build import message
from tests.helpers.schedules import schedule

NOW = 1_700_000_000_000
PERSONS = message().id
TICK = tick_message(schedule(), NOW, now_ms=NOW, late=False, text="look").id
BEAT = tick_message(schedule(HEARTBEAT), NOW, now_ms=NOW, late=False, text="look").id
TASK = SubagentTask(id="17", session="web:owner/a", turn=1, call_id="c1", task="dig", label="dig")
REPORT = report(TASK, "ok", "gold", now_ms=NOW).id


@pytest.mark.parametrize(
    ("ids", "about"),
    [
        ((), ""), ((PERSONS,), ""), (("child-17",), ""), (("5c7e-1",), ""),
        ((TICK,), "schedule"), ((BEAT,), "schedule"), ((REPORT,), "subagent"),
        ((TICK, PERSONS), "schedule"), ((PERSONS, REPORT), ""),
    ],
)  # fmt: skip
def test_a_reply_says_what_its_turn_began_with(ids: tuple[str, ...], about: str) -> None:
    """Nothing of a person's message, also when a report joined its turn later."""
    line = OutboundMessage(content="well", turn=2, in_reply_to=ids)
    frame = LineRenderer(MarkdownRenderer()).render_now("web:alice/a", "a", NumberedLine(3, line))
    assert isinstance(frame, ReplyFrame)
    assert frame.about == about


@pytest.mark.parametrize(("session", "reads"), [("web:owner/a", True), ("web:alice/a", False), ("cli:owner/a", False)])
def test_the_owner_alone_reads_what_the_provider_says(session: str, reads: bool) -> None:
    """It may name the account behind the model; a chat that the owner shares shows the line as it is stored."""
    line = OutboundMessage(content="Sorry.", turn=2, kind="apology", failed="auth", refusal="no such key")
    frame = LineRenderer(MarkdownRenderer()).render_now(session, "a", NumberedLine(3, line))
    assert isinstance(frame, ReplyFrame)
    assert frame.text == ("Sorry.\n\nThe provider said: no such key" if reads else "Sorry.")
    assert ("no such key" in frame.html) is reads
