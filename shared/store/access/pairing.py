"""Letting people in by a code: a stranger is told one, whoever may let people in says it, and it
counts once."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from shared.errors import BadInput, BadRecord
from shared.ids import split_session
from shared.messages.codec import Decoder, encode
from shared.messages.outbound import OutboundMessage
from shared.store import keys
from shared.store.access.audit import KEEP_MS, LINES, line_fields
from shared.store.client.redis_client import RedisClient
from shared.store.client.scripts import load
from shared.store.schedules.schedules import Schedules
from shared.store.turns.inbox import DAY_MS

ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Without I, L, O and U: nothing that is read as something else (D. Crockford, "Base32
Encoding")."""

CODE_CHARS: Final = 8
"""40 random bits."""

CODE_MS: Final = 600_000
GUESSES: Final = 5
GUESSES_MS: Final = 3_600_000
CODES_A_DAY: Final = 3
"""How many codes one person is told in a day; whoever may not be let in is told that once."""

CODES_OPEN: Final = 50
CODES_IN_ALL: Final = 200
NOTICES_A_MINUTE: Final = 30
"""So many strangers of a channel are told anything in a minute; of all others nothing is kept."""

PEOPLE: Final = 10_000
STRANGERS_MS: Final = DAY_MS
"""How long a chat stays in which nobody but a stranger wrote."""

LET_IN: Final = "You are let in: you can talk with me now. What you wrote before I have not read; please send it again."

_CORRECTIONS: Final = str.maketrans("OIL", "011", "- \t`")

Refusal = Literal["pair_guesses", "pair_unknown", "pair_used", "pair_late", "pair_full"]


