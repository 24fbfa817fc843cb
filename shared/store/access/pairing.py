"""Pairing: a stranger gets a code, which counts once, when somebody who may approve enters it."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final, Literal

import msgspec

from shared.errors import BadInput
from shared.ids import split_session
from shared.messages.codec import Decoder, encode
from shared.messages.outbound import OutboundMessage
from shared.store import keys
from shared.store.access.audit import KEEP_MS, LINES, line_fields, log_line
from shared.store.client.packing import pack
from shared.store.client.redis_client import RedisClient, server_ms
from shared.store.schedules.schedules import Schedules
from shared.store.turns.inbox import DAY_MS

ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Alphabet of codes, without I, L, O and U, which are misread (D. Crockford, "Base32 Encoding")."""

CODE_CHARS: Final = 8  # 40 random bits
CODE_MS: Final = 600_000
GUESSES: Final = 5
GUESSES_MS: Final = 3_600_000
CODES_A_DAY: Final = 3
"""Codes that one person gets in a day. A person who cannot be paired gets one notice a day."""

CODES_OPEN: Final = 50
CODES_IN_ALL: Final = 200
NOTICES_A_MINUTE: Final = 30
"""Strangers of one channel that get a notice within a minute; nothing is stored for the others."""

PEOPLE: Final = 10_000
STRANGERS_MS: Final = DAY_MS  # life of the log of a chat in which only a stranger wrote
LET_IN: Final = "You are let in: you can talk with me now. What you wrote before I have not read; please send it again."

_CORRECTIONS: Final = str.maketrans("OIL", "011", "- \t`")

Refusal = Literal["pair_guesses", "pair_unknown", "pair_used", "pair_late", "pair_full"]


class PairedPerson(msgspec.Struct, frozen=True, kw_only=True):
    """A person who asks for access, or who has it. `by` approved them at `at` (ms), '' while
    they wait; `request` names the call that did. `name` is what the person calls themselves."""

    channel: str
    sender: str
    session: str
    name: str = ""
    expires_at: int = 0
    at: int = 0
    by: str = ""
    request: str = ""
    v: int = 1


NoticeOutcome = Literal["told", "silent", "crowded", "let_in"]
_NOTICES: Final[dict[bytes, NoticeOutcome]] = {
    b"told_before": "silent",
    b"told": "told",
    b"let_in": "let_in",
    b"too_many": "crowded",
}


class StrangerNotice(msgspec.Struct, frozen=True):
    """Result of a notice to a stranger: `told` now, `silent` (told before, or too often), `crowded`
    (too many strangers), or `let_in` meanwhile; and seconds without a further notice."""

    outcome: NoticeOutcome
    quiet_s: float


class PairingFailed(BadInput):
    """A code that gives access to nobody; the code of the error says why."""

    def __init__(self, code: Refusal, message: str) -> None:
        super().__init__(code, message)


decode_person: Decoder[PairedPerson] = Decoder(PairedPerson, limit_bytes=64 * 1024)


