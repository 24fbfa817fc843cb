"""A message that brings its own conversation."""

from __future__ import annotations

from shared.messages.codec import encode
from shared.messages.inbound import InboundMessage
from shared.messages.transcript import AssistantEntry, UserEntry
from shared.store.turns.queue import Claim, TurnWork
from worker.turn.conversation import read_conversation

BEFORE = (UserEntry(content="be brief", turn=0), UserEntry(content="one", turn=0), AssistantEntry(content="1", turn=0))
SESSION = "api:owner/~abc"


def test_what_a_message_brings_stands_before_it() -> None:
    """In the order in which it came, and before what the session has of its own."""
    message = InboundMessage(
        channel="api", chat_id="owner/~abc", sender_id="owner", id="abc", content="two", timestamp=1, history=BEFORE
    )
    own = UserEntry(content="own", turn=1)
    work = TurnWork(
        n=2,
        record=encode(message),
        errors=0,
        crashes=0,
        stop=0,
        attempt=1,
        model_unavailable_ms=0,
        ledger=(),
        history=(encode(own),),
    )
    conversation = read_conversation(Claim(f"turn:{SESSION}", "worker", "1", 0, False, work))
    assert conversation.history == (*BEFORE, own)
    assert conversation.entry.content == "two"
