"""The feed of a person: what happens in all their chats, for the pages that they have open. Scripts
append to it in the step that makes a fact true (`lua/lib/lines.lua`). It is short and expires; a page
that comes too late reads the list of chats, which has it all."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from shared.store import keys
from shared.store.client.redis_client import RedisClient

KEEP_MS: Final = 3_600_000
"""How long a feed is kept after a page last asked for it."""


class Fact(msgspec.Struct, frozen=True):
    """What changed in a chat, by its name on the page: `at` its last activity in ms, `seq` its newest
    line, `seen` the newest line that the person has seen, `running` whether a turn runs or waits,
    `asks` whether it waits for the person's yes. None: it is as it was. `row`: its title, pin or
    model may have changed, too. `deleted`: it left the list."""

    id: str
    chat: str
    at: int | None = None
    seq: int | None = None
    seen: int | None = None
    running: bool | None = None
    asks: bool | None = None
    row: bool = False
    deleted: bool = False


def parse_fact(id: bytes, text: bytes) -> Fact | None:
    """Parse an entry of a feed; None for the first one, which is empty. Names that this version does
    not know are left out. Raises ValueError for what is no fact."""
    chat, *words = text.decode().split()[:64] or [""]
    if not chat:
        return None
    values = dict(zip(words[::2], words[1::2], strict=True))
    known: dict[str, Any] = {name: int(values[name]) for name in ("at", "seq", "seen") if name in values}
    flags = ("running", "asks", "row", "deleted")
    known |= {name: values[name] == "1" for name in flags if name in values}
    return Fact(id.decode(), chat, **known)


def parse_news(data: bytes) -> Fact | None:
    """Parse a message of the feed's pub/sub channel. Raises ValueError."""
    id, _, text = data.partition(b" ")
    return parse_fact(id, text)


class Missed(msgspec.Struct, frozen=True):
    """Facts up to `cursor` that a page does not have; None: the feed does not go back that far, and
    the page needs the list of chats."""

    cursor: str
    facts: tuple[Fact, ...] | None


class Feed:
    """Reads feeds. `person` is `<channel>:<principal>`, as in names of sessions."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def follow(self, person: str, after: str) -> Missed:
        """Return what happened after entry `after` ("": nothing is known), and keep the feed for
        KEEP_MS. Raises RedisAway."""
        reply = await self._client.run("delivery/follow_feed", feed=keys.feed(person), after=after, keep_ms=KEEP_MS)
        cursor = reply[0].decode()
        if len(reply) < 2 or reply[1] is None:
            return Missed(cursor, None)
        facts = (parse_fact(id, fields[1]) for id, fields in reply[1])
        return Missed(cursor, tuple(fact for fact in facts if fact is not None))
