"""What a chat waits for, as far as one gateway knows."""

from __future__ import annotations

from gateway.channels.web.socket.chat_view import OpenChat
from shared.messages.outbound import OutboundMessage, UserLine


def room() -> OpenChat:
    """Two messages are open, the first one's turn runs."""
    made = OpenChat("web:owner/a", "a", 0.0)
    made.add_line(UserLine(id="m1", text="first"))
    made.add_line(UserLine(id="m2", text="second"))
    made.set_running(1, frozenset())
    return made


def test_a_command_beside_a_turn_leaves_it_awaited() -> None:
    """`/status` is answered; the turn is not."""
    made = room()
    made.add_line(UserLine(id="c1", text="/status"))
    made.add_line(OutboundMessage(content="x", turn=0, in_reply_to=("c1",), kind="command"))
    assert made.unanswered() == {"m1", "m2"}
    assert made.reply_due


def test_after_a_new_conversation_nothing_is_awaited() -> None:
    """Its answer names all that is over, and every turn up to its own."""
    made = room()
    made.add_line(UserLine(id="c1", text="/new"))
    made.add_line(OutboundMessage(content="x", turn=2, in_reply_to=("c1", "m1", "m2"), kind="command"))
    assert not made.reply_due
