"""No part of the product connects by itself: a call that were forgotten would go past the operator's proxy."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[3]

CALLS: Final = {
    "AsyncClient",
    "ClientSession",
    "IMAP4",
    "IMAP4_SSL",
    "MailBox",
    "MailBoxUnencrypted",
    "SMTP",
    "Session",
    "TCPConnector",
    "connect",
    "create_connection",
    "open_connection",
    "sock_connect",
    "urlopen",
}
"""Names of what opens a connection, in the libraries that are here and in Python's own."""

ALLOWED: Final = {
    "console/chat/client.py": "to the gateway, from the terminal of a person; by no proxy",
    "console/doctor/checks.py": "to the proxy itself: does it answer?",
    "console/page.py": "to the page on this machine",
    "console/up/command.py": "to the page on this machine",
    "gateway/channels/email/mailbox.py": "where there is no proxy for its server",
    "gateway/channels/email/smtp.py": "over the tunnel, if there is a proxy",
    "gateway/channels/feishu/api.py": "its own open_connection, over the session of PlatformHttp",
    "shared/network/http_client.py": "the rules themselves",
    "shared/network/tunnel.py": "the rules themselves",
    "shared/process/resp.py": "to Redis",
    "shared/store/client/connection.py": "to Redis",
    "worker/guards/proxy.py": "to checked addresses, where there is no proxy for them",
    "shared/guards/request.py": "to checked addresses, where there is no proxy for them",
    "worker/mcp/connection.py": "a session of the protocol, over the streams of http_streams.py or of a process",
    "worker/mcp/http_streams.py": "with the proxy of the rules",
    "worker/mcp/server.py": "its own connect",
    "worker/sandbox/runner/acceptor.py": "a socket of this machine",
}


def opens_connections(path: Path) -> set[str]:
    """The names of CALLS that a file calls."""
    calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    names = {one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in calls}
    return names & CALLS


def test_every_connection_is_one_that_somebody_has_thought_about() -> None:
    """A new one goes through `shared.network`, or is written down here with its reason."""
    packages = ("console", "gateway", "shared", "shoal", "worker")
    files = (path for package in packages for path in (ROOT / package).rglob("*.py"))
    found = {str(path.relative_to(ROOT)): names for path in files if (names := opens_connections(path))}
    assert {path: names for path, names in found.items() if path not in ALLOWED} == {}
    assert ALLOWED.keys() - found.keys() == set(), "they connect no more"
