"""The events that webhooks tell: thin lines of ids, in the form of OpenAI's events, so that its own
clients read them. Pure."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from shared.messages.live import TurnEvent, decode_live
from shared.messages.outbound import OutboundMessage
from shared.store.delivery.notices import Notice

_ENDS: Final = {"done": "turn.completed", "stopped": "turn.stopped", "failed": "turn.failed"}


class HookEvent(msgspec.Struct, frozen=True):
    """Something that happened. `unique` tells it from all others of its type; it is the same
    whenever the event is made again."""

    type: str
    unique: str
    at_ms: int
    data: dict[str, Any]

    def body(self, endpoint: str) -> bytes:
        """Return the body of the webhook for an endpoint. Its id is the webhook's."""
        identity = f"{endpoint}\0{self.type}\0{self.unique}"
        id = hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()
        event = {"id": f"evt_{id}", "object": "event", "type": self.type, "created_at": self.at_ms // 1000}
        return msgspec.json.encode(event | {"data": self.data})


def turn_event(notice: Notice) -> HookEvent | None:
    """Return the event of a turn that a notice tells; None if it tells none."""
    word, _, rest = notice.what.partition(" ")
    data: dict[str, Any] = {"session": notice.session, "turn": notice.turn}
    match word:
        case "approval":
            type = "approval.requested"
            data["id"] = rest
        case "calls":
            type = "calls.requested"
            data["calls"] = rest.split()
        case _:
            type = _end_of(notice.what)
    # Ids of notices come from the server's clock: a session that was erased counts from 1 again.
    return HookEvent(type, f"{notice.session}\0{notice.id}", notice.at_ms, data) if type else None


def response_event(id: str, line: OutboundMessage) -> HookEvent | None:
    """Return the event of a stored response that a line ends; None for a line that ends none."""
    status = response_status(id, line)
    return HookEvent(f"response.{status}", id, line.at, {"id": f"resp_{id}"}) if status else None


def response_status(id: str, line: OutboundMessage) -> str:
    """Return the status that a response has by the line that ends it, as the API shows it; "" for a
    message that was not read because its chat was busy."""
    match line.kind:
        case "notice":
            return "completed" if line.calls is not None else ""
        case "apology":
            return "failed"
        case "stopped" | "withdrawn":
            return "cancelled"
        case "command" if line.in_reply_to[0] != id:
            # Dropped with its conversation.
            return "cancelled"
        case _:
            return "incomplete" if line.unfinished else "completed"


def _end_of(what: str) -> str:
    try:
        event = decode_live(what.encode())
    except msgspec.DecodeError:
        return ""
    return _ENDS.get(event.state, "") if isinstance(event, TurnEvent) else ""
