"""Sending, by the real library to a server that can be out of order: one try, and what became of it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.channels.email.settings import read_email
from gateway.channels.email.smtp import SmtpSender
from gateway.platform.protocol import ChannelBroken, ChatClosed, MaybeSent, NotAccepted, PostRefused, Throttled
from tests.fakes.email import BOT, PASSWORD, FakeMail
from tests.fakes.email_parts import Trouble
from tests.helpers.certificates import authority

ANNA, BOB = "anna@pond.example", "bob@pond.example"


def mail(id: str = "1@pond.example", size: int = 5) -> bytes:
    return f"From: {BOT}\r\nMessage-ID: <{id}>\r\n\r\n{'hello' * (size // 5)}\r\n".encode()


def client(fake: FakeMail, **more: Any) -> SmtpSender:
    table = {
        "imap_host": "127.0.0.1", "smtp_host": "127.0.0.1", "smtp_port": fake.smtp_port, "smtp_tls": "off",
        "user": BOT, "password": PASSWORD, "believe_from": True, "timeout_s": 20, "slow_down_s": 7, **more,
    }  # fmt: skip
    return SmtpSender(read_email("email", table))


@pytest.fixture
async def fake() -> AsyncIterator[FakeMail]:
    async with FakeMail().serving() as server:
        server.smtp.people = {ANNA, BOB}
        yield server


async def test_a_mail_arrives_and_its_connection_is_used_again(fake: FakeMail) -> None:
    """Logging in takes longer than a mail."""
    smtp = client(fake)
    await smtp.check()
    for number in range(3):
        await smtp.send(ANNA, mail(f"{number}@x"))
    assert [one.id for one in fake.boxes[ANNA]] == ["<0@x>", "<1@x>", "<2@x>"]
    assert fake.smtp.connections == 1
    await smtp.close()


async def test_a_connection_that_died_meanwhile_is_no_failure(fake: FakeMail) -> None:
    """Servers close what says nothing for a while; then there is another one."""
    smtp = client(fake)
    await smtp.send(ANNA, mail("1@x"))
    fake.smtp.cut()
    await smtp.send(BOB, mail("2@x"))
    assert len(fake.boxes[BOB]) == 1
    assert fake.smtp.connections == 2
    await smtp.close()


@pytest.mark.parametrize(
    ("trouble", "kind", "arrives"),
    [
        ("throttled", Throttled, False),
        ("throttled bot", Throttled, False),
        ("closed", ChatClosed, False),
        ("down", NotAccepted, False),
        ("refused", PostRefused, False),
        ("unheard", MaybeSent, False),
        ("unanswered", MaybeSent, True),
    ],
)
async def test_what_goes_wrong_has_a_name(fake: FakeMail, trouble: str, kind: type[Exception], arrives: bool) -> None:
    """MaybeSent is only what may have arrived; the next mail goes its way."""
    smtp = client(fake)
    fake.smtp.troubles.append(Trouble(trouble, ANNA, 1))
    with pytest.raises(kind) as caught:
        await smtp.send(ANNA, mail("1@x"))
    assert type(caught.value) is kind
    assert ANNA not in str(caught.value)
    if isinstance(caught.value, Throttled):
        assert (caught.value.retry_after_s, caught.value.whole_bot) == (7, trouble == "throttled bot")
    assert (ANNA in fake.boxes) == arrives
    await smtp.send(ANNA, mail("1@x"))
    assert len(fake.boxes[ANNA]) == 1
    assert fake.doubles == arrives
    await smtp.close()


async def test_a_server_that_says_nothing_is_waited_for_so_long(fake: FakeMail) -> None:
    """Then nobody knows; and before the mail was on its way, everybody does."""
    smtp = client(fake, timeout_s=1)
    fake.smtp.troubles.append(Trouble("hang", ANNA, 1))
    with pytest.raises(MaybeSent):
        await smtp.send(ANNA, mail())
    fake.smtp.silent = True
    with pytest.raises(NotAccepted, match="in time"):
        await smtp.send(ANNA, mail())
    with pytest.raises(NotAccepted, match="in time"):
        await smtp.check()
    await smtp.close()


async def test_so_many_connections_and_no_more(fake: FakeMail) -> None:
    """However many chats are answered at once."""
    smtp = client(fake, connections=2)
    await asyncio.gather(*(smtp.send(ANNA, mail(f"{number}@x")) for number in range(12)))
    assert len(fake.boxes[ANNA]) == 12
    assert fake.smtp.most == 2
    await smtp.close()


async def test_a_problem_for_the_operator_breaks_the_channel(fake: FakeMail) -> None:
    """By the setting that is wrong."""
    wrong = client(fake, password="wrong")
    with pytest.raises(ChannelBroken, match="user and password"):
        await wrong.check()
    nobody = client(fake, smtp_login=False)
    with pytest.raises(ChannelBroken, match="smtp_login"):
        await nobody.send(ANNA, mail())
    another = client(fake, address="other@pond.example")
    with pytest.raises(ChannelBroken, match=r"channels\.email\.address"):
        await another.send(ANNA, mail())
    plain = client(fake, smtp_tls="starttls")
    with pytest.raises(ChannelBroken, match="STARTTLS"):
        await plain.check()
    fake.smtp.greeting = "554 5.7.1 Not you"
    with pytest.raises(ChannelBroken, match="does not talk with this machine"):
        await client(fake).check()
    for smtp in (wrong, nobody, another, plain):
        await smtp.close()


async def test_what_is_too_large_is_refused_before_it_is_sent(fake: FakeMail) -> None:
    """The server says how much it takes."""
    smtp = client(fake)
    with pytest.raises(PostRefused, match="552"):
        await smtp.send(ANNA, mail(size=3_000_000))
    assert fake.smtp.calls == []
    await smtp.close()


async def test_a_server_that_is_away_gets_it_later(fake: FakeMail) -> None:
    """Nobody listens at its port."""
    smtp = client(fake, smtp_port=1)
    with pytest.raises(NotAccepted, match="cannot be reached"):
        await smtp.send(ANNA, mail())


async def test_encrypted_from_the_start(tmp_path: Path) -> None:
    """And only to who has a certificate that is believed."""
    ca = authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ca.with_name("server.crt"), ca.with_name("server.key"))
    async with FakeMail(tls=context).serving() as fake:
        fake.smtp.people = {ANNA}
        smtp = client(fake, smtp_tls="tls", ca_file=str(ca))
        await smtp.send(ANNA, mail())
        assert len(fake.boxes[ANNA]) == 1
        await smtp.close()
        with pytest.raises(ChannelBroken, match="ca_file"):
            await client(fake, smtp_tls="tls").check()


async def test_an_end_that_is_cancelled_closes_the_connections_all_the_same(fake: FakeMail) -> None:
    """Nothing else knows of them any more."""
    smtp = client(fake)
    await smtp.check()
    [(_, kept)] = smtp._kept
    closing = asyncio.create_task(smtp.close())
    await asyncio.sleep(0)  # it says goodbye
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not kept.is_connected