class PairedPerson(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who asks to be let in, or was. `by` let them in at `at` (ms), '' nobody yet;
    `request` did it. `name` is how they call themselves, and shown to operators."""

    channel: str
    sender: str
    session: str
    name: str = ""
    expires_at: int = 0
    at: int = 0
    by: str = ""
    request: str = ""
    v: int = 1


class StrangerNotice(msgspec.Struct, frozen=True):
    """What became of a stranger: `told` now, `silent` (told before, or too often), `crowded` (too
    many strangers), or `let_in` meanwhile; and for how many seconds nothing more will be said."""

    outcome: Literal["told", "silent", "crowded", "let_in"]
    quiet_s: float


class PairingFailed(BadInput):
    """A code that lets nobody in. The code of the error says why."""

    def __init__(self, code: Refusal, message: str) -> None:
        super().__init__(code, message)


decode_person: Decoder[PairedPerson] = Decoder(PairedPerson, limit_bytes=64 * 1024)


class Pairings:
    """Strangers, codes, and who was let in. Methods raise RedisAway."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._schedules = Schedules(client)
        self._ask, self._approve, self._revoke = (
            load("access/pair_ask"),
            load("access/pair_approve"),
            load("access/pair_revoke"),
        )

    async def is_let_in(self, channel: str, sender: str) -> bool:
        """Whether somebody was let in to a channel and not taken out again."""
        return bool(await self._client.command("HEXISTS", keys.pair(channel), sender))

    async def offer_code(
        self, person: PairedPerson, line: Callable[[str], OutboundMessage], *, reason: str
    ) -> StrangerNotice:
        """Tell a stranger, in their chat, a code by which they can be let in, unless they have one.

        `line` makes the notice of a code. `reason` is for the audit record. Raises Refused when the
        store is full.
        """
        code = new_code()
        return await self._notify(person, _digest(code), line(shown_code(code)), CODES_A_DAY, person.sender, reason)

    async def turn_away(
        self, person: PairedPerson, line: OutboundMessage, *, reason: str, in_name_of: str = ""
    ) -> StrangerNotice:
        """Tell somebody who cannot be let in so, once a day. With `in_name_of` that counts for all
        who speak in the name of that id, such as a group. Raises Refused when the store is full."""
        return await self._notify(person, "", line, 1, in_name_of or person.sender, reason)

    async def _notify(
        self, person: PairedPerson, digest: str, line: OutboundMessage, times: int, who: str, reason: str
    ) -> StrangerNotice:
        channel, session = person.channel, person.session
        outcome, quiet_ms = await self._client.run(
            self._ask,
            [
                keys.PAIRING, keys.pair(channel), keys.brake(f"stranger:{_hash(channel, who)}"),
                keys.brake(f"strangers:{channel}"), keys.session(session), keys.outbox(session), keys.live(session),
            ],
            [
                channel, person.sender, digest, encode(person), encode(line), CODE_MS, CODES_OPEN, CODES_IN_ALL,
                times, DAY_MS, NOTICES_A_MINUTE, STRANGERS_MS, STRANGERS_MS, LINES, KEEP_MS,
                *line_fields("access", reason, actor=f"{channel}:{person.sender}", session=session),
            ],
        )  # fmt: skip
        return StrangerNotice(_NOTICE_OUTCOMES[outcome], max(0, quiet_ms) / 1000)

    async def approve(
        self,
        code: str,
        line: OutboundMessage,
        *,
        by: str,
        request: str,
        channel: str = "",
        retry_for_s: float = 0.0,
    ) -> PairedPerson:
        """Let in who was told this code, and say `line` in their chat; what they had planned there
        goes on.

        `by` is the actor whose wrong guesses count, `request` the same for each try of one call.
        With `channel` only a code of that channel counts. Raises PairingFailed.
        """
        outcome, *told = await self._client.run(
            self._approve,
            [keys.PAIRING, keys.tries(_hash(by))],
            [
                _digest(code), by, request, channel, GUESSES, GUESSES_MS, PEOPLE, encode(line),
                STRANGERS_MS, STRANGERS_MS, LINES, KEEP_MS,
            ],
            retry_for_s=retry_for_s,
        )  # fmt: skip
        if outcome < 0:
            raise _refusal(outcome, *map(int, told))
        person = decode_person(told[0])
        for session in await self._planning(person.session):
            await self._schedules.resume(session)
        return person

    async def revoke(self, channel: str, sender: str, *, by: str) -> bool:
        """Let somebody in no more; what they had planned in their chat rests. False when they were
        not let in."""
        packed = await self._client.command("HGET", keys.pair(channel), sender)
        for session in await self._planning(decode_person(packed).session) if packed else ():
            await self._schedules.pause(session)
        done: int = await self._client.run(
            self._revoke, [keys.pair(channel), keys.PAIRING], [channel, sender, by, LINES, KEEP_MS]
        )
        return bool(done)

    async def people(self) -> list[PairedPerson]:
        """Who was let in, the latest first."""
        channels = await self._client.command("SMEMBERS", keys.PAIRS)
        packed = await self._client.pipeline([("HVALS", keys.pair(channel.decode())) for channel in channels])
        return sorted(_readable([one for every in packed for one in every]), key=lambda one: -one.at)

    async def waiting(self) -> list[PairedPerson]:
        """Who has a code that can still be said, the oldest first."""
        packed, (seconds, micros) = await self._client.pipeline([("HVALS", keys.PAIRING), ("TIME",)])
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        found = [one for one in _readable(packed) if not one.request and one.expires_at > now_ms]
        return sorted(found, key=lambda one: one.expires_at)

    async def _planning(self, session: str) -> list[str]:
        """The sessions of a chat, its threads too, that have schedules."""
        base = _base(session)
        return [one async for one in self._schedules.sessions() if _base(one) == base]


def let_in_line(now_ms: int) -> OutboundMessage:
    """What somebody is told when they are let in."""
    return OutboundMessage(content=LET_IN, turn=0, kind="notice", at=now_ms)


def new_code() -> str:
    """Eight characters that nobody can guess."""
    return "".join(secrets.choice(ALPHABET) for _ in range(CODE_CHARS))


def shown_code(code: str) -> str:
    """The code as people read it: `K7QM-3XTD`."""
    return f"{code[: CODE_CHARS // 2]}-{code[CODE_CHARS // 2 :]}"


def _digest(code: str) -> str:
    """The hash of a code, however it was typed. Lists and dumps show no code that could be used."""
    meant = code.upper().translate(_CORRECTIONS)
    return hashlib.sha256(meant.encode(errors="replace")).hexdigest()[:32]


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _base(session: str) -> tuple[str, str]:
    channel, chat_id = split_session(session)
    return channel, chat_id.partition("#")[0]


def _readable(packed: list[bytes]) -> list[PairedPerson]:
    people = []
    for one in packed:
        try:
            people.append(decode_person(one))
        except BadRecord:
            continue  # of a newer release
    return people


_NOTICE_OUTCOMES: Final[dict[int, Literal["told", "silent", "crowded", "let_in"]]] = {
    1: "told",
    0: "silent",
    2: "let_in",
    -1: "crowded",
}


def _refusal(outcome: int, number: int = 0) -> PairingFailed:
    match outcome:
        case -1:
            minutes = max(1, -(-number // 60_000))
            return PairingFailed("pair_guesses", f"too many wrong codes; try again in {minutes} min")
        case -2:
            left = f"{number} more {'try' if number == 1 else 'tries'} within the hour" if number else "no more tries"
            return PairingFailed("pair_unknown", f"there is no such code, or it is over; {left}")
        case -3:
            return PairingFailed("pair_used", "this code was used already; it counts once")
        case -4:
            return PairingFailed("pair_late", "this code is over; who wants in gets a new one by writing again")
        case _:
            return PairingFailed("pair_full", f"{PEOPLE:,} people are let in to this channel; revoke some first")
