"""What the next listener is told."""

from __future__ import annotations

import pytest

from gateway.channels.discord.known import (
    CHATS,
    Chat,
    Chats,
    Known,
    Reading,
    Session,
    read_known,
    write_known,
)
from gateway.channels.discord.parse import Room

SESSION = Session("b", "wss://gateway.example", 7)


def test_what_was_written_is_read() -> None:
    """All of it, in little space."""
    known = Known((Reading(5, SESSION), Reading(6)), (Chat(1 << 62, 2 << 60, 0), Chat(3, 4, 5)))
    assert read_known(write_known(known)) == known
    chats = tuple(Chat(10**18 + number, 10**18, 10**18) for number in range(CHATS))
    assert len(write_known(Known((Reading(5, SESSION),), chats))) < 20_000


@pytest.mark.parametrize("value", [b"", b"\xc1", b"hello", b"\x93\x01\x02\x03", b"[]"])
def test_what_cannot_be_read_is_nothing(value: bytes) -> None:
    """Then a session is begun anew."""
    assert read_known(value) == Known()


def test_a_session_is_of_use_to_as_many_shards_alone() -> None:
    """Others begin where the one that is behind most has read to."""
    known = Known((Reading(5, SESSION), Reading(3, SESSION)))
    assert known.for_shards(2) == known.readings
    assert known.for_shards(3) == (Reading(3),) * 3
    assert Known().for_shards(1) == (Reading(),)


def test_the_newest_chats_are_remembered() -> None:
    """And what they are of, once it is known."""
    chats = Chats(Chat(number, 0, 0) for number in range(1, CHATS + 1))
    chats.heard("1", None, Room("1"))
    chats.heard("9999", "5", Room("8888", "9999"))
    assert len(list(chats)) == CHATS
    assert chats.get("2") is None
    assert chats.get("1") == Chat(1, 0, 0)
    assert chats.get("9999") == Chat(9999, 5, 8888)
    found = chats.get("9999")
    assert found is not None
    assert found.room == Room("8888", "9999")


def test_a_server_is_on_one_shard() -> None:
    """As Discord shares them out; chats of two are on the first."""
    assert [Chat(1, number << 22, 0).shard(4) for number in (4, 5, 7)] == [0, 1, 3]
    assert Chat(1, 0, 0).shard(4) == 0
