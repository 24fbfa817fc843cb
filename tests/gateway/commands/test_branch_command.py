"""`/branch`: a new chat that begins with what was said in this one, where a chat can be opened."""

from __future__ import annotations

import pytest

from gateway.commands.branch import ELSEWHERE, NOTHING
from gateway.commands.registry import build_commands
from gateway.ingress.ingest import Ingress
from shared.messages.outbound import OutboundMessage, UserLine
from shared.settings import Settings
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.sessions.chats import Chats
from tests.helpers.build import message
from tests.shared.store.answers.test_branches import OLD, talk, texts, turn


@pytest.fixture
def ingress(client: RedisClient) -> Ingress:
    return Ingress(client, build_commands(Settings(), client))


async def tell(ingress: Ingress, *, id: str, channel: str = "web") -> None:
    """Say `/branch` as a person does."""
    sent = message("/branch", id=id, channel=channel)
    principal = "owner" if channel == "web" else None
    await ingress.ingest(sent, show=UserLine(id=id, text="/branch"), principal=principal)


async def answers(client: RedisClient, session: str = OLD) -> list[str]:
    lines = await Outbox(client).read_before(session, seq=None, limit=100)
    commands = (one.line for one in lines if isinstance(one.line, OutboundMessage) and one.line.kind == "command")
    return [line.content for line in commands]


async def test_it_makes_a_chat_and_says_how_to_open_it(client: RedisClient, ingress: Ingress) -> None:
    """On the page and in a terminal; the command itself is not of the branch."""
    await turn(client, "one")
    await tell(ingress, id="m1")
    [text] = await answers(client)
    name = text.rpartition("--chat ")[2].partition("`")[0]
    branch = (await Chats(client).rows("web", "owner", [f"owner/{name}"]))[0]
    assert f"“{branch.title}”" in text
    session = f"web:{branch.chat_id}"
    assert (await texts(client, session))[1:] == ["one", "re one"]
    assert await talk(client, session) == ["one", "re one"]


async def test_a_command_that_is_delivered_again_makes_no_second_chat(client: RedisClient, ingress: Ingress) -> None:
    """Another command does, also if nothing was said in between."""
    await turn(client, "one")
    for id in ("m1", "m1", "m2", "m1"):
        await tell(ingress, id=id)
    assert len(await answers(client)) == 2
    assert len(await Chats(client).latest("web", "owner")) == 3


async def test_where_there_is_no_answer_it_says_so(client: RedisClient, ingress: Ingress) -> None:
    """Nothing is made."""
    await tell(ingress, id="m1")
    await tell(ingress, id="m2")
    assert await answers(client) == [NOTHING, NOTHING]
    assert len(await Chats(client).latest("web", "owner")) == 1


async def test_other_channels_say_why_not(client: RedisClient, ingress: Ingress) -> None:
    """Their chats are the platform's."""
    await tell(ingress, id="m1", channel="api")
    assert await answers(client, "api:owner/a") == [ELSEWHERE]
