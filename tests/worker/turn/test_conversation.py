"""A message that brings its own conversation."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shared.messages.codec import encode
from shared.messages.inbound import InboundMessage
from shared.messages.live import DeltaEvent, encode_live
from shared.messages.transcript import AssistantEntry, ToolCall, UserEntry
from shared.store.turns.queue import Claim, TurnWork
from tests.helpers.build import claim_of, message
from worker.turn.conversation import NOBODY, ShownBy, read_conversation

BEFORE = (UserEntry(content="be brief", turn=0), UserEntry(content="one", turn=0), AssistantEntry(content="1", turn=0))
SESSION = "api:owner/~abc"


def test_what_a_message_brings_stands_before_it() -> None:
    """In the order in which it came, and before what the session has of its own."""
    brings = InboundMessage(
        channel="api", chat_id="owner/~abc", sender_id="owner", id="abc", content="two", timestamp=1, history=BEFORE
    )
    own = UserEntry(content="own", turn=1)
    work = TurnWork(
        n=2,
        record=encode(brings),
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


@pytest.mark.parametrize(
    ("turn", "step", "begun"), [(1, 1, "Once upon"), (1, 0, ""), (2, 1, "")], ids=["open", "in the ledger", "another"]
)
def test_text_that_was_shown_is_gone_on_with_unless_its_reply_is_stored(turn: int, step: int, begun: str) -> None:
    """A step of the ledger ends the text before it; the screens keep it all the same."""
    first = DeltaEvent(turn, 1, 4, "Once", full=True, step=step, at=7, worker="a")
    deltas = first, DeltaEvent(turn, 1, 5, " upon", step=step, at=9)
    shown = (*map(encode_live, deltas), b"junk")
    step_record = encode(AssistantEntry(content="I go.", turn=1, tool_calls=(ToolCall("1", "act", "{}"),)))
    claim = claim_of("web:owner/a")
    assert claim.turn is not None
    work = replace(claim.turn, record=encode(message(chat="owner/a")), ledger=(step_record,), shown=shown)
    conversation = read_conversation(replace(claim, turn=work))
    assert conversation.begun == begun
    assert conversation.shown == ("Once upon" if turn == 1 else "")
    assert conversation.shown_by == (ShownBy("a", 9) if turn == 1 else NOBODY)
