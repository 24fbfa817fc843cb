"""The parts of an album, each of which is a message in the inbox, are one question to the model and one answer."""

from __future__ import annotations

import re
from base64 import b64encode

from msgspec.structs import replace

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import ALBUM, Inbox, InboxLimits
from tests.helpers.build import message
from tests.helpers.media_files import png
from tests.worker.turn.test_busy import SESSION, Fleet, Model

PICTURES = [f"data:image/png;base64,{b64encode(png(width)).decode()}" for width in (2, 3, 4)]


async def test_an_album_is_one_question_with_all_pictures(client: RedisClient, redis_url: str) -> None:
    """Not before the album had its time; an answer names every part that it answers."""
    limits = InboxLimits(album_ms=30_000)
    fleet, inbox = Fleet(redis_url, Model(), limits), Inbox(client, limits)
    for nth, picture in enumerate(PICTURES):
        caption = "compare these" if nth == 0 else ""
        part = replace(message(id=f"id{nth}"), content=caption, media=(picture,))
        await inbox.ingest(replace(part, metadata={ALBUM: "9"}))
    assert not await fleet.tick()
    assert not fleet.model.begun.is_set()
    await client.command("ZADD", keys.queue("turns"), "XX", 1, keys.turn(SESSION))
    await fleet.done()
    [line] = await fleet.lines("reply")
    assert line.in_reply_to == ("id0", "id1", "id2")
    [asked] = fleet.model.asked
    assert re.findall(r"data:image/png;base64,[\w+/=]+", str(asked)) == PICTURES
    for one in fleet.clients:
        await one.close()
