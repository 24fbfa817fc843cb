"""One connection to a mailbox (IMAP4rev1, IDLE of RFC 2177), and the thread that calls it."""

from __future__ import annotations

import asyncio
import contextlib
import imaplib
import queue
import re
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from imap_tools import BaseMailBox, MailBox, MailBoxUnencrypted
from imap_tools.errors import ImapToolsError, MailboxFolderSelectError, MailboxLoginError

from gateway.channels.email.refusals import certificate_problem
from gateway.channels.email.settings import EmailSettings
from gateway.channels.email.wire import HEADER_BYTES
from gateway.platform.protocol import ChannelBroken, NotAccepted
from shared.network.outgoing import for_channel

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_PASSING: Final = re.compile(
    r"\[(?:UNAVAILABLE|INUSE|LIMIT|SERVERBUG|THROTTLED)\]|too many|try (?:again )?later", re.IGNORECASE
)
_NO_TLS: Final = "TLS not supported by server"
"""Error text of imaplib, which has no class for it."""

_SIZE: Final = re.compile(rb"RFC822\.SIZE (\d+)")


T = TypeVar("T")


class DedicatedThread:
    """A thread for blocking calls, one at a time; the process need not wait for it."""

    def __init__(self, name: str) -> None:
        self._calls = queue.SimpleQueue[Callable[[], None] | None]()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def run(self, call: Callable[[], T]) -> T:
        """Return or raise what the call does. A cancelled caller leaves it running."""
        done = Future[T]()
        self._calls.put(partial(_settle, done, call))
        return await asyncio.wrap_future(done)

    def end(self, last: Callable[[], None]) -> None:
        """Accept no more calls; `last` runs after all others."""
        self._calls.put(last)
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def _settle(done: Future[T], call: Callable[[], T]) -> None:
    awaited = done.set_running_or_notify_cancel()
    try:
        result = call()
    except BaseException as exc:
        if awaited:
            done.set_exception(exc)
    else:
        if awaited:
            done.set_result(result)


class MailHeader(msgspec.Struct, frozen=True):
    """The header of a mail, at most a little more than HEADER_BYTES of it, and the mail's size."""

    data: bytes
    mail_bytes: int


def _literal(response: list[Any]) -> bytes | None:
    return next((one[1] for one in response if isinstance(one, tuple)), None)


class _ConnectedMailBox(BaseMailBox):
    """The library's mailbox over a client that `open` makes."""

    def __init__(self, open: Callable[[], imaplib.IMAP4]) -> None:
        self._open = open
        super().__init__()

    def _get_mailbox_client(self) -> imaplib.IMAP4:
        return self._open()


class MailWithheld(NotAccepted):
    """The server does not deliver one particular mail."""


