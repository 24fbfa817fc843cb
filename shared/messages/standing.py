"""Standing approvals: a person's yes to every later call of one kind in one chat."""

from __future__ import annotations

from typing import Final

import msgspec

from shared.messages.codec import Decoder

STANDING_CHARS: Final = 1_000
"""The longest card of a command that can be approved for good: a list of them stays readable."""


class StandingApproval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A yes that stands until it is taken back. `covers` is what it is for, as `coverage` writes
    it; `id` is the question that it answered, `by` the sender who said it. `arguments` is the card
    of a command, "" where any arguments are covered. `lib/approvals.lua` writes it."""

    id: str
    covers: str
    tool: str
    by: str
    arguments: str = ""
    at: int = 0


_decode: Decoder[list[StandingApproval]] = Decoder(list[StandingApproval])


def parse_standing(field: bytes | None) -> tuple[StandingApproval, ...]:
    """Return the standing approvals of a session; none for what cannot be read: then it asks."""
    return tuple(_decode.or_none(field) or ()) if field else ()


def coverage(tool: str, digest: str, folder: str) -> str:
    """Return what a standing approval of a call covers: a command by its exact words, of another
    tool every call; while the chat works on that folder of the operator ("" = its workspace)."""
    call = f"call {digest}" if tool == "exec" else f"tool {tool}"
    return f"{call} in {folder}" if folder else call
