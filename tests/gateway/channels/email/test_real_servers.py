"""The channel on real mail servers: what people get, and what Shoal hears, as other programs have it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from email.message import EmailMessage
from email.utils import make_msgid
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gateway.channels.email.settings import read_email
from gateway.channels.email.smtp import SmtpSender
from gateway.platform.protocol import ChannelBroken
from shared.ids import split_session
from shared.media.reference import read_reference
from shared.media.store import MediaStore
from shared.messages.outbound import OutboundMessage
from shared.settings import Settings, load
from tests.contracts.channels.echo import Echo, Turn
from tests.contracts.channels.stage import Replica, toml
from tests.fakes.email import FakeMail
from tests.helpers.wait import eventually
from tests.peers.mail import PASSWORD, Dovecot, MailServer, dovecot, mail_devel

SOON_S = 60.0
BOT = "shoal@pond.example"
_names = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MailServer]:
    with mail_devel(tmp_path_factory.mktemp("mail_devel")) as running:
        yield running


@pytest.fixture(scope="module")
def other_server() -> Iterator[Dovecot]:
    with dovecot() as running:
        yield running


def of_mail_devel(server: MailServer, bot: str) -> dict[str, Any]:
    """Its mailbox as it is (it has no TLS there), sending with TLS from the start."""
    return {
        "imap_host": "127.0.0.1", "imap_port": server.imap_port, "imap_tls": "off", "smtp_host": "127.0.0.1",
        "smtp_port": server.smtps_port, "ca_file": str(server.ca), "user": bot, "password": PASSWORD,
        "believe_from": True, "per_s": 100.0, "burst": 100,
    }  # fmt: skip


class People:
    """A bot and Anna, new in every test, with gateways of the bot."""

    def __init__(self, redis_url: str, home: Path) -> None:
        number = next(_names)
        self.bot, self.anna = f"shoal{number}@pond.example", f"anna{number}@pond.example"
        self.worker = Echo(redis_url)
        self._replicas: list[Replica] = []
        self._ports: set[int] = set()
        self._redis_url = redis_url
        self._home = home

    def settings(self, channel: dict[str, Any]) -> Settings:
        tables = {
            "channels.email": {"allow_from": [self.anna], **channel},
            "worker": {"lease_s": 3.0},
            "media": {"dir": str(self._home / "media")},
        }
        file = self._home / "shoal.toml"
        file.write_text(toml(tables))
        return load({}, path=file)

    async def gateway(self, channel: dict[str, Any]) -> Replica:
        """One that watches the mailbox."""
        self._ports |= {channel["imap_port"], channel["smtp_port"]}
        replica = Replica("email", self.settings(channel), self._redis_url)
        self._replicas.append(replica)
        await replica.start()

        async def begun() -> bool:
            return bool(await replica.client.command("HEXISTS", "shoal:{0ax}:lock:email", "cursor"))

        await eventually(begun, within_s=SOON_S, every_s=0.1, what="the listener")
        return replica

    async def close(self) -> None:
        for replica in self._replicas:
            if not replica.is_over:
                await replica.drain()
        await self.worker.close()
        # A TLS connection is gone only when the server has answered its end: the loop must live until then.
        await eventually(
            lambda: not self._connections(), within_s=SOON_S, what="the end of the connections to the server"
        )

    def _connections(self) -> list[Any]:
        loop: Any = asyncio.get_running_loop()
        transports = [transport for transport in loop._transports.values() if not transport.is_closing()]
        peers = [transport.get_extra_info("peername") for transport in transports]
        return [peer for peer in peers if peer and peer[1] in self._ports]

    def mail(self, text: str, *, subject: str = "Ponds", answers: EmailMessage | None = None) -> EmailMessage:
        """Of Anna's to the bot, as her program writes it."""
        mail = EmailMessage()
        mail["From"], mail["To"] = f"Anna <{self.anna}>", self.bot
        mail["Message-ID"] = make_msgid(domain="people.example")
        mail["Subject"] = subject if answers is None else str(answers["Subject"])
        if answers is not None:
            mail["In-Reply-To"] = str(answers["Message-ID"])
            mail["References"] = f"{answers['References']} {answers['Message-ID']}"
            quoted = "\n".join(f"> {line}" for line in plain(answers).splitlines())
            text = f"{text}\n\nOn Mon, 5 Jan 2026 at 10:00, Shoal <{self.bot}> wrote:\n{quoted}\n"
        mail.set_content(text)
        return mail


def plain(mail: EmailMessage) -> str:
    body = mail.get_body(("plain",))
    assert body is not None
    return str(body.get_content()).strip()


@pytest.fixture
async def people(redis_url: str, tmp_path: Path) -> AsyncIterator[People]:
    made = People(redis_url, tmp_path)
    made.worker.start()
    try:
        yield made
    finally:
        await made.close()


