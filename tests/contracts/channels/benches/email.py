"""E-mail, by IMAP and SMTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from email.message import EmailMessage
from email.utils import formatdate
from functools import partial
from typing import Any, Final

from gateway.platform.protocol import HookRequest, RunMode
from shared.ids import session_id
from tests.contracts.channels.bench import PEOPLE, Call, ChannelBench, Fault, OpenBench, PersonAction, Shown, Signing
from tests.fakes.email import BOT, PASSWORD, SERVER, FakeMail
from tests.fakes.email_parts import Mode, Trouble, root, thread

STRANGER: Final = "stranger@pond.example"


class EmailBench:
    """A mail server with PEOPLE people, each in a thread of their own with the bot."""

    name = "email"
    run_mode: RunMode = "exclusive"
    path: tuple[str, ...] = ()
    cannot = frozenset({"markup", "edit", "delete", "group", "typing", "press", "reply_to"})
    """Mail servers do not look at HTML; a mail stays as it is; everybody's thread is their own."""

    def __init__(self, server: FakeMail) -> None:
        self._server = server
        server.smtp.people = {person(number) for number in range(PEOPLE)} | {STRANGER}

    def table(self) -> dict[str, Any]:
        return {
            "imap_host": "127.0.0.1",
            "imap_port": self._server.imap_port,
            "imap_tls": "off",
            "smtp_host": "127.0.0.1",
            "smtp_port": self._server.smtp_port,
            "smtp_tls": "off",
            "user": BOT,
            "password": PASSWORD,
            "authserv_id": SERVER,
            "idle_s": 2.0,
            "poll_s": 1.0,
            "per_s": 100.0,
            "burst": 100,
            "slow_down_s": 1.0,
            "timeout_s": 2.0,
            "allow_from": [person(number) for number in range(PEOPLE)],
        }

    def chat(self, number: int, *, group: bool = False) -> str:
        return person(number)

    def session(self, chat: str) -> str:
        return session_id(self.name, f"{chat}#{thread(chat)}")

    async def tell(self, action: PersonAction) -> None:
        await self._server.imap.deliver(self._mail(action))

    def hook(self, action: PersonAction, signing: Signing = "good") -> HookRequest:
        raise NotImplementedError("a mail server calls no webhook")

    def handshake(self) -> tuple[HookRequest, bytes] | None:
        return None

    def fault(self, fault: Fault) -> None:
        self._server.smtp.troubles.append(Trouble(fault.kind, fault.chat, fault.times))

    def heal(self) -> None:
        self._server.smtp.troubles.clear()

    def shown(self, chat: str) -> Sequence[Shown]:
        return [
            Shown(id=one.id, text=one.text, markup=one.markup, file=one.file)
            for one in self._server.boxes.get(chat, [])
        ]

    def calls(self) -> Sequence[Call]:
        return [Call(at, "send", to) for at, to in self._server.smtp.calls]

    def listeners(self) -> int:
        return len(self._server.imap.open)

    def _mail(self, action: PersonAction) -> bytes:
        mail = EmailMessage()
        sender = {"person": action.chat, "bot": action.chat, "stranger": STRANGER, "self": BOT}[action.by]
        mail["Authentication-Results"] = f"{SERVER}; dmarc=pass header.from=pond.example"
        mail["From"] = f"Somebody <{sender}>"
        mail["To"] = BOT
        mail["Subject"] = "Re: Ponds"
        mail["Date"] = formatdate()
        mail["Message-ID"] = f"<{action.id}@people.example>"
        mail["References"] = f"<{root(action.chat)}>"
        if action.by == "bot":
            mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(action.text)
        for file in action.files:
            main, _, sub = file.media_type.partition("/")
            mail.add_attachment(file.data, maintype=main, subtype=sub, filename=file.name)
        return mail.as_bytes().replace(b"\n", b"\r\n")


def person(number: int) -> str:
    return f"person{number}@pond.example"


@contextlib.asynccontextmanager
async def opened(mode: Mode) -> AsyncIterator[ChannelBench]:
    async with FakeMail(mode=mode).serving() as server:
        yield EmailBench(server)


BENCHES: Mapping[str, OpenBench] = {
    "email, exclusive": partial(opened, "idle"),
    "email, exclusive, polling": partial(opened, "polling"),
}
