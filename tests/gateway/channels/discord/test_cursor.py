"""What the next listener is told."""

from __future__ import annotations

import pytest

from gateway.channels.discord.cursor import (
    MAX_CHATS,
    ChatCache,
    DiscordCursor,
    GatewaySession,
    KnownChannel,
    ShardProgress,
    decode_cursor,
    encode_cursor,
)
from gateway.channels.discord.parse import ConversationInfo

SESSION = GatewaySession("b", "wss://gateway.example", 7)


def test_what_was_written_is_read() -> None:
    """All of it, in little space."""
    known = DiscordCursor(
        (ShardProgress(5, SESSION), ShardProgress(6)), (KnownChannel(1 << 62, 2 << 60, 0), KnownChannel(3, 4, 5))
    )
    assert decode_cursor(encode_cursor(known)) == known
    chats = tuple(KnownChannel(10**18 + number, 10**18, 10**18) for number in range(MAX_CHATS))
    assert len(encode_cursor(DiscordCursor((ShardProgress(5, SESSION),), chats))) < 20_000


@pytest.mark.parametrize("value", [b"", b"\xc1", b"hello", b"\x93\x01\x02\x03", b"[]"])
def test_what_cannot_be_read_is_nothing(value: bytes) -> None:
    """Then a session is begun anew."""
    assert decode_cursor(value) == DiscordCursor()


def test_a_session_is_of_use_to_as_many_shards_alone() -> None:
    """Others begin where the one that is behind most has read to."""
    known = DiscordCursor((ShardProgress(5, SESSION), ShardProgress(3, SESSION)))
    assert known.for_shards(2) == known.readings
    assert known.for_shards(3) == (ShardProgress(3),) * 3
    assert DiscordCursor().for_shards(1) == (ShardProgress(),)


def test_the_newest_chats_are_remembered() -> None:
    """And what they are of, once it is known."""
    chats = ChatCache(KnownChannel(number, 0, 0) for number in range(1, MAX_CHATS + 1))
    chats.remember("1", None, ConversationInfo("1"))
    chats.remember("9999", "5", ConversationInfo("8888", "9999"))
    assert len(list(chats)) == MAX_CHATS
    assert chats.get("2") is None
    assert chats.get("1") == KnownChannel(1, 0, 0)
    assert chats.get("9999") == KnownChannel(9999, 5, 8888)
    found = chats.get("9999")
    assert found is not None
    assert found.conversation == ConversationInfo("8888", "9999")


def test_a_server_is_on_one_shard() -> None:
    """As Discord shares them out; chats of two are on the first."""
    assert [KnownChannel(1, number << 22, 0).shard(4) for number in (4, 5, 7)] == [0, 1, 3]
    assert KnownChannel(1, 0, 0).shard(4) == 0