async def got(server: MailServer, user: str, many: int) -> list[EmailMessage]:
    """The mails of somebody, when there are so many."""

    async def there() -> list[EmailMessage] | None:
        box = await asyncio.to_thread(server.box, user)
        return box if len(box) >= many else None

    found = await eventually(there, within_s=SOON_S, every_s=0.2, what=f"{many} mails of {user}")
    assert found is not None
    assert len(found) == many
    return list(found)


async def test_a_mail_is_answered_in_its_thread(server: MailServer, people: People) -> None:
    """From SMTP to the mailbox, by IDLE to a turn, and back into the person's mailbox; an answer to that goes on in the
    same conversation, and a new mail begins another one."""
    people.worker.scripts["Subject: Ponds\n\nhow deep?"] = answer = _answers("**Very** deep.\n\nÜber 3 m.")
    await people.gateway(of_mail_devel(server, people.bot))
    asked = people.mail("how deep?")
    await asyncio.to_thread(server.send, asked)
    [answered] = await got(server, people.anna, 1)
    assert answer is not None
    assert plain(answered) == "Very deep.\n\nÜber 3 m."
    html = answered.get_body(("html",))
    assert html is not None
    assert "<strong>Very</strong>" in html.get_content() or "<b>Very</b>" in html.get_content()
    assert answered["Subject"] == "Re: Ponds"
    assert answered["From"].addresses[0].addr_spec == people.bot
    assert answered["In-Reply-To"] == answered["References"] == asked["Message-ID"]
    assert answered["Auto-Submitted"] == "auto-replied"
    await asyncio.to_thread(server.send, people.mail("and how wide?", answers=answered))
    _, second = await got(server, people.anna, 2)
    assert plain(second) == "echo: and how wide?"
    assert str(second["References"]).split()[0] == asked["Message-ID"]
    await asyncio.to_thread(server.send, people.mail("hello", subject="Lakes"))
    third = (await got(server, people.anna, 3))[2]
    assert (plain(third), third["Subject"]) == ("echo: Subject: Lakes\n\nhello", "Re: Lakes")
    sessions = [message.session for message in people.worker.received]
    assert sessions[0] == sessions[1] != sessions[2]
    assert all(split_session(one)[1].startswith(f"{people.anna}#") for one in sessions)
    await eventually(lambda: _all_read(server, people.bot), within_s=SOON_S, every_s=0.2, what="read mails")


async def test_files_go_both_ways(server: MailServer, people: People) -> None:
    """As attachments."""
    channel = of_mail_devel(server, people.bot)
    data = b"The pond is deep.\n" * 9

    async def back(turn: Turn) -> list[OutboundMessage]:
        store = MediaStore(people.settings(channel).media)
        return [turn.line("Here:", media=(str(store.put(turn.message.session, data[::-1], "zurück.txt")),))]

    people.worker.scripts["Subject: Ponds\n\nlook"] = back
    await people.gateway(channel)
    mail = people.mail("look")
    mail.add_attachment(data, maintype="text", subtype="plain", filename="Größe.txt")
    await asyncio.to_thread(server.send, mail)
    text, sent = await got(server, people.anna, 2)
    [received] = people.worker.received
    ref = read_reference(received.media[0])
    assert ref.name == "Größe.txt"
    assert MediaStore(people.settings(channel).media).read(received.session, ref) == data
    assert plain(text) == "Here:"
    [attached] = sent.iter_attachments()
    assert (attached.get_filename(), attached.get_payload(decode=True)) == ("zurück.txt", data[::-1])


async def test_a_restart_loses_nothing_and_doubles_nothing(server: MailServer, people: People) -> None:
    """What came while nobody watched is answered, what a robot wrote is not; what a stranger wrote stays unread."""
    channel = of_mail_devel(server, people.bot)
    first = await people.gateway(channel)
    await asyncio.to_thread(server.send, people.mail("/whoami-is-no-command before"))
    await got(server, people.anna, 1)
    assert await first.drain() < 10  # two seconds, on a machine that has time
    robot, stranger = people.mail("I am on holiday"), people.mail("let me in")
    robot["Auto-Submitted"] = "auto-replied"
    stranger.replace_header("From", "Anna <eve@pond.example>")
    for mail in (robot, stranger, people.mail("between", subject="Lakes")):
        await asyncio.to_thread(server.send, mail)
    await people.gateway(channel)
    await got(server, people.anna, 2)
    assert people.worker.received[-1].content.endswith("between")
    assert await asyncio.to_thread(server.box, "eve@pond.example") == []
    assert await asyncio.to_thread(server.unread, people.bot) >= 2


