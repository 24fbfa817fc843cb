"""Settings of tools: `[tools]`, `[workspace]`, `[approval]`, and `[mcp.<name>]` of each MCP
server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal, get_args
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from shared.settings.secret import Secret
from shared.settings.sections.language_models import is_header

Safety = Literal["read_only", "idempotent", "unsafe"]
SAFETY_CLASSES: Final[tuple[Safety, ...]] = get_args(Safety)

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ToolsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Tools that the model may be offered. `exec` also needs a sandbox; without one it stays off.

    `web` enables web tools, with `search_engine` at `search_url` (empty: its usual address).
    `web_allow` lists private hosts, addresses or networks that may be reached, with or without a
    port; all others are refused. `message_to` are patterns of sessions, such as `web:*`, that the
    message tool of every chat may write to, in addition to the user's own.

    Limits of an exec command: `exec_timeout_s` unless it asks for another (600 at most),
    `exec_cpu_s` for each process, `exec_memory_mb` and `exec_processes` for all of them,
    `exec_file_mb` for one file, `exec_output_kb` of output. It reaches the network only with
    `exec_network`, and sees the variables of the worker's environment that `exec_env` names.
    `exec_runner` is the socket of a runner, for machines where no other sandbox works."""

    exec: bool = True
    web: bool = True
    search_engine: Literal["duckduckgo", "searxng", "brave", "tavily", "off"] = "duckduckgo"
    search_url: str = ""
    search_key: Secret | None = None
    fetch_bytes: Annotated[int, Meta(ge=1024, le=64 * 1024 * 1024)] = 2 * 1024 * 1024
    fetch_s: Annotated[float, Meta(ge=1, le=300)] = 20.0
    web_allow: tuple[str, ...] = ()
    message_to: tuple[str, ...] = ()
    exec_timeout_s: Annotated[float, Meta(ge=1, le=600)] = 60.0
    exec_cpu_s: Annotated[int, Meta(ge=1, le=3600)] = 60
    exec_memory_mb: Annotated[int, Meta(ge=64, le=1024 * 1024)] = 512
    exec_processes: Annotated[int, Meta(ge=4, le=4096)] = 64
    exec_file_mb: Annotated[int, Meta(ge=1, le=1024 * 1024)] = 64
    exec_output_kb: Annotated[int, Meta(ge=1, le=16 * 1024)] = 1024
    exec_network: bool = False
    exec_env: tuple[str, ...] = ()
    exec_runner: str = ""


class WorkspaceSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Folder of the sessions' files; a shared volume in a cluster. By default `workspaces` under
    `data.dir`. A session may keep `files` files and `quota_mb` in all; long results of tools are
    kept for `results_days`. With `group` (a number) that group can use the files, too: a runner of
    another user."""

    root: Path = Path(".shoal/workspaces")
    quota_mb: Annotated[int, Meta(ge=1, le=1024 * 1024)] = 64
    files: Annotated[int, Meta(ge=10, le=100_000)] = 2000
    results_days: Annotated[float, Meta(gt=0, le=365)] = 7.0
    group: Annotated[int, Meta(ge=1, le=2**32 - 2)] | None = None


class ApprovalSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Tools that run only after a yes in the chat: those whose names match a pattern of `tools`
    (such as `exec` or `mcp_*`), those of `classes`, and with `untrusted` the unsafe ones once the
    turn has read text that strangers may have written. The turn of a schedule asks only with
    `schedules`; otherwise the call is refused. The question expires after `wait_s`."""

    tools: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    untrusted: bool = True
    schedules: bool = False
    wait_s: Annotated[float, Meta(ge=1, le=86400)] = 600.0


class McpServerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A server whose tools the agent may use: a `command` that speaks over its standard streams, or
    a `url`. The process gets PATH, LANG and its `env`, and nothing else. `tools` lists the tools to
    offer, by the server's names for them; empty means all. `safety` is the class of every tool,
    `tool_safety` that of single ones; the server's own hints count only with `trust_hints`. A call
    may take `timeout_s`, connecting `connect_s`."""

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


def approval_problems(settings: ApprovalSettings) -> Iterator[str]:
    """Yield a line for each problem."""
    for name in settings.classes:
        if name not in SAFETY_CLASSES:
            known = ", ".join(SAFETY_CLASSES)
            yield f"approval.classes has {name!r}, which is no class of tools; use {known}"


def mcp_problems(name: str, server: McpServerSettings) -> Iterator[str]:
    """Yield a line for each problem in the table of an MCP server."""
    key = f"mcp.{name}"
    if not _NAME.fullmatch(name):
        advice = "is no name for a server; use 1 to 24 small letters, digits and dashes"
        yield f"{key}: {name!r} {advice}"
    if bool(server.command) == bool(server.url):
        both = "are both set; keep one of them" if server.url else "are both missing; set one of them"
        yield f"{key}.command and {key}.url {both}"
    if server.command and not server.command[0].strip():
        yield f"{key}.command begins with an empty text; write the program first"
    if server.url and not _is_address(server.url):
        example = f"https://host/mcp, with secrets in {key}.headers"
        yield f"{key}.url is no whole address; write one such as {example}"
    for of_the_other, is_set in (("env", server.env), ("cwd", server.cwd)):
        if server.url and is_set:
            yield f"{key}.{of_the_other} is for a server with a command; remove it"
    if server.command and server.headers:
        yield f"{key}.headers is for a server with a url; remove it"
    for variable, value in server.env.items():
        if not _VARIABLE.fullmatch(variable) or "\0" in value.reveal():
            advice = "which no process can be given; use letters, digits and underscores"
            yield f"{key}.env has {variable!r}, {advice}"
    for header, value in server.headers.items():
        if not is_header(header, value.reveal()):
            advice = "which no HTTP request can carry; write a plain name and ASCII"
            yield f"{key}.headers has {header!r}, {advice}"


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname)
        return is_http and not parts.username and parts.port != 0
    except ValueError:
        return False
