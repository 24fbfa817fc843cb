"""The way into a mail server: SMTP with AUTH, as far as a client of ours uses it (RFC 5321, 4954, 1870, 2034)."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable
from typing import Final

from tests.fakes.email_parts import Trouble, Wire

SIZE: Final = 2_000_000
LINE: Final = 998

AT_THE_RECIPIENT: Final = {
    "throttled": "450 4.7.1 Slow down, please",
    "closed": "550 5.1.1 No such person here",
}
AND_GOODBYE: Final = {
    "throttled bot": "421 4.7.0 Too many mails from you",
    "down": "421 4.3.2 Out of order",
}


class Smtp:
    """What all connections share. `take` is told of each mail: to whom, and the bytes."""

    def __init__(self, user: str, password: str, take: Callable[[str, bytes], None]) -> None:
        self.user, self.password = user, password
        self.people: set[str] = set()
        self.troubles: list[Trouble] = []
        self.calls: list[tuple[float, str]] = []
        self.connections = self.most = 0
        """So many there were, and at once."""
        self.greeting = "220 pond.example ESMTP"
        self.silent = False
        """It answers nothing any more."""
        self.take = take
        self._open: set[Wire] = set()

    async def talk(self, wire: Wire) -> None:
        """One connection, until its end."""
        self.connections += 1
        self._open.add(wire)
        self.most = max(self.most, len(self._open))
        try:
            if not self.silent:
                await wire.say(self.greeting)
            await _Talk(self, wire).run()
        finally:
            self._open.discard(wire)

    def cut(self) -> None:
        """Every connection is gone."""
        for wire in self._open:
            wire.cut()


class _Talk:
    def __init__(self, smtp: Smtp, wire: Wire) -> None:
        self._smtp, self._wire = smtp, wire
        self._known = self._from = False
        self._to = ""
        self._trouble: Trouble | None = None

    async def run(self) -> None:
        while line := await self._wire.line():
            if self._smtp.silent:
                continue
            word, _, rest = line.decode("utf-8", "replace").strip().partition(" ")
            match word.upper():
                case "EHLO":
                    await self._wire.say(
                        "250-pond.example", f"250-SIZE {SIZE}", "250-AUTH PLAIN", "250 ENHANCEDSTATUSCODES"
                    )
                case "AUTH":
                    await self._wire.say(self._auth(rest))
                case "MAIL":
                    await self._wire.say(self._mail(rest))
                case "RCPT":
                    if not await self._recipient(rest):
                        return
                case "DATA":
                    if not await self._data():
                        return
                case "RSET" | "NOOP":
                    await self._wire.say("250 2.0.0 Well")
                case "QUIT":
                    await self._wire.say("221 2.0.0 Goodbye")
                    return
                case _:
                    await self._wire.say("502 5.5.1 What?")

    def _auth(self, rest: str) -> str:
        wanted = base64.b64encode(f"\0{self._smtp.user}\0{self._smtp.password}".encode()).decode()
        self._known = rest == f"PLAIN {wanted}"
        return "235 2.7.0 Welcome" if self._known else "535 5.7.8 Who are you?"

    def _mail(self, rest: str) -> str:
        if not self._known:
            return "530 5.7.0 Log in first"
        if (size := re.search(r"SIZE=(\d+)", rest)) and int(size[1]) > SIZE:
            return "552 5.3.4 Too large"
        if f"<{self._smtp.user}>" not in rest:
            return "553 5.7.1 That is not your address"
        self._from = True
        return "250 2.1.0 Well"

    async def _recipient(self, rest: str) -> bool:
        """Whether the connection goes on."""
        found = re.search(r"<([^<>]+)>", rest)
        to = found[1].lower() if found else ""
        self._smtp.calls.append((time.monotonic(), to))
        trouble = self._trouble = next((one for one in self._smtp.troubles if one.is_for(to)), None)
        if trouble is not None and trouble.used_up():
            self._smtp.troubles.remove(trouble)
        kind = trouble.kind if trouble is not None else ""
        if kind in AND_GOODBYE:
            await self._wire.say(AND_GOODBYE[kind])
            return False
        if not self._from:
            await self._wire.say("503 5.5.1 MAIL first")
        elif kind in AT_THE_RECIPIENT or to not in self._smtp.people:
            await self._wire.say(AT_THE_RECIPIENT.get(kind, AT_THE_RECIPIENT["closed"]))
        else:
            self._to = to
            await self._wire.say("250 2.1.5 Well")
        return True

    async def _data(self) -> bool:
        if not self._to:
            await self._wire.say("503 5.5.1 RCPT first")
            return True
        await self._wire.say("354 Go on")
        lines = []
        while (line := await self._wire.line()) not in (b".\r\n", b""):
            lines.append(line[1:] if line.startswith(b".") else line)
        to, self._to, self._from = self._to, "", False
        kind = self._trouble.kind if self._trouble is not None else ""
        if not line or kind == "unheard":
            self._wire.cut()
            return False
        if kind == "hang":
            await self._wire.line()  # until the client gives up
            return False
        broken = any(len(one) > LINE + 2 or b"\n" in one[:-2] or not one.isascii() for one in lines)
        if broken or kind == "refused":
            await self._wire.say("554 5.6.0 I do not like this mail")
            return True
        self._smtp.take(to, b"".join(lines))
        if kind == "unanswered":
            self._wire.cut()
            return False
        await self._wire.say("451 4.3.0 Try again" if kind == "stored" else "250 2.0.0 It is on its way")
        return True
