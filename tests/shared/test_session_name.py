"""The name of a session: its parts, and that names of today stay what they are."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import BadInput
from shared.ids import SessionName, account_of, is_ephemeral, person_of, session_id, split_session
from shared.store import keys
from shared.store.client.packing import pack
from shared.store.client.redis_client import RedisClient

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
words = st.from_regex(r"[a-z0-9][a-z0-9-]{0,31}", fullmatch=True) | st.just("")


@given(texts, texts, words, words)
def test_a_name_is_read_as_it_was_made(channel: str, chat: str, tenant: str, agent: str) -> None:
    """Whatever the chat is called; one colon separates, and no part has another's sign."""
    name = SessionName(channel, chat, tenant, agent)
    assert SessionName.parse(str(name)) == name
    assert str(name).partition(":")[0] == name.channel_key
    assert str(name).count(":") == 1


@given(texts, texts)
def test_a_name_without_tenant_and_agent_is_the_one_of_before(channel: str, chat: str) -> None:
    """Nothing is migrated."""
    before = quote(channel, safe="") + ":" + quote(chat, safe="/@+=,!$'()*")
    assert str(SessionName(channel, chat)) == before
    assert split_session(str(SessionName(channel, chat))) == (channel, chat)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (SessionName("", "a"), "one of them is empty"),
        (SessionName("web", ""), "one of them is empty"),
        (SessionName("web", "a", tenant="Acme"), "tenant 'Acme' is none"),
        (SessionName("web", "a", agent="h;r"), "agent 'h;r' is none"),
        (SessionName("web", "x" * 190, agent="hr-agent"), "203 bytes long"),
    ],
)
def test_a_name_that_cannot_be_is_an_error(name: SessionName, error: str) -> None:
    """It says what to do."""
    with pytest.raises(BadInput, match=error):
        name.check()


def test_what_is_read_from_a_name_knows_its_tenant_and_agent() -> None:
    """Two tenants' people of one name are not one; an agent's chat is its person's."""
    assert [person_of(name) for name in ("web:ann/1", "acme/web:ann/1;hr", "slack:C1%2317", "acme/slack:C1;hr")] == [
        "ann",
        "acme/ann",
        "slack:C1",
        "acme/slack:C1",
    ]
    passing = str(SessionName("api", "ann/~7", tenant="acme"))
    assert is_ephemeral(passing)
    assert account_of(passing) == "acme/api:ann/~"
    assert not is_ephemeral(str(SessionName("slack", "ann/~7")))


@pytest.mark.parametrize(("session", "queue"), [("acme/slack:C1;hr", "acme/slack"), ("acme/web:ann/1", None)])
async def test_lines_of_a_tenants_platform_are_delivered_for_it(
    client: RedisClient, session: str, queue: str | None
) -> None:
    """In Lua, too, the channel is what stands behind the tenant."""
    assert session_id("slack", "C1") == "slack:C1"
    command = {"dedupe_id": "1", "seen": keys.seen("x"), "days": 1, "keep_session_ms": 9000, "keep_log_ms": 9000}
    command |= {"line": b"", "answer": b"line", "chat_id": "C1"}
    await client.run("commands/answer", session=session, chats="", command=pack(command), choice="", value="")
    queued = await client.command("KEYS", f"{keys.outqueue}*")
    assert queued == ([keys.outqueue(queue).encode()] if queue else [])
