"""One connection to a mailbox (IMAP4rev1, IDLE of RFC 2177). Every method blocks, and is called in
a thread of its own; `wake` and `cut` alone may be called from another one."""

from __future__ import annotations

import contextlib
import imaplib
import re
import selectors
import socket
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from imap_tools import BaseMailBox, MailBox, MailBoxUnencrypted
from imap_tools.errors import ImapToolsError, MailboxFolderSelectError, MailboxLoginError

from gateway.channels.email.settings import EmailSettings
from gateway.channels.email.tls import context_of, untrusted
from gateway.platform.protocol import ChannelBroken, NotAccepted

BEGINNING: Final = 256 * 1024
"""Bytes that are read of a mail that is too large."""

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_PASSING: Final = re.compile(
    r"\[(?:UNAVAILABLE|INUSE|LIMIT|SERVERBUG|THROTTLED)\]|too many|try (?:again )?later", re.IGNORECASE
)
_NO_TLS: Final = "TLS not supported by server"
"""What imaplib says; it has no class for that."""

_SIZE: Final = re.compile(rb"RFC822\.SIZE (\d+)")


class Opened(msgspec.Struct, frozen=True):
    """A folder as it is when it is opened. While `validity` is the same, a number means the same
    mail; the next mail gets `next_uid` or more."""

    validity: int
    next_uid: int


class Letter(msgspec.Struct, frozen=True):
    """A mail as bytes; only its beginning where not `whole`."""

    data: bytes
    whole: bool


class NotGiven(NotAccepted):
    """The server will not hand out one mail."""


