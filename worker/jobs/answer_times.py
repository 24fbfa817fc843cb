"""How long people waited for what a turn answered."""

from __future__ import annotations

from shared.messages.live import TurnState
from shared.messages.schedule import is_background
from shared.metrics import ANSWER_SECONDS
from worker.turn.conversation import Conversation


def count_answers(conversation: Conversation, state: TurnState, now_ms: int) -> None:
    """Count each message that a turn ended, one that joined it as well, but none for which no
    person waits.

    From the clock of the gateway that accepted it to this worker's, so it is as right as both are;
    never below 0.
    """
    for message in conversation.messages:
        if is_background(message):
            continue
        ANSWER_SECONDS.labels(state).observe(max(0, now_ms - message.timestamp) / 1000)
