"""The guardian's few words of RESP, against a real Valkey."""

from __future__ import annotations

import pytest

from shared.process.resp import RespConnection, RespError


def test_every_kind_of_answer_is_read(redis_url: str) -> None:
    """Status, number, text, nothing, list, nested list, binary."""
    connection = RespConnection(redis_url)
    assert connection.command("SET", "k", b"\r\n\x00") == b"OK"
    assert connection.command("GET", "k") == b"\r\n\x00"
    assert connection.command("GET", "none") is None
    assert connection.command("RPUSH", "l", "a", "b") == 2
    assert connection.command("LRANGE", "l", "0", "-1") == [b"a", b"b"]
    assert connection.command("EVAL", "return {1, {'x', {}}}", "0") == [1, [b"x", []]]
    connection.close()


def test_an_error_is_redis_own_text_and_the_connection_lives(redis_url: str) -> None:
    """RespError is not an OSError: Redis is there."""
    connection = RespConnection(redis_url)
    with pytest.raises(RespError, match="unknown command"):
        connection.command("NONSENSE")
    assert connection.command("PING") == b"PONG"
    connection.close()


def test_the_database_of_the_address_is_selected(redis_url: str) -> None:
    """redis://…/3 is another database than /0."""
    plain, third = RespConnection(redis_url), RespConnection(redis_url.rstrip("/0").rstrip("/") + "/3")
    third.command("SET", "here", "1")
    assert plain.command("GET", "here") is None
    plain.close()
    third.close()


def test_a_wrong_password_and_a_closed_port_differ(redis_url: str) -> None:
    """The first is an answer, the second is nobody."""
    wrong = redis_url.replace("://:", "://:not")
    with pytest.raises(RespError, match="WRONGPASS"):
        RespConnection(wrong)
    with pytest.raises(OSError, match="refused"):
        RespConnection("redis://127.0.0.1:1/0")
