"""Settings of one MCP server, a table `[mcp.<name>]`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from shared.settings.secret import Secret
from shared.settings.sections.model import HEADER

Safety = Literal["read_only", "idempotent", "unsafe"]

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class McpServerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A server whose tools the agent may use: a `command` that speaks over its standard streams, or
    a `url`.

    The process gets PATH, LANG and its `env`, and nothing else. `tools` lists the tools to offer,
    by the server's names for them; empty means all. `safety` is the class of every tool,
    `tool_safety` that of single ones; the server's own hints count only with `trust_hints`. A call
    may take `timeout_s`, connecting `connect_s`.
    """

    command: tuple[str, ...] = ()
    env: dict[str, Secret] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, Secret] = {}
    timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 60.0
    connect_s: Annotated[float, Meta(gt=0, le=600)] = 20.0
    tools: tuple[str, ...] = ()
    safety: Safety = "unsafe"
    tool_safety: dict[str, Safety] = {}
    trust_hints: bool = False


def mcp_problems(servers: Mapping[str, McpServerSettings]) -> Iterator[str]:
    """Yield a line for each problem in the tables of MCP servers."""
    for name, server in servers.items():
        yield from _problems(f"mcp.{name}", name, server)


def _problems(key: str, name: str, server: McpServerSettings) -> Iterator[str]:
    if not _NAME.fullmatch(name):
        yield f"{key}: {name!r} is no name for a server; use 1 to 24 small letters, digits and dashes"
    if bool(server.command) == bool(server.url):
        both = "are both set; keep one of them" if server.url else "are both missing; set one of them"
        yield f"{key}.command and {key}.url {both}"
    if server.command and not server.command[0].strip():
        yield f"{key}.command begins with an empty text; write the program first"
    if server.url and not _is_address(server.url):
        yield f"{key}.url is no whole address; write one such as https://host/mcp, with secrets in {key}.headers"
    for of_the_other, is_set in (("env", server.env), ("cwd", server.cwd)):
        if server.url and is_set:
            yield f"{key}.{of_the_other} is for a server with a command; remove it"
    if server.command and server.headers:
        yield f"{key}.headers is for a server with a url; remove it"
    for variable, value in server.env.items():
        if not _VARIABLE.fullmatch(variable) or "\0" in value.reveal():
            yield f"{key}.env has {variable!r}, which no process can be given; use letters, digits and underscores"
    for header, value in server.headers.items():
        if not HEADER.fullmatch(header) or not (value.reveal().isascii() and value.reveal().isprintable()):
            yield f"{key}.headers has {header!r}, which no HTTP request can carry; write a plain name and ASCII"


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username and parts.port != 0
    except ValueError:
        return False
