"""The records as release 1 reads them: copies of its Structs, never changed again."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec


class InboundMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="in"):
    channel: str
    chat_id: str
    sender_id: str
    id: str
    content: str
    timestamp: int
    media: tuple[str, ...] = ()
    metadata: dict[str, str] = {}
    thread: str | None = None
    traceparent: str | None = None
    v: int = 1


class OutboundMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="out"):
    content: str
    turn: int
    in_reply_to: tuple[str, ...] = ()
    kind: Literal["reply", "stopped", "apology", "notice"] = "reply"
    media: tuple[str, ...] = ()
    reply_to: str | None = None
    buttons: tuple[str, ...] = ()
    at: int = 0
    v: int = 1


class SaidLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="said"):
    id: str
    text: str
    at: int = 0
    v: int = 1


class ToolCall(msgspec.Struct, frozen=True):
    id: str
    name: str
    arguments: str


class UserEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="user"):
    content: str
    turn: int
    at: int = 0
    sender_id: str = ""
    v: int = 1


class AssistantEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="assistant"):
    content: str | None
    turn: int
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    at: int = 0
    v: int = 1


class ToolEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="tool"):
    call_id: str
    name: str
    content: str
    turn: int
    ok: bool = True
    at: int = 0
    v: int = 1


class IntentEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="intent"):
    call_id: str
    turn: int
    at: int = 0
    v: int = 1


class TurnEvent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="turn"):
    turn: int
    state: Literal["started", "done", "stopped", "failed"]
    attempt: int = 1


class DeltaEvent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="delta"):
    turn: int
    attempt: int
    seq: int
    text: str
    full: bool = False


class ProgressEvent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="progress"):
    turn: int
    text: str


class Presence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: str
    name: str
    host: str
    pid: int
    started_at: int
    version: str
    running: int = 0
    slots: int = 0
    draining: bool = False
    details: dict[str, str] = {}


READERS: Final[dict[str, Any]] = {
    "inbound": msgspec.msgpack.Decoder(InboundMessage),
    "line": msgspec.msgpack.Decoder(OutboundMessage | SaidLine),
    "transcript": msgspec.msgpack.Decoder(UserEntry | AssistantEntry | ToolEntry),
    "ledger": msgspec.msgpack.Decoder(AssistantEntry | IntentEntry | ToolEntry),
    "live": msgspec.json.Decoder(TurnEvent | DeltaEvent | ProgressEvent),
    "presence": msgspec.json.Decoder(Presence),
}


def read(kind: str, data: bytes) -> Any:
    """What release 1 makes of bytes: a line that it cannot read is a notice, a live event none; else it raises."""
    try:
        return READERS[kind].decode(data)
    except msgspec.ValidationError:
        if kind == "line":
            return OutboundMessage(content="(a line that this version of Shoal cannot show)", turn=0, kind="notice")
        if kind == "live":
            return None
        raise
