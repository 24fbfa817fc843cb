"""How a turn's last line answers a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.channels.web.api.errors import ApiError
from shared.messages.answer import RequestFailed, StoredAnswer
from shared.messages.outbound import OutboundMessage

BUSY_S: Final = 5.0

DROPPED: Final = StoredAnswer(
    failed=RequestFailed(
        status=409,
        code="turn_dropped",
        message="the message was taken out of its session before it was answered, by /new, /forget or an operator",
    )
)


def stored_answer(line: OutboundMessage, sent_texts: Sequence[str], ticket: str) -> StoredAnswer:
    """The answer to message `ticket`, which `line` ends; `said` is what the agent said before,
    beside its reply.

    Raises ApiError (429) when the message was not read because its chat is busy.
    """
    match line.kind:
        case "notice":
            raise session_busy()
        case "apology":
            return StoredAnswer(failed=RequestFailed(status=500, code="turn_failed", message=line.content))
        case "command" if line.in_reply_to[0] != ticket:
            return DROPPED
        case "withdrawn":
            return DROPPED
        case _:
            text = "\n\n".join(filter(None, [*sent_texts, line.content]))
            return StoredAnswer(text=text, finish="length" if line.unfinished else "stop", usage=line.usage)


def session_busy() -> ApiError:
    """A session that takes no message while it answers one."""
    return ApiError(
        429,
        "this session answers another message, and takes none meanwhile; ask again when it has",
        code="busy",
        retry_after_s=BUSY_S,
    )
