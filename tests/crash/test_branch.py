"""A branch on gateways that are killed: there is none, or the whole one, and the page's request again makes it once."""

from __future__ import annotations

import random

import pytest
from websockets.exceptions import ConnectionClosed

from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.sessions.chats import Chats
from tests.gateway.harness import client as page
from tests.gateway.harness import process
from tests.shared.store.answers.test_branches import talk, texts, turn

LINES = ["one", "re one", "two", "re two"]


@pytest.mark.parametrize("seed", range(3))
async def test_a_gateway_killed_while_it_makes_a_branch_leaves_one(
    client: RedisClient, redis_url: str, seed: int
) -> None:
    """Killed at any moment after the request was sent; the next gateway is asked again, twice."""
    for text in ("one", "two"):
        await turn(client, text)
    chance = random.Random(seed)
    with process(redis_url) as doomed:
        await doomed.ready()
        async with page(doomed.address) as owner:
            await owner.send("branch", chat="a", seq=4, to="b")
            for _ in range(chance.randrange(3)):
                await owner.pong()
            doomed.popen.kill()
            with pytest.raises(ConnectionClosed):
                await owner.next("never")
    lines = len(await Outbox(client).read_before("web:owner/b", seq=None, limit=100))
    assert lines in (0, 5), "no part of a branch"
    with process(redis_url) as other:
        await other.ready()
        async with page(other.address) as owner:
            for _ in range(2):
                await owner.send("branch", chat="a", seq=4, to="b")
                assert [row["chat"] for row in (await owner.next("chats"))["chats"]] == ["b"]
    rows = await Chats(client).latest("web", "owner")
    assert sorted(row.title for row in rows) == ["one", "one (branch)"]
    assert (await texts(client))[1:] == await talk(client) == LINES
