"""Reply sent once to senders who may not talk to the bot, with a pairing code where enabled."""

from __future__ import annotations

from typing import Final, TypeVar

from gateway.platform.access import Verdict
from gateway.platform.protocol import PlatformMessage
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import Refused
from shared.messages.inbound import InboundMessage
from shared.messages.outbound import OutboundMessage
from shared.store.access.pairing import CODE_MS, PairedPerson, Pairings

T = TypeVar("T")

KNOWN_S: Final = 1.0  # seconds for which the store's answer whether a sender was let in is cached
PEOPLE: Final = 10_000  # senders that a process caches; past it the cache is emptied
NAME_CHARS: Final = 80
AGAIN_S: Final = 60.0  # pause after the store refused a notice because it is full
CODE: Final = (
    "I do not know you yet, so I have not read this. To be let in, give this code to whoever runs me: "
    "**{code}**\n\nIt is good for {minutes} minutes, and once. Your id here is `{id}`."
)
NOBODY: Final = (
    "I may not talk with you, so I have not read this, and I will not answer again. Whoever runs me "
    "can let you in by your id, `{id}`."
)
IN_GROUP: Final = (
    "I may not talk with you in this group. Whoever runs me can change that; your id here is `{id}`, "
    "the group's is `{group}`."
)
GROUP: Final = (
    "I may not talk in this group, and I will not answer here again. Whoever runs me can change that; "
    "the group's id is `{group}`."
)
_TEXTS: Final = {"group_not_allowed": GROUP, "group_sender_not_allowed": IN_GROUP}


class StrangerReplies:
    """The replies of one channel to senders who are not allowed. Methods raise RedisAway."""

    def __init__(self, channel: str, pairings: Pairings, clock: Clock = SYSTEM_CLOCK) -> None:
        self._channel = channel
        self._pairings = pairings
        self._clock = clock
        self._known: dict[str, tuple[float, bool]] = {}
        self._quiet: dict[str, float] = {}

    async def is_let_in(self, sender: str) -> bool:
        """Return whether a sender was let in by a code; the answer may be up to a second old."""
        now = self._clock.monotonic()
        asked_at, known = self._known.get(sender, (-KNOWN_S, False))
        if now - asked_at < KNOWN_S:
            return known
        known = await self._pairings.is_let_in(self._channel, sender)
        _remember(self._known, sender, (now, known))
        return known

    async def turn_away(self, event: PlatformMessage, verdict: Verdict) -> bool:
        """Queue the reply that says why, once; return whether they were let in meanwhile."""
        message = event.message
        # For a person, a group, or a person in a group.
        group = f"group:{message.chat_id}"
        keys = {"group_not_allowed": group, "group_sender_not_allowed": f"{group}/{message.sender_id}"}
        key = keys.get(verdict.reason, message.sender_id)
        now = self._clock.monotonic()
        if self._quiet.get(key, now) > now:
            return False
        name = one_line(event.name, NAME_CHARS)
        reason = verdict.reason
        person = PairedPerson(channel=message.channel, sender=message.sender_id, session=message.session, name=name)
        try:
            if verdict.kind == "unknown":
                outcome = await self._pairings.offer_code(
                    person, lambda code: self._render_notice(CODE, message, code), reason=reason
                )
            else:
                line = self._render_notice(_TEXTS.get(reason, NOBODY), message)
                outcome = await self._pairings.turn_away(person, line, reason=reason, in_name_of=key)
        except Refused:
            _remember(self._quiet, key, now + AGAIN_S)
            return False
        if outcome.outcome == "let_in":
            _remember(self._known, message.sender_id, (now, True))
            return True
        _remember(self._quiet, key, now + outcome.quiet_s)
        return False

    def _render_notice(self, text: str, message: InboundMessage, code: str = "") -> OutboundMessage:
        id = one_line(message.sender_id)
        group = one_line(message.chat_id)
        content = text.format(code=code, minutes=CODE_MS // 60_000, id=id, group=group)
        return OutboundMessage(content=content, turn=0, kind="notice", at=self._clock.now_ms())


def one_line(text: str, limit: int = 200) -> str:
    """Return foreign text as one line that may stand within backticks and cannot end them."""
    return "".join(char for char in text if char.isprintable() and char != "`")[:limit]


def _remember(table: dict[str, T], who: str, value: T) -> None:
    if len(table) >= PEOPLE and who not in table:
        table.clear()
    table[who] = value
