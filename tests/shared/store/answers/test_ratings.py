"""Ratings of answers: lines of the chat's log, of which the newest about an answer counts."""

from __future__ import annotations

import pytest

from shared.errors import BadInput
from shared.messages.outbound import OutboundMessage
from shared.store import keys
from shared.store.answers.ratings import Ratings, ratings_of
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.sessions.chats import Chats
from shared.store.sessions.erase import erase
from shared.store.sessions.last_turn import read_last_turn
from shared.store.turns.inbox import InboxLimits
from tests.shared.store.answers.test_branches import OLD, command, everything, talk, turn


async def rated(client: RedisClient) -> dict[int, str]:
    return dict(ratings_of(await Outbox(client).read_before(OLD, seq=None, limit=100)))


async def test_the_newest_rating_of_an_answer_counts(client: RedisClient) -> None:
    """Given, changed, taken back; each answer for itself."""
    ratings = Ratings(client, InboxLimits())
    await turn(client, "one")
    await ratings.rate(OLD, 2, "up")
    await turn(client, "two")
    await ratings.rate(OLD, 5, "down")
    assert await rated(client) == {2: "up", 5: "down"}
    await ratings.rate(OLD, 2, "down")
    assert await rated(client) == {2: "down", 5: "down"}
    await ratings.rate(OLD, 5, "")
    assert await rated(client) == {2: "down"}


@pytest.mark.parametrize("seq", [1, 4, 5, 99])
async def test_only_an_answer_is_rated(client: RedisClient, seq: int) -> None:
    """Not a message, a command's answer, a rating, or a line that there is not; nothing is written."""
    ratings = Ratings(client, InboxLimits())
    await turn(client, "one")
    await command(client, "status")
    await ratings.rate(OLD, 2, "up")
    before = await everything(client, OLD)
    with pytest.raises(BadInput, match="not an answer"):
        await ratings.rate(OLD, seq, "up")
    assert await everything(client, OLD) == before


async def test_a_rating_is_nothing_to_the_model_and_no_news(client: RedisClient) -> None:
    """The conversation, the newest turn and the chat's place in the list stay; nothing is unread."""
    await turn(client, "one")
    before = await talk(client, OLD), await read_last_turn(client, OLD), await Chats(client).latest("web", "owner")
    await Ratings(client, InboxLimits()).rate(OLD, 2, "up")
    after = await talk(client, OLD), await read_last_turn(client, OLD), await Chats(client).latest("web", "owner")
    assert after[:2] == before[:2]
    assert [row.at for row in after[2]] == [row.at for row in before[2]]
    assert [row.seq - row.seen for row in after[2]] == [0]


async def test_releases_before_show_nothing_of_a_rating(client: RedisClient) -> None:
    """To them it is a withdrawal of no message."""
    await turn(client, "one")
    await Ratings(client, InboxLimits()).rate(OLD, 2, "up")
    [line] = await Outbox(client).read_before(OLD, seq=None, limit=1)
    assert isinstance(line.line, OutboundMessage)
    assert (line.line.kind, line.line.content, line.line.in_reply_to) == ("withdrawn", "", ())


async def test_a_rating_that_comes_too_late_brings_no_chat_back(client: RedisClient, redis_url: str) -> None:
    """The chat is erased after the answer was read: the script writes nothing."""
    await turn(client, "one")

    class LateClient(RedisClient):
        """A client whose rating comes after the erasure."""

        async def command(self, *parts: object) -> object:
            reply = await super().command(*parts)  # type: ignore[arg-type]
            if parts[0] == "XREVRANGE":
                await erase(client, OLD)
            return reply

    late = LateClient(redis_url)
    with pytest.raises(BadInput, match="no such chat"):
        await Ratings(late, InboxLimits()).rate(OLD, 2, "up")
    await late.close()
    assert await everything(client, OLD) == {}


async def test_a_rating_goes_with_its_chat(client: RedisClient) -> None:
    """Erased like all of it."""
    await turn(client, "one")
    await Ratings(client, InboxLimits()).rate(OLD, 2, "up")
    await erase(client, OLD)
    assert await everything(client, OLD) == {}
    assert await client.command("EXISTS", keys.outbox(OLD)) == 0
