"""The sandbox interface: a command, its limits, its result, and the Sandbox protocol. A Sandbox is
one way (a tier) to keep a command from everything but its session's workspace: `bubblewrap` with
namespaces, or a runner process next to the worker. Callers see no difference."""

from __future__ import annotations

from typing import Final, Literal, Protocol

import msgspec

from shared.errors import ShoalError

# Path of the workspace inside, in a tier that can choose it; in every tier the workspace is `$HOME`
# and the working folder.
WORKSPACE: Final = "/workspace"
SKILLS: Final = "/skills"  # the same for the files of skills, to which `skills/<name>` leads
Ending = Literal["exit", "signal", "wall", "cpu", "memory", "processes", "output", "room"]
"""The end of a command: its own exit, a signal from itself, or a limit (then all of it was killed).
`room` is the quota of the workspace."""
Limiter = Literal["cgroup", "census"]


class SandboxBroken(ShoalError):
    """The sandbox itself failed, not the command: nothing was run, or its progress is unknown. The
    text gives the reason, without a path of the machine."""


class CommandLimits(msgspec.Struct, frozen=True):
    """Limits of one command. `cpu_s` and `memory_bytes` hold for each of its processes;
    `memory_bytes` also for all of them together, as far as the tier can measure it."""

    cpu_s: int = 60
    memory_bytes: int = 512 * 1024 * 1024
    processes: int = 64
    file_bytes: int = 64 * 1024 * 1024  # size of one file
    wall_s: float = 60.0
    output_bytes: int = 1024 * 1024  # output that is kept; a command that writes more is killed


class SandboxCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One command. `what` is a line for the shell (bash if the tier has it, else sh), or the argv
    of a program.

    `folder` is the absolute path of the existing workspace on this machine. Its last part is
    `session`, so that a runner with another mount finds it by that name. `shown` are files (plain
    names at the top of the workspace) that the command can read with this content and not change,
    and `skills` such files below `skills/`, by `<name>/<path>` (a runner of an older release shows
    none of them).
    `environment` is added to what the tier sets itself (PATH, HOME, LANG, TMPDIR).

    `token` is the token of the lease it runs under, `fence` the name of what is leased ("": the
    session; a subagent has a fence of its own). Tokens of one fence only grow: a runner kills what
    runs for an older one before it starts this, and refuses a command with an older one.

    `quota_bytes` and `quota_files` limit the workspace while the command runs; 0 means that the
    caller enforces it. A tier whose commands run as another user measures it itself, because the
    worker cannot look into every folder. With `granted` the folder is one of the operator's, which the
    command can only read, or write, too: nothing in it gets another owner."""

    what: str | tuple[str, ...]
    folder: str
    session: str
    token: int = 0
    fence: str = ""
    quota_bytes: int = msgspec.field(default=0, name="room_bytes")
    quota_files: int = msgspec.field(default=0, name="room_files")
    granted: Literal["", "read", "write"] = ""
    shown: dict[str, bytes] = {}
    skills: dict[str, bytes] = {}
    environment: dict[str, str] = {}
    network: bool = False
    stdin: bytes = b""
    limits: CommandLimits = CommandLimits()


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a command. `code` is set with `exit` only, `signal` with `signal` only (a shell
    turns a signal of its child into an exit code of 128 + number). `output` holds both streams in
    order; `cut_bytes` counts what was seen beyond the limit."""

    ended: Ending
    code: int | None = None
    signal: int | None = None
    output: bytes = b""
    cut_bytes: int = 0
    seconds: float = 0.0


class Sandbox(Protocol):
    """One tier. Safe to use for many commands at once."""

    @property
    def tier(self) -> str:
        """The operators' name for it: `bubblewrap`, `runner`."""
        ...

    @property
    def limited_by(self) -> Limiter:
        """How total memory and processes of a command are limited, for operators."""
        ...

    async def run(self, command: SandboxCommand) -> Finished:
        """Run one command to its end; return when no process of it is left, not even a daemon. On
        cancellation it kills all of them first. Raises SandboxBroken."""
        ...

    async def close(self) -> None:
        """Close connections and kill all running commands."""
        ...
