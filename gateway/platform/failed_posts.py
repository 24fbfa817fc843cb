"""Posts that a platform accepted and later reports as not delivered."""

from __future__ import annotations

from typing import Final

from shared.ids import log_id, session_id
from shared.log import logger
from shared.metrics import DELIVERY_FAILED_LATER

REASON_CHARS: Final = 100

log = logger("delivery")


def failed_later(channel: str, chat_id: str, reason: str) -> None:
    """Count and log one such post. `chat_id` is '' when the platform does not say where; `reason`
    is the platform's word and holds no text of a message. Nothing is sent again: the line is not
    known any more."""
    DELIVERY_FAILED_LATER.labels(channel).inc()
    session = log_id(session_id(channel, chat_id)) if chat_id else None
    log.warning("post failed later", channel=channel, session=session, reason=reason[:REASON_CHARS])
