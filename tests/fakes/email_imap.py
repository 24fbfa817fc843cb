"""The way out of a mail server: one mailbox by IMAP4rev1 with IDLE, as far as our client uses it (RFC 3501, 2177).

Numbers are given as a real one gives them: ascending, and other ones when the mailbox is made anew.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

from shared.tasks import cancel_all
from tests.fakes.email_parts import Letter, Mode, Wire

MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Imap:
    """The mailbox, and what all connections to it share."""

    def __init__(self, user: str, password: str, mode: Mode) -> None:
        self.user, self.password = user, password
        self.mode = mode
        self.letters: list[Letter] = []
        self.validity = 1
        self.next_uid = 1
        self.open: set[Wire] = set()
        """Connections that watch the mailbox."""
        self.idling: set[Wire] = set()
        self.keeps_back: set[int] = set()
        """Mails that are not handed out."""
        self.when_idle: list[bytes] = []
        """Mails that come in the moment in which somebody begins to idle."""
        self.refuses_login = ""
        self.silent = False
        """It takes connections, and says nothing."""
        self.fetched: list[int] = []
        """Mails of which more than the header was fetched."""
        self.changed = asyncio.Condition()
        self._before_anybody: list[bytes] | None = []

    async def deliver(self, raw: bytes) -> None:
        """A mail comes. Before anybody ever watched, it waits: a bot answers nothing of the time before it."""
        if self._before_anybody is not None:
            self._before_anybody.append(raw)
            return
        async with self.changed:
            self._add(raw)
            self.changed.notify_all()

    def cut(self) -> None:
        """Every connection that watches is gone."""
        for wire in self.open:
            wire.cut()

    def make_anew(self) -> None:
        """As after a restore: other numbers, in another order of magnitude."""
        self.validity += 1
        self.next_uid = 1000
        for letter in self.letters:
            letter.uid = self.next_uid
            self.next_uid += 1
        self.cut()

    def somebody_watches(self) -> None:
        """From now on what comes is news."""
        waiting, self._before_anybody = self._before_anybody or [], None
        for raw in waiting:
            self._add(raw)

    def _add(self, raw: bytes) -> None:
        self.letters.append(Letter(self.next_uid, raw))
        self.next_uid += 1

    async def talk(self, wire: Wire) -> None:
        """One connection, until its end."""
        try:
            while self.silent:
                if not await wire.line():
                    return
            await wire.say("* OK [CAPABILITY IMAP4rev1] pond.example")
            await _Talk(self, wire).run()
        finally:
            self.open.discard(wire)
            self.idling.discard(wire)


class _Talk:
    def __init__(self, box: Imap, wire: Wire) -> None:
        self._box, self._wire = box, wire
        self._announced = 0

    async def run(self) -> None:
        while line := await self._wire.line():
            tag, _, rest = line.decode().strip().partition(" ")
            word, _, rest = rest.partition(" ")
            match word.upper():
                case "CAPABILITY":
                    idle = " IDLE" if self._box.mode == "idle" else ""
                    await self._wire.say(f"* CAPABILITY IMAP4rev1{idle}", f"{tag} OK Well")
                case "LOGIN":
                    await self._wire.say(f"{tag} {self._login(rest)}")
                case "SELECT" if rest.strip('"') == "INBOX":
                    await self._select(tag)
                case "SELECT":
                    await self._wire.say(f"{tag} NO [NONEXISTENT] There is no such folder")
                case "UID":
                    await self._uid(tag, rest)
                case "NOOP":
                    await self._wire.say(*self._news(), f"{tag} OK Well")
                case "IDLE" if self._box.mode == "idle":
                    await self._idle(tag)
                case "LOGOUT":
                    await self._wire.say("* BYE", f"{tag} OK Goodbye")
                    return
                case _:
                    await self._wire.say(f"{tag} BAD What?")

    def _login(self, rest: str) -> str:
        if self._box.refuses_login:
            return self._box.refuses_login
        wanted = f'"{self._box.user}" "{self._box.password}"'
        return "OK Welcome" if rest == wanted else "NO [AUTHENTICATIONFAILED] Who are you?"

    async def _select(self, tag: str) -> None:
        box = self._box
        self._announced = len(box.letters)
        await self._wire.say(
            f"* {len(box.letters)} EXISTS",
            r"* FLAGS (\Seen \Deleted)",
            f"* OK [UIDVALIDITY {box.validity}] these numbers",
            f"* OK [UIDNEXT {box.next_uid}] the next one",
            f"{tag} OK [READ-WRITE] Well",
        )
        box.open.add(self._wire)
        box.somebody_watches()

    async def _uid(self, tag: str, rest: str) -> None:
        word, _, rest = rest.partition(" ")
        match word.upper():
            case "SEARCH":
                found = " ".join(str(one) for one in self._search(rest))
                await self._wire.say(f"* SEARCH {found}".strip(), f"{tag} OK Well")
            case "FETCH":
                await self._fetch(tag, rest)
            case "STORE":
                uid = int(rest.split()[0])
                for letter in self._box.letters:
                    letter.seen = letter.seen or (letter.uid == uid and r"+FLAGS.SILENT (\Seen)" in rest)
                await self._wire.say(f"{tag} OK Well")

    def _search(self, what: str) -> list[int]:
        letters = self._box.letters
        if found := re.fullmatch(r"UID (\d+):\*", what):
            behind = [one.uid for one in letters if one.uid >= int(found[1])]
            return behind or [one.uid for one in letters[-1:]]  # `*` is the last one, in whichever order
        if found := re.fullmatch(r"UNSEEN SINCE (\d+)-(\w{3})-(\d{4})", what):
            day = (int(found[3]), MONTHS.index(found[2]) + 1, int(found[1]))
            return [one.uid for one in letters if not one.seen and tuple(one.at[:3]) >= day]
        assert what == "ALL", what
        return [one.uid for one in letters]

    async def _fetch(self, tag: str, rest: str) -> None:
        uid, _, what = rest.partition(" ")
        if int(uid) in self._box.keeps_back:
            await self._wire.say(f"{tag} NO [SERVERBUG] I cannot find it any more")
            return
        for number, letter in enumerate(self._box.letters, 1):
            if letter.uid != int(uid):
                continue
            found = re.fullmatch(r"\(UID( RFC822\.SIZE)? BODY\.PEEK\[(HEADER)?\](?:<0\.(\d+)>)?\)", what)
            assert found, what
            data, part = letter.raw, ""
            if found[2]:
                data = re.split(rb"(?<=\r\n)\r\n", data, maxsplit=1)[0] + b"\r\n"
            else:
                self._box.fetched.append(letter.uid)
            if found[3]:
                data, part = data[: int(found[3])], "<0>"
            size = f" RFC822.SIZE {len(letter.raw)}" if found[1] else ""
            head = f"* {number} FETCH (UID {uid}{size} BODY[{found[2] or ''}]{part} {{{len(data)}}}"
            await self._wire.say(head.encode() + b"\r\n" + data + b")")
        await self._wire.say(f"{tag} OK Well")

    def _news(self) -> list[str]:
        if len(self._box.letters) <= self._announced:
            return []
        self._announced = len(self._box.letters)
        return [f"* {self._announced} EXISTS"]

    async def _idle(self, tag: str) -> None:
        box = self._box
        for raw in box.when_idle:
            await box.deliver(raw)
        box.when_idle.clear()
        await self._wire.say("+ idling", *self._news())
        box.idling.add(self._wire)
        done = asyncio.create_task(self._wire.line())
        watching = asyncio.create_task(self._tell())
        try:
            await done
        finally:
            box.idling.discard(self._wire)
            await cancel_all([watching])
        await self._wire.say(f"{tag} OK Well")

    async def _tell(self) -> None:
        while True:
            async with self._box.changed:
                await self._box.changed.wait_for(lambda: len(self._box.letters) > self._announced)
                news = self._news()
            await self._wire.say(*news)