class Mailbox:
    """Connects with `open`."""

    def __init__(self, settings: EmailSettings) -> None:
        self._settings = settings
        self._box: BaseMailBox | None = None
        self._idles = False
        self._woken, self._waker = socket.socketpair()
        self._over = False

    def open(self) -> Opened:
        """Connect, log in, and open the folder. Raises ChannelBroken, NotAccepted."""
        settings = self._settings
        with self._told():
            self._box = box = self._connected()
            if self._over:
                raise ConnectionAbortedError("nobody waits for it any more")
            if settings.imap_tls == "starttls":
                box.client.starttls(context_of(settings))
            user, password = settings.user, settings.password.reveal()
            if user.isascii() and password.isascii():
                box.login(user, password, initial_folder=None)
            else:
                box.login_utf8(user, password, initial_folder=None)
            _, told = box.client.capability()
            self._idles = b"IDLE" in (told[0] or b"").upper().split()
            box.folder.set(settings.folder)
            return Opened(self._number("UIDVALIDITY"), self._number("UIDNEXT") or self._highest() + 1)

    def new(self, after: int) -> list[int]:
        """The numbers of the mails behind one, in their order."""
        return [uid for uid in self._search(f"UID {after + 1}:*") if uid > after]

    def unseen(self, since_ms: int) -> list[int]:
        """Those that nobody has read, from the day of this time on."""
        day = time.gmtime(since_ms / 1000)
        return self._search(f"UNSEEN SINCE {day.tm_mday}-{_MONTHS[day.tm_mon - 1]}-{day.tm_year}")

    def fetch(self, uid: int, limit: int) -> Letter | None:
        """A mail; of one that is larger than `limit` bytes the beginning. It stays unread. None =
        it is gone. Raises NotGiven."""
        with self._told():
            size = _SIZE.search(b" ".join(_lines(self._fetch(uid, "(UID RFC822.SIZE)"))))
            if size is None:
                return None
            whole = int(size[1]) <= limit
            said = self._fetch(uid, "(UID BODY.PEEK[])" if whole else f"(UID BODY.PEEK[]<0.{BEGINNING}>)")
            data = next((one[1] for one in said if isinstance(one, tuple)), None)
            return None if data is None else Letter(data, whole)

    def read(self, uid: int) -> None:
        """Mark it as read. (Not by the library's `flag`, which also deletes for good what others
        marked as deleted.)"""
        with self._told():
            self._client.uid("STORE", str(uid), "+FLAGS.SILENT", r"(\Seen)")

    def wait(self) -> None:
        """Until something may be new, or for so long as the settings say, or until `wake`."""
        with self._told():
            if not self._idles:
                self._sleep(self._settings.poll_s)
                self._client.noop()
                return
            assert self._box is not None
            self._box.idle.start()  # type: ignore[no-untyped-call]
            sock = self._client.socket()
            if not self._has_line(sock):
                self._sleep(self._settings.idle_s, sock)
            self._box.idle.stop()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Log out, if that is still possible."""
        if self._box is not None:
            with contextlib.suppress(imaplib.IMAP4.error, ImapToolsError, OSError):
                if not self._over:
                    self._box.logout()
            with contextlib.suppress(OSError):
                self._box.client.shutdown()
        self._woken.close()
        self._waker.close()

    # --- from other threads

    def wake(self) -> None:
        """End a `wait`, now and later."""
        with contextlib.suppress(OSError):
            self._waker.send(b"!")

    def cut(self) -> None:
        """End whatever is under way."""
        self._over = True
        self._waker.close()
        if self._box is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._box.client.socket(), socket.SHUT_RDWR)

    # --- inside

    @property
    def _client(self) -> imaplib.IMAP4:
        assert self._box is not None
        return self._box.client

    def _connected(self) -> BaseMailBox:
        settings = self._settings
        host, port, timeout = settings.imap_host, settings.imap_port, settings.timeout_s
        box: BaseMailBox
        if settings.imap_tls == "tls":
            box = MailBox(host, port, timeout=timeout, ssl_context=context_of(settings))
        else:
            box = MailBoxUnencrypted(host, port, timeout=timeout)
        box.client.socket().setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return box

    def _search(self, criteria: str) -> list[int]:
        assert self._box is not None
        with self._told():
            return sorted(map(int, self._box.uids(criteria, charset=None)))

    def _fetch(self, uid: int, what: str) -> list[Any]:
        status, said = self._client.uid("FETCH", str(uid), what)
        if status != "OK":
            raise NotGiven(f"the mailbox does not hand out a mail: {status}")
        return said

    def _number(self, code: str) -> int:
        """What the server said when the folder was opened; 0 = nothing."""
        _, told = self._client.response(code)
        return int(told[0]) if told and told[0] and told[0].isdigit() else 0

    def _highest(self) -> int:
        return max(self._search("ALL"), default=0)

    def _has_line(self, sock: socket.socket) -> bool:
        """Whether a line came along with the answer to IDLE: then it lies in a buffer, and the
        socket keeps silent."""
        before = sock.gettimeout()
        sock.settimeout(0)
        try:
            return bool(self._client.readline())
        except (OSError, ValueError):
            return False
        finally:
            sock.settimeout(before)

    def _sleep(self, seconds: float, *also: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            for one in (self._woken, *also):
                selector.register(one, selectors.EVENT_READ)
            selector.select(seconds)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """What goes wrong, as an error of ours."""
        key = "channels.email"
        try:
            yield
        except MailboxLoginError as exc:
            if _PASSING.search(str(exc)):
                raise NotAccepted("the mailbox cannot be opened at the moment") from exc
            raise ChannelBroken(
                f"the mailbox does not take {key}.user and {key}.password; write the right ones"
            ) from exc
        except MailboxFolderSelectError as exc:
            if _PASSING.search(str(exc)):
                raise NotAccepted("the folder cannot be opened at the moment") from exc
            raise ChannelBroken(f"there is no folder {self._settings.folder!r}; write another {key}.folder") from exc
        except (ImapToolsError, imaplib.IMAP4.error, OSError) as exc:
            if (why := untrusted(exc)) is not None:
                whose = f"the mail server {self._settings.imap_host!r}"
                raise ChannelBroken(f"{whose} is not who it says, or not known: {why}; see {key}.ca_file") from exc
            if _NO_TLS in str(exc):
                raise ChannelBroken(f'the mailbox has no STARTTLS; write {key}.imap_tls = "tls" and its port') from exc
            raise NotAccepted(f"the connection to the mailbox was lost: {_said(exc)}") from exc


def _said(exc: Exception) -> str:
    """What went wrong; without the server's own words, which may be anything."""
    return str(exc)[:80] if isinstance(exc, imaplib.IMAP4.abort | OSError) else type(exc).__name__


def _lines(said: list[Any]) -> Iterator[bytes]:
    for one in said:
        yield one[0] if isinstance(one, tuple) else one or b""