async def test_a_wrong_password_and_an_unknown_certificate_are_reported(server: MailServer, people: People) -> None:
    """In one line that names the setting."""
    wrong = {**of_mail_devel(server, people.bot), "password": "wrong"}
    smtp = SmtpSender(read_email("email", people.settings(wrong).channels["email"]))
    with pytest.raises(ChannelBroken, match="user and password"):
        await smtp.check()
    strange = {name: value for name, value in of_mail_devel(server, people.bot).items() if name != "ca_file"}
    smtp = SmtpSender(read_email("email", people.settings(strange).channels["email"]))
    with pytest.raises(ChannelBroken, match="ca_file"):
        await smtp.check()


@pytest.mark.parametrize("tls", ["tls", "starttls"])
async def test_a_mailbox_of_dovecot_is_watched(other_server: Dovecot, people: People, tls: str) -> None:
    """Delivered by LMTP, encrypted, heard by IDLE; what was heard is read. Of a mail that is too large the words are
    heard."""
    async with FakeMail().serving() as out:
        out.smtp.people, out.smtp.user, out.smtp.password = {people.anna}, people.bot, PASSWORD
        channel = {
            "imap_host": "127.0.0.1", "imap_tls": tls,
            "imap_port": {"tls": other_server.imaps_port, "starttls": other_server.imap_port}[tls],
            "ca_file": str(other_server.ca),
            "smtp_host": "127.0.0.1", "smtp_port": out.smtp_port, "smtp_tls": "off", "user": people.bot,
            "password": PASSWORD, "believe_from": True, "mail_mb": 1,
        }  # fmt: skip
        await people.gateway(channel)
        deliver = other_server.deliver
        await asyncio.to_thread(deliver, people.mail("hello"))
        await eventually(lambda: len(out.boxes.get(people.anna, [])) == 1, within_s=SOON_S, what="the answer")
        big = people.mail("very big")
        big.add_attachment(bytes(2_000_000), maintype="application", subtype="octet-stream", filename="zeros.bin")
        await asyncio.to_thread(deliver, big)
        await eventually(lambda: len(people.worker.received) == 2, within_s=SOON_S, what="the second one")
        assert "very big" in people.worker.received[1].content
        assert "zeros.bin" in people.worker.received[1].content
        assert people.worker.received[1].media == ()

        async def read() -> bool:
            return await asyncio.to_thread(other_server.unread, people.bot) == 0

        await eventually(read, within_s=SOON_S, every_s=0.2, what="read mails")


async def test_forged_and_endless_mails_hold_up_nothing_in_a_mailbox_of_dovecot(
    other_server: Dovecot, people: People
) -> None:
    """Of a stranger's 4 MB of borders only the header is fetched, of a person's own the first parts are read; a forged
    result below that of the mail server proves nothing; and what comes after all of them is answered soon."""
    proof = f"mx.pond.example; dmarc=pass header.from={people.anna.partition('@')[2]}"
    async with FakeMail().serving() as out:
        out.smtp.people, out.smtp.user, out.smtp.password = {people.anna}, people.bot, PASSWORD
        channel = {
            "imap_host": "127.0.0.1", "imap_port": other_server.imaps_port, "ca_file": str(other_server.ca),
            "smtp_host": "127.0.0.1", "smtp_port": out.smtp_port, "smtp_tls": "off", "user": people.bot,
            "password": PASSWORD, "authserv_id": "mx.pond.example",
        }  # fmt: skip
        await people.gateway(channel)
        stranger, own, forged, usual = (people.mail(text) for text in ("a", "b", "let me in", "hello"))
        stranger.replace_header("From", "eve@pond.example")
        for mail in (stranger, own):
            mail.replace_header("Content-Type", 'multipart/mixed; boundary="b"')
            mail.set_payload("--b\n\nx\n" * 450_000)
        forged["Authentication-Results"] = "mx.pond.example; spf=softfail; dkim=none; dmarc=none"
        forged["Received"] = "from evil.example by mx.pond.example"
        for mail in (stranger, own, forged, usual):
            mail["Authentication-Results"] = proof
        for mail in (stranger, forged, own):
            await asyncio.to_thread(other_server.deliver, mail)
        began = time.monotonic()
        await asyncio.to_thread(other_server.deliver, usual)
        await eventually(lambda: len(people.worker.received) == 2, within_s=SOON_S, what="the last one")
        assert time.monotonic() - began < 15  # a second, on a machine that has time
        many, last = (message.content for message in people.worker.received)
        assert (many.count("x") < 300, last) == (True, "Subject: Ponds\n\nhello")
        assert await asyncio.to_thread(other_server.unread, people.bot) >= 2


def _answers(text: str) -> Any:
    async def answer(turn: Turn) -> str:
        return text

    return answer


async def _all_read(server: MailServer, user: str) -> bool:
    return await asyncio.to_thread(server.unread, user) == 0
