"""Mail through a proxy, with TLS from the start: the mail server's own certificate is checked, inside the tunnel."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.channels.email.mailbox import Mailbox
from gateway.channels.email.settings import EmailSettings, read_email
from gateway.channels.email.smtp import SmtpSender
from gateway.platform.protocol import ChannelBroken, NotAccepted
from shared.settings import NetworkSettings, ProxyUrl
from tests.fakes.email import BOT, PASSWORD, FakeMail
from tests.helpers.certificates import authority
from tests.helpers.egress_proxy import EgressProxy, egress_proxy, outgoing_by

ANNA = "anna@pond.example"
MAIL = f"From: {BOT}\r\nMessage-ID: <1@pond.example>\r\n\r\nhello\r\n".encode()


@pytest.fixture
async def proxy() -> AsyncIterator[EgressProxy]:
    async with egress_proxy() as server:
        yield server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[FakeMail]:
    authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    async with FakeMail(tls=context).serving() as server:
        server.smtp.people = {ANNA}
        yield server


def read(server: FakeMail, **more: Any) -> EmailSettings:
    table = {
        "imap_host": "127.0.0.1", "imap_port": server.imap_port, "imap_tls": "tls",
        "smtp_host": "127.0.0.1", "smtp_port": server.smtp_port, "smtp_tls": "tls",
        "user": BOT, "password": PASSWORD, "believe_from": True, "timeout_s": 10, **more,
    }  # fmt: skip
    return read_email("email", table)


@contextlib.contextmanager
def mailbox(settings: EmailSettings) -> Iterator[Mailbox]:
    box = Mailbox(settings)
    try:
        yield box
    finally:
        box.end()


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_mail_comes_and_goes_through_a_tunnel(
    scheme: str, proxy: EgressProxy, server: FakeMail, tmp_path: Path
) -> None:
    """The authority of `[network]` is enough for both."""
    with outgoing_by(NetworkSettings(ca_file=tmp_path / "ca.crt")):
        settings = read(server, proxy=proxy.url(scheme, "a:b"))
        with mailbox(settings) as box:
            await box.run(box.open)
            assert box.validity
        smtp = SmtpSender(settings)
        await smtp.send(ANNA, MAIL)
        await smtp.close()
    assert [one.id for one in server.boxes[ANNA]] == ["<1@pond.example>"]
    verb = "CONNECT" if scheme == "http" else "SOCKS"
    assert proxy.asked == [f"{verb} 127.0.0.1:{port}" for port in (server.imap_port, server.smtp_port)]
    assert proxy.logins == ["a:b"] * 2


async def test_a_certificate_that_nobody_knows_is_refused_in_a_tunnel_too(proxy: EgressProxy, server: FakeMail) -> None:
    """No password was sent."""
    settings = read(server, proxy=proxy.url())
    with mailbox(settings) as box:
        with pytest.raises(ChannelBroken, match="ca_file"):
            await box.run(box.open)
    with pytest.raises(ChannelBroken, match="ca_file"):
        await SmtpSender(settings).check()


async def test_a_proxy_that_refuses_is_tried_again(server: FakeMail) -> None:
    """It is no fault of the channel's settings: its networks change."""
    with outgoing_by(NetworkSettings(ProxyUrl("http://127.0.0.1:9"), ())):
        settings = read(server)
        with mailbox(settings) as box:
            with pytest.raises(NotAccepted):
                await box.run(box.open)
        with pytest.raises(NotAccepted, match="the proxy makes no connection to the mail server"):
            await SmtpSender(settings).check()