class Pairings:
    """Strangers, open codes, and people with access. Methods raise RedisAway."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._schedules = Schedules(client)

    async def is_let_in(self, channel: str, sender: str) -> bool:
        """Tell whether a person has access to a channel by a code that was not revoked."""
        return bool(await self._client.command("HEXISTS", keys.pair(channel), sender))

    async def offer_code(
        self, person: PairedPerson, line: Callable[[str], OutboundMessage], *, reason: str
    ) -> StrangerNotice:
        """Send a stranger a pairing code into their chat, unless they have one. `line` builds the
        notice for a code; `reason` goes into the audit record. Raises Refused (store is full)."""
        code = new_code()
        notice = line(shown_code(code))
        return await self._notify(person, _digest(code), notice, CODES_A_DAY, person.sender, reason)

    async def turn_away(
        self, person: PairedPerson, line: OutboundMessage, *, reason: str, in_name_of: str = ""
    ) -> StrangerNotice:
        """Tell a person who cannot be paired so, once a day. With `in_name_of` the notice counts
        for all who speak under that id, such as a group. Raises Refused: the store is full."""
        return await self._notify(person, "", line, 1, in_name_of or person.sender, reason)

    async def _notify(
        self, person: PairedPerson, digest: str, line: OutboundMessage, times: int, who: str, reason: str
    ) -> StrangerNotice:
        channel = person.channel
        sender = person.sender
        session = person.session
        stranger = f"stranger:{_hash(channel, who)}"
        strangers = f"strangers:{channel}"
        audited = line_fields("access", reason, actor=f"{channel}:{sender}", session=session)
        outcome, quiet_ms = await self._client.run(
            "access/pair_ask",
            session=session,
            channel=channel,
            pair=keys.pair(channel),
            stranger_brake=keys.brake(stranger),
            strangers_brake=keys.brake(strangers),
            sender=sender,
            digest=digest,
            record=encode(person),
            line=encode(line),
            code_ms=CODE_MS,
            most_codes=CODES_OPEN,
            most_codes_in_all=CODES_IN_ALL,
            most_notices=times,
            notices_ms=DAY_MS,
            most_strangers=NOTICES_A_MINUTE,
            keep_session_ms=STRANGERS_MS,
            keep_log_ms=STRANGERS_MS,
            audit_lines=LINES,
            audit_ms=KEEP_MS,
            audit_fields=pack(audited),
        )
        if outcome == b"told":
            log_line(audited)
        return StrangerNotice(_NOTICES[outcome], max(0, quiet_ms) / 1000)

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
        """Give access to the person who got this code, send `line` into their chat, and resume the
        schedules there. `by` is the actor whose wrong guesses count; `request` is the same for
        every retry of one call. With `channel` only its codes count. Raises PairingFailed."""
        outcome, *result = await self._client.run(
            "access/pair_approve",
            channel=channel,
            tries=keys.tries(_hash(by)),
            digest=_digest(code),
            by=by,
            request=request,
            most_guesses=GUESSES,
            guesses_ms=GUESSES_MS,
            most_people=PEOPLE,
            line=encode(line),
            keep_session_ms=STRANGERS_MS,
            keep_log_ms=STRANGERS_MS,
            audit_lines=LINES,
            audit_ms=KEEP_MS,
            retry_for_s=retry_for_s,
        )
        if outcome not in (b"let_in", b"known"):
            log_line(line_fields("pairing", "refused", actor=by))
            raise _refusal(outcome, *map(int, result))
        person = decode_person(result[0])
        if outcome == b"let_in":
            log_line(line_fields("pairing", "let_in", actor=by, about=f"{person.channel}:{person.sender}"))
        # Schedules of a chat whose access was revoked are paused; a new access resumes them.
        for session in await self._planning(person.session):
            await self._schedules.resume(session)
        return person

    async def revoke(self, channel: str, sender: str, *, by: str) -> bool:
        """Revoke a person's access and pause the schedules of their chat. False: they had none."""
        # Pause first: a tick between both steps would still come into the chat.
        packed = await self._client.command("HGET", keys.pair(channel), sender)
        for session in await self._planning(decode_person(packed).session) if packed else ():
            await self._schedules.pause(session)
        revoked = bool(
            await self._client.run(
                "access/pair_revoke",
                channel=channel,
                pair=keys.pair(channel),
                sender=sender,
                by=by,
                audit_lines=LINES,
                audit_ms=KEEP_MS,
            )
        )
        if revoked:
            log_line(line_fields("pairing", "revoked", actor=by, about=f"{channel}:{sender}"))
        return revoked

    async def people(self) -> list[PairedPerson]:
        """Return the people with access, the latest first."""
        channels = await self._client.command("SMEMBERS", keys.PAIRS)
        commands = [("HVALS", keys.pair(channel.decode())) for channel in channels]
        packed = chain(*await self._client.pipeline(commands))
        return sorted(_readable(packed), key=lambda one: -one.at)

    async def waiting(self) -> list[PairedPerson]:
        """Return the people with an open code, the oldest first."""
        packed, time = await self._client.pipeline([("HVALS", keys.PAIRING), ("TIME",)])
        now_ms = server_ms(time)
        found = [one for one in _readable(packed) if not one.request and one.expires_at > now_ms]
        return sorted(found, key=lambda one: one.expires_at)

    async def _planning(self, session: str) -> list[str]:
        """Return the sessions of a chat and of its threads that have schedules."""
        base = _base(session)
        return [one async for one in self._schedules.sessions() if _base(one) == base]


def let_in_line(now_ms: int) -> OutboundMessage:
    """Build the notice for a person who just got access."""
    return OutboundMessage(content=LET_IN, turn=0, kind="notice", at=now_ms)


def new_code() -> str:
    """Draw a code of eight random characters."""
    return "".join(secrets.choice(ALPHABET) for _ in range(CODE_CHARS))


def shown_code(code: str) -> str:
    """Format a code for people to read: `K7QM-3XTD`."""
    return f"{code[: CODE_CHARS // 2]}-{code[CODE_CHARS // 2 :]}"


def _digest(code: str) -> str:
    """Hash a code, however it was typed. Only hashes are stored, so a dump shows no usable code."""
    corrected = code.upper().translate(_CORRECTIONS)
    return hashlib.sha256(corrected.encode(errors="replace")).hexdigest()[:32]


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _base(session: str) -> tuple[str, str]:
    channel, chat_id = split_session(session)
    return channel, chat_id.partition("#")[0]


def _readable(packed: Iterable[bytes]) -> Iterator[PairedPerson]:
    return filter(None, map(decode_person.or_none, packed))


def _refusal(outcome: bytes, number: int = 0) -> PairingFailed:
    match outcome:
        case b"guesses":
            minutes = max(1, -(-number // 60_000))
            return PairingFailed("pair_guesses", f"too many wrong codes; try again in {minutes} min")
        case b"unknown":
            more = f"{number} more {'try' if number == 1 else 'tries'} within the hour"
            left = more if number else "no more tries"
            return PairingFailed("pair_unknown", f"there is no such code, or it is over; {left}")
        case b"used":
            return PairingFailed("pair_used", "this code was used already; it counts once")
        case b"late":
            late = "this code is over; who wants in gets a new one by writing again"
            return PairingFailed("pair_late", late)
        case _:
            full = f"{PEOPLE:,} people are let in to this channel; revoke some first"
            return PairingFailed("pair_full", full)
