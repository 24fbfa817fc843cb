"""Send mails over a few reused connections; failures become errors of the platform protocol."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Final

from aiosmtplib import SMTP, SMTPConnectError, SMTPException, SMTPResponseException

from gateway.channels.email.refusals import Refusal, Step, certificate_problem, map_error
from gateway.channels.email.settings import EmailSettings
from gateway.platform.protocol import ChannelBroken, MaybeSent, NotAccepted, NotDelivered
from shared.network.outgoing import for_channel

KEPT_S: Final = 20.0
"""Time for which an idle connection is reused. Servers close one after minutes."""

BYE_S: Final = 0.3
_SILENT: Final = "no answer of the mail server in time"


class SmtpSender:
    """The SMTP connections of one gateway."""

    def __init__(self, settings: EmailSettings) -> None:
        self._settings = settings
        self._outgoing = for_channel(settings.proxy)
        self._slots = asyncio.Semaphore(settings.connections)
        self._kept: list[tuple[float, SMTP]] = []
        self._context: ssl.SSLContext | None = None

    async def check(self) -> None:
        """Connect and log in. Raises ChannelBroken, NotAccepted, Throttled."""
        async with self._within(self._end_at(), NotAccepted(_SILENT)):
            self._keep(await self._connect())

    async def send(self, to: str, mail: bytes) -> None:
        """Hand over a mail in one try. Raises ChannelBroken, NotDelivered in one of its forms."""
        end_at = self._end_at()
        async with contextlib.AsyncExitStack() as stack:
            busy = NotAccepted("all connections to the mail server are busy")
            async with self._within(end_at, busy):
                await stack.enter_async_context(self._slots)
            smtp = await self._addressed_connection(to, len(mail), end_at)
            unclear = MaybeSent("the mail server did not say whether it took the mail")
            # Closed also when cancelled: a connection inside DATA cannot be used for another mail.
            with _closed_on_error(smtp, lambda exc: self._map_lost("content", exc)):
                async with self._within(end_at, unclear):
                    await smtp.data(mail, timeout=None)
            self._keep(smtp)

    async def close(self) -> None:
        """Close every connection."""
        kept = self._kept
        self._kept = []
        try:
            with contextlib.suppress(TimeoutError, SMTPException, OSError):
                async with asyncio.timeout(BYE_S):
                    quits = (smtp.quit(timeout=None) for _, smtp in kept)
                    await asyncio.gather(*quits, return_exceptions=True)
        finally:  # also when this is cancelled: nothing else knows of them any more
            for _, smtp in kept:
                smtp.close()

    async def _addressed_connection(self, to: str, size: int, end_at: float) -> SMTP:
        """Return a connection with accepted sender and recipient. A kept one may be dead."""
        async with self._within(end_at, NotAccepted(_SILENT)):
            kept = self._pop_kept()
            if kept is not None:
                with contextlib.suppress(NotAccepted):
                    return await self._address(kept, to, size)
            return await self._address(await self._connect(), to, size)

    async def _address(self, smtp: SMTP, to: str, size: int) -> SMTP:
        step: Step = "sender"
        with _closed_on_error(smtp, lambda exc: self._map_lost(step, exc)):
            options = [f"SIZE={size}"] if smtp.supports_extension("size") else []
            await smtp.mail(self._settings.me, options=options, timeout=None)
            step = "recipient"
            await smtp.rcpt(to, timeout=None)
        return smtp

    async def _connect(self) -> SMTP:
        settings = self._settings
        if self._context is None and settings.smtp_tls != "off":
            make_context = partial(ssl.create_default_context, cafile=settings.ca_file)
            ours = None if settings.ca_file else self._outgoing.tls_context()
            self._context = ours or await asyncio.to_thread(make_context)
        tunnel = await self._open_tunnel()
        smtp = SMTP(
            hostname=settings.smtp_host,
            port=None if tunnel else settings.smtp_port,
            sock=tunnel,
            use_tls=settings.smtp_tls == "tls",
            start_tls=settings.smtp_tls == "starttls",
            tls_context=self._context,
            local_hostname=settings.me.rpartition("@")[2],
            timeout=None,
        )
        step: Step = "greeting"
        with _closed_on_error(smtp, lambda exc: self._map_connect_error(step, exc)):
            await smtp.connect()
            if settings.smtp_login:
                step = "login"
                password = (settings.smtp_password or settings.password).reveal()
                await smtp.login(settings.smtp_user or settings.user, password, timeout=None)
            elif smtp.is_ehlo_or_helo_needed:
                await smtp.ehlo(timeout=None)
        return smtp

    async def _open_tunnel(self) -> socket.socket | None:
        """Return a connection to the mail server, made by a proxy; None where there is no proxy."""
        host = self._settings.smtp_host
        port = self._settings.smtp_port
        if (proxy := self._outgoing.proxy_to(host, port)) is None:
            return None
        # Imported here: few installations have such a proxy.
        from shared.network.tunnel import open_tunnel

        try:
            return await open_tunnel(proxy, host, port, self._settings.timeout_s)
        except OSError as exc:
            raise NotAccepted(f"the proxy makes no connection to the mail server {host!r}") from exc

    def _map_connect_error(self, step: Step, exc: SMTPException | OSError) -> Refusal:
        where = f"the mail server {self._settings.smtp_host!r}"
        if isinstance(exc, SMTPResponseException):
            return self._map_lost(step, exc)
        if (why := certificate_problem(exc)) is not None:
            return ChannelBroken(f"{where} is not who it says, or not known: {why}; see channels.email.ca_file")
        if isinstance(exc, SMTPConnectError | OSError):
            return NotAccepted(f"{where} cannot be reached: {type(exc.__cause__ or exc).__name__}")
        if step == "login":
            return ChannelBroken(f"{where} asks for no password on this connection; see channels.email.smtp_tls")
        return ChannelBroken(f"{where} has no STARTTLS; see channels.email.smtp_tls")

    def _map_lost(self, step: Step, exc: SMTPException | OSError) -> Refusal:
        if isinstance(exc, SMTPResponseException):
            return map_error(step, exc.code, exc.message, slow_down_s=self._settings.slow_down_s)
        if step == "content":
            return MaybeSent(f"the connection was lost in a mail: {type(exc).__name__}")
        return NotAccepted(f"the connection to the mail server was lost: {type(exc).__name__}")

    def _pop_kept(self) -> SMTP | None:
        now = asyncio.get_running_loop().time()
        while self._kept:
            kept_at, smtp = self._kept.pop()
            if smtp.is_connected and now - kept_at < KEPT_S:
                return smtp
            smtp.close()
        return None

    def _keep(self, smtp: SMTP) -> None:
        now = asyncio.get_running_loop().time()
        fresh = [one for one in self._kept if now - one[0] < KEPT_S]
        for old in self._kept:
            if old not in fresh:
                old[1].close()
        self._kept = [*fresh, (now, smtp)]

    def _end_at(self) -> float:
        return asyncio.get_running_loop().time() + self._settings.timeout_s

    @staticmethod
    @contextlib.asynccontextmanager
    async def _within(end_at: float, late: NotDelivered) -> AsyncIterator[None]:
        """Raise `late` when the time is over."""
        try:
            async with asyncio.timeout_at(end_at):
                yield
        except TimeoutError:
            raise late from None


@contextlib.contextmanager
def _closed_on_error(smtp: SMTP, map_to: Callable[[SMTPException | OSError], Refusal]) -> Iterator[None]:
    try:
        yield
    except BaseException as exc:
        smtp.close()
        if isinstance(exc, SMTPException | OSError):
            raise map_to(exc) from exc
        raise
