"""Settings of tools: `[tools]`, `[workspace]`, `[approval]`, and `[mcp.<name>]` of each MCP
server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, get_args
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from shared.settings.secret import Secret
from shared.settings.sections.gateways import MediaSettings
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
    `exec_file_mb` for one file, `exec_output_kb` of output. With `exec_network` it reaches the
    addresses that web tools may reach, through a proxy; otherwise no network. It sees the
    variables of the worker's environment that `exec_env` names.
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
    `data.dir`. A session may keep `files` files and `quota_mb` in all, all sessions of a person
    `person_mb` (0: no limit); long results of tools are kept for `results_days`. Nothing is written
    while less than `free_mb` of the volume, or 5 % of it, is free (0: whatever is free). With
    `group` (a number) that group can use the files, too: a runner of another user.

    `folders` are existing folders by name, absolute paths on every worker: an admin or the owner
    gives one to a chat with `/folder NAME`. Only those in `folders_write` can be written.

    With `store` (`s3://bucket/prefix`) the files live there instead, and `root` holds each worker's
    own copies; `store_endpoint` is the address of a product that is not Amazon's. Without
    `store_access_key` and `store_secret_key` it is asked as the standard AWS_ variables or the
    machine's role say."""

    root: Path = Path(".shoal/workspaces")
    quota_mb: Annotated[int, Meta(ge=1, le=1024 * 1024)] = 64
    person_mb: Annotated[int, Meta(ge=0, le=1024 * 1024)] = 1024
    free_mb: Annotated[int, Meta(ge=0, le=1024 * 1024)] = 1024
    files: Annotated[int, Meta(ge=10, le=100_000)] = 2000
    results_days: Annotated[float, Meta(gt=0, le=365)] = 7.0
    group: Annotated[int, Meta(ge=1, le=2**32 - 2)] | None = None
    folders: dict[str, Path] = {}
    folders_write: tuple[str, ...] = ()
    store: str = ""
    store_endpoint: str = ""
    store_region: str = ""
    store_access_key: Secret | None = None
    store_secret_key: Secret | None = None


class ApprovalSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Tools that run only after a yes in the chat: those whose names match a pattern of `tools`
    (such as `exec` or `mcp_*`), those of `classes`, and with `untrusted` the unsafe ones once the
    turn has read text that strangers may have written. The turn of a schedule asks only with
    `schedules`; otherwise the call is refused. The question expires after `wait_s`. With
    `always` a person can say yes for later calls of their chat, too, where no stranger's text is."""

    tools: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    untrusted: bool = True
    schedules: bool = False
    wait_s: Annotated[float, Meta(ge=1, le=86400)] = 600.0
    always: bool = True


class McpServerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A server whose tools the agent may use: a `command` that speaks over its standard streams, or
    a `url`. The process gets PATH, LANG and its `env`, and nothing else. `tools` lists the tools to
    offer, by the server's names for them; empty means all. `safety` is the class of every tool,
    `tool_safety` that of single ones; the server's own hints count only with `trust_hints`. A call
    may take `timeout_s`, connecting `connect_s`. Without `sandbox` the process sees the machine as
    the worker does."""

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
    sandbox: bool = True


def approval_problems(settings: ApprovalSettings) -> Iterator[str]:
    """Yield a line for each problem."""
    for name in settings.classes:
        if name not in SAFETY_CLASSES:
            known = ", ".join(SAFETY_CLASSES)
            yield f"approval.classes has {name!r}, which is no class of tools; use {known}"


def folders_problem(folders: Mapping[str, Path]) -> str | None:
    """Return what is wrong with `workspace.folders`, as the end of a sentence that begins with the
    key."""
    for name, path in folders.items():
        if not _NAME.fullmatch(name) or name == "default":
            return f"has {name!r}; name a folder with up to 24 of a-z, 0-9 and '-', and not 'default'"
        if not path.is_absolute():
            return f"has {str(path)!r}; write the whole path, from / on"
    return None


def store_problem(address: str) -> str | None:
    """Return what is wrong with a `store`, as the end of a sentence that begins with the key."""
    parts = urlsplit(address)
    if address and (parts.scheme != "s3" or not parts.netloc or parts.query or "@" in parts.netloc):
        return "is not the address of a bucket; write one such as s3://bucket/prefix, and no credentials"
    return None


def store_key_problems(section: str, settings: WorkspaceSettings | MediaSettings) -> Iterator[str]:
    """Yield a line if only one half of the credentials of a `store` is set."""
    if (settings.store_access_key is None) != (settings.store_secret_key is None):
        yield f"{section}.store_access_key and {section}.store_secret_key belong together; set both or neither"


def mcp_problems(name: str, server: McpServerSettings) -> Iterator[str]:
    """Yield a line for each problem in the table of an MCP server."""
    key = f"mcp.{name}"
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
        if not is_header(header, value.reveal()):
            yield f"{key}.headers has {header!r}, which no HTTP request can carry; write a plain name and ASCII"


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname)
        return is_http and not parts.username and parts.port != 0
    except ValueError:
        return False
