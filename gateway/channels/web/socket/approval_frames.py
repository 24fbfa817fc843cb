"""The frames of a question whether a tool may run, and of its answer."""

from __future__ import annotations

from msgspec import Struct

from shared.messages.outbound import ApprovalState


class Approve(Struct, frozen=True, tag_field="type", tag="approve"):
    """The answer to a question whether a tool may run; with the `digest` of its frame only to what
    that showed."""

    chat: str
    call: str
    yes: bool
    digest: str = ""


class ApprovalFrame(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="approval"):
    """A line of the log: may this tool run with these arguments (`state` is open)? Or what was
    answered (`yes`, `no`), and by whom. `call` names the question; after `expires_at` (ms) it
    counts as a no. `text` and `html` say the same for people."""

    chat: str
    seq: int
    turn: int
    call: str
    state: ApprovalState
    tool: str
    text: str
    html: str
    at: int
    arguments: str = ""
    digest: str = ""
    expires_at: int = 0
    by: str = ""
