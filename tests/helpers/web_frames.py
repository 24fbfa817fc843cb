"""Frames of the gateway with little in them, for tests of clients."""

from __future__ import annotations

from shared.messages.web import ApprovalFrame, MediaFrame, MessageFrame, ReplyFrame


def message_frame(chat: str, seq: int, id: str, text: str) -> MessageFrame:
    """A line of the person's."""
    return MessageFrame(chat, seq, id, text, at=0)


def reply_frame(
    chat: str,
    seq: int,
    turn: int,
    text: str,
    in_reply_to: tuple[str, ...] = (),
    kind: str = "reply",
    *,
    media: tuple[MediaFrame, ...] = (),
    buttons: tuple[str, ...] = (),
    sent_by_tool: bool = False,
    sources: tuple[str, ...] = (),
) -> ReplyFrame:
    """A line of Shoal's."""
    return ReplyFrame(
        chat, seq, turn, text, "", in_reply_to, kind, 0,
        media=media, buttons=buttons, sent_by_tool=sent_by_tool, sources=sources,
    )  # fmt: skip


def approval_frame(
    chat: str, seq: int, turn: int, call: str, state: str, tool: str, text: str, arguments: str = "", by: str = ""
) -> ApprovalFrame:
    """A request to run a tool, or its outcome."""
    return ApprovalFrame(chat, seq, turn, call, state, tool, text, "", 0, arguments=arguments, by=by)


def media_frame(name: str, size: int) -> MediaFrame:
    """A file of a line."""
    return MediaFrame(ref=name, path=f"/media/a/{name}", name=name, type="text/plain", size=size, about="text")
