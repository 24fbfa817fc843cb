"""`/pair`: lets a person in by the code they were sent."""

from __future__ import annotations

from typing import Final

from gateway.commands.command import CommandAnswer, CommandContext
from shared.clock import SYSTEM_CLOCK, Clock
from shared.store.access.audit import Audit, actor_of
from shared.store.access.pairing import PairingFailed, Pairings, let_in_line
from shared.store.client.redis_client import RedisClient

ADMIN: Final = "admin"
"""Metadata key: "1" if the sender is in `admins` of the channel, in a direct chat. Only the inlet
sets it."""


class PairCommand:
    """Lets a person in through the store, which counts one message once."""

    name = "pair"
    about = "let somebody in by the code they were sent: `/pair CODE`"

    def __init__(self, client: RedisClient, clock: Clock = SYSTEM_CLOCK) -> None:
        self._pairings = Pairings(client)
        self._audit = Audit(client)
        self._clock = clock

    async def answer(self, context: CommandContext) -> CommandAnswer:
        message = context.message
        actor = actor_of(message.channel, message.sender_id)
        if message.metadata.get("group") == "1":
            return CommandAnswer("Please say that to me alone, not in a group.")
        if message.metadata.get(ADMIN) != "1":
            await self._audit.record("pairing", "no_admin", actor=actor, session=message.session)
            return CommandAnswer("Only who is named in `admins` of this channel can let people in.")
        if not context.argument:
            return CommandAnswer("Which code? `/pair CODE`")
        try:
            person = await self._pairings.approve(
                context.argument,
                let_in_line(self._clock.now_ms()),
                by=actor,
                request=f"{message.session}/{message.id}",
                channel=message.channel,
            )
        except PairingFailed as exc:
            return CommandAnswer(f"Nobody was let in: {exc.message}.")
        name = f"{person.name} " if person.name else ""
        return CommandAnswer(f"Let in: {name}(`{person.sender}`).")