class Mailbox:
    """A mailbox, connected by `open`. Methods block and are for `run`; `wake`, `abort` and `end`
    are for any thread. While `validity` is unchanged a number means the same mail; the next mail
    after `open` got `next_uid` or more."""

    def __init__(self, settings: EmailSettings) -> None:
        self.validity = 0
        self.next_uid = 0
        self._thread = DedicatedThread("mailbox")
        self.run = self._thread.run
        self._settings = settings
        self._outgoing = for_channel(settings.proxy)
        self._box: BaseMailBox | None = None
        self._idles = False
        self._woken, self._waker = socket.socketpair()
        self._aborted = False

    def open(self) -> None:
        """Connect, log in, and open the folder. Raises ChannelBroken, NotAccepted."""
        settings = self._settings
        with self._mapped_errors():
            self._box = box = self._connect()
            if self._aborted:
                raise ConnectionAbortedError("nobody waits for it any more")
            if settings.imap_tls == "starttls":
                box.client.starttls(self._tls_context())
            user = settings.user
            password = settings.password.reveal()
            if user.isascii() and password.isascii():
                box.login(user, password, initial_folder=None)
            else:
                box.login_utf8(user, password, initial_folder=None)
            _, capabilities = box.client.capability()
            self._idles = b"IDLE" in (capabilities[0] or b"").upper().split()
            box.folder.set(settings.folder)
            self.validity = self._folder_number("UIDVALIDITY")
            self.next_uid = self._folder_number("UIDNEXT")
            if not self.next_uid:
                self.next_uid = max(self._search("ALL"), default=0) + 1

    def new_uids(self, after: int) -> list[int]:
        """Return the numbers of the mails after one, in order."""
        return [uid for uid in self._search(f"UID {after + 1}:*") if uid > after]

    def unseen_uids(self, since_ms: int) -> list[int]:
        """Return the numbers of unread mails, from the day of this time on."""
        day = time.gmtime(since_ms / 1000)
        return self._search(f"UNSEEN SINCE {day.tm_mday}-{_MONTHS[day.tm_mon - 1]}-{day.tm_year}")

    def fetch_header(self, uid: int) -> MailHeader | None:
        """Return the header of a mail; None = gone. Raises MailWithheld."""
        with self._mapped_errors():
            parts = self._fetch_parts(uid, f"(UID RFC822.SIZE BODY.PEEK[HEADER]<0.{HEADER_BYTES + 8}>)")
            lines = [one[0] if isinstance(one, tuple) else one for one in parts]
            size = _SIZE.search(b" ".join(filter(None, lines)))
            data = _literal(parts)
            return None if size is None or data is None else MailHeader(data, int(size[1]))

    def fetch_mail(self, uid: int, first: int | None = None) -> bytes | None:
        """Return a mail, or the `first` bytes of it; None = gone. Raises MailWithheld."""
        with self._mapped_errors():
            part = "" if first is None else f"<0.{first}>"
            return _literal(self._fetch_parts(uid, f"(UID BODY.PEEK[]{part})"))

    def mark_seen(self, uid: int) -> None:
        """Mark a mail as read. (The library's `flag` would also expunge what others deleted.)"""
        with self._mapped_errors():
            self._client.uid("STORE", str(uid), "+FLAGS.SILENT", r"(\Seen)")

    def wait_for_mail(self) -> None:
        """Wait until there may be new mail, the time limit of the settings, or `wake`."""
        with self._mapped_errors():
            if not self._idles:
                self._wait_readable(self._settings.poll_s)
                self._client.noop()
                return
            assert self._box is not None
            self._box.idle.start()  # type: ignore[no-untyped-call]
            sock = self._client.socket()
            if not self._has_buffered_line(sock):
                self._wait_readable(self._settings.idle_s, sock)
            # Ends IDLE before the next command: a server may close a connection that mixes them.
            self._box.idle.stop()  # type: ignore[no-untyped-call]

    def _close(self) -> None:
        """Log out if that is still possible."""
        if self._box is not None:
            with contextlib.suppress(imaplib.IMAP4.error, ImapToolsError, OSError):
                if not self._aborted:
                    self._box.logout()
            with contextlib.suppress(OSError):
                self._box.client.shutdown()
        self._woken.close()
        self._waker.close()

    # --- from other threads

    def wake(self) -> None:
        """End a `wait_for_mail`, current or future."""
        with contextlib.suppress(OSError):
            self._waker.send(b"!")

    def abort(self) -> None:
        """Cancel whatever call is in progress."""
        self._aborted = True
        self._waker.close()
        if self._box is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._box.client.socket(), socket.SHUT_RDWR)

    def end(self) -> None:
        """Close it after all other calls."""
        self._thread.end(self._close)

    # --- inside

    @property
    def _client(self) -> imaplib.IMAP4:
        assert self._box is not None
        return self._box.client

    def _connect(self) -> BaseMailBox:
        settings = self._settings
        host = settings.imap_host
        port = settings.imap_port
        timeout = settings.timeout_s
        box: BaseMailBox
        context = self._tls_context() if settings.imap_tls == "tls" else None
        if proxy := self._outgoing.proxy_to(host, port):
            # Imported here: few installations have such a proxy.
            from gateway.channels.email.tunnelled_imap import open_imap

            box = _ConnectedMailBox(partial(open_imap, proxy, host, port, timeout, context))
        elif context is not None:
            box = MailBox(host, port, timeout=timeout, ssl_context=context)
        else:
            box = MailBoxUnencrypted(host, port, timeout=timeout)
        box.client.socket().setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return box

    def _tls_context(self) -> ssl.SSLContext:
        own = self._settings.ca_file
        if own is None and (ours := self._outgoing.tls_context()) is not None:
            return ours
        return ssl.create_default_context(cafile=own)

    def _search(self, criteria: str) -> list[int]:
        assert self._box is not None
        with self._mapped_errors():
            return sorted(map(int, self._box.uids(criteria, charset=None)))

    def _fetch_parts(self, uid: int, what: str) -> list[Any]:
        status, response = self._client.uid("FETCH", str(uid), what)
        if status != "OK":
            raise MailWithheld(f"the mailbox does not hand out a mail: {status}")
        return response

    def _folder_number(self, code: str) -> int:
        """Return a number the server gave when the folder was opened; 0 = none."""
        _, values = self._client.response(code)
        return int(values[0]) if values and values[0] and values[0].isdigit() else 0

    def _has_buffered_line(self, sock: socket.socket) -> bool:
        """Return whether a line came with IDLE's response: it is buffered, the socket silent."""
        before = sock.gettimeout()
        sock.settimeout(0)
        try:
            return bool(self._client.readline())
        except (OSError, ValueError):
            return False
        finally:
            sock.settimeout(before)

    def _wait_readable(self, seconds: float, *also: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            for one in (self._woken, *also):
                selector.register(one, selectors.EVENT_READ)
            selector.select(seconds)

    @contextlib.contextmanager
    def _mapped_errors(self) -> Iterator[None]:
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
            if (why := certificate_problem(exc)) is not None:
                raise ChannelBroken(
                    f"the mail server {self._settings.imap_host!r} "
                    f"is not who it says, or not known: {why}; see {key}.ca_file"
                ) from exc
            if _NO_TLS in str(exc):
                raise ChannelBroken(f'the mailbox has no STARTTLS; write {key}.imap_tls = "tls" and its port') from exc
            # Without the server's own text, which may contain anything.
            is_ours = isinstance(exc, imaplib.IMAP4.abort | OSError)
            why = str(exc)[:80] if is_ours else type(exc).__name__
            raise NotAccepted(f"the connection to the mailbox was lost: {why}") from exc
