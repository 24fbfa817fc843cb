"""`/pair`: lets a person in by the code they were sent."""

from __future__ import annotations

from typing import Final

from gateway.commands.command import CommandContext
from shared.clock import SYSTEM_CLOCK
from shared.store.access.audit import Audit, actor_of
from shared.store.access.pairing import PairingFailed, Pairings, let_in_line

ADMIN: Final = "admin"
"""Metadata key: "1" for one of `admins` in a direct chat. Only the inlet sets it."""


async def answer_pair(context: CommandContext) -> str:
    """Let a person in through the store, which counts one message once."""
    message = context.message
    actor = actor_of(message.channel, message.sender_id)
    if message.metadata.get("group") == "1":
        return "Please say that to me alone, not in a group."
    if message.metadata.get(ADMIN) != "1":
        await Audit(context.client).record("pairing", "no_admin", actor=actor, session=message.session)
        return "Only who is named in `admins` of this channel can let people in."
    if not context.argument:
        return "Which code? `/pair CODE`"
    try:
        person = await Pairings(context.client).approve(
            context.argument,
            let_in_line(SYSTEM_CLOCK.now_ms()),
            by=actor,
            request=f"{message.session}/{message.id}",
            channel=message.channel,
        )
    except PairingFailed as exc:
        return f"Nobody was let in: {exc.message}."
    name = f"{person.name} " if person.name else ""
    return f"Let in: {name}(`{person.sender}`)."
