"""An IMAP connection through a proxy."""

from __future__ import annotations

import imaplib
import socket
import ssl
from typing import Any

from shared.network.tunnel import open_blocking_tunnel


def open_imap(
    proxy: str,
    host: str,
    port: int,
    timeout_s: float,
    context: ssl.SSLContext | None,
) -> imaplib.IMAP4:
    """Return a client whose connection a proxy makes, with TLS from the start if there is a
    `context`. Raises OSError and imaplib's errors."""

    class TunnelledImap(imaplib.IMAP4):
        # The constructor connects, so that the proxy cannot be an attribute that is set later.
        def _create_socket(self, timeout: float | None) -> socket.socket:
            tunnel = open_blocking_tunnel(proxy, self.host, self.port, timeout or timeout_s)
            if context is None:
                return tunnel
            try:
                return context.wrap_socket(tunnel, server_hostname=self.host)
            except BaseException:
                tunnel.close()
                raise

    made: Any = TunnelledImap
    client: imaplib.IMAP4 = made(host, port, timeout=timeout_s)
    return client
