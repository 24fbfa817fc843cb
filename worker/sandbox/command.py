"""Commands of a model, and the border behind which they run.

A Sandbox is one way (a tier) to keep a command from everything but its session's workspace:
`bubblewrap` with namespaces of its own, or a runner beside the worker. Whoever asks sees no
difference.
"""

from __future__ import annotations

from typing import Final, Literal, Protocol

import msgspec

from shared.errors import ShoalError

WORKSPACE: Final = "/workspace"
"""Where a tier that can choose shows the workspace; it is `$HOME` and the working folder
everywhere."""

Ending = Literal["exit", "signal", "wall", "cpu", "memory", "processes", "output", "room"]
"""How a command ended: by itself, by a signal of its own making, or over a limit (then all of it
was killed)."""


class SandboxBroken(ShoalError):
    """The sandbox itself failed, not the command: nothing was run, or it is not known how far it
    came. The text says why, without a path of the machine."""


class CommandLimits(msgspec.Struct, frozen=True):
    """What one command may use. `cpu_s` and `memory_bytes` hold for each of its processes, and
    `memory_bytes` for all together as well, as far as the tier can measure it."""

    cpu_s: int = 60
    memory_bytes: int = 512 * 1024 * 1024
    processes: int = 64
    file_bytes: int = 64 * 1024 * 1024
    """The size of one file."""
    wall_s: float = 60.0
    output_bytes: int = 1024 * 1024
    """Output up to here is kept; a command that writes more is killed."""


class SandboxCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One command. `what` is a line for the shell (the tier's best: bash, else sh), or the words of
    a program.

    `folder` is the workspace, by its absolute path on this machine; it is there, and its last name is `session`, so a
    runner with another mount finds it by that name. `shown` are files (plain names at the top of the workspace) that
    the command sees with this content and cannot change. `environment` is all it gets of variables beside what the tier
    sets itself (PATH, HOME, LANG, TMPDIR). `token` is that of the lease it runs under, and `fence` names what is
    leased: the tokens of one fence only grow, so a runner kills what still runs for an older one before it starts
    this, and refuses what comes with an older one. A subagent has a fence of its own ("": that of the session).

    `quota_bytes` and `quota_files` are what the workspace may hold while the command runs; 0 =
    whoever asks sees to it. A tier whose commands are of another user than the worker measures it,
    for the worker cannot look everywhere.
    """

    what: str | tuple[str, ...]
    folder: str
    session: str
    token: int = 0
    fence: str = ""
    quota_bytes: int = msgspec.field(default=0, name="room_bytes")
    quota_files: int = msgspec.field(default=0, name="room_files")
    shown: dict[str, bytes] = {}
    environment: dict[str, str] = {}
    network: bool = False
    stdin: bytes = b""
    limits: CommandLimits = CommandLimits()


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """How it went. `code` is the exit code, with `exit` only; `signal` the signal's number, with
    `signal` only (a shell turns a signal of what it started into an exit code of 128 + number).
    `output` is what it wrote to both streams, in order; `cut_bytes` what it wrote beyond that, as
    far as it was seen."""

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
        """What operators call it: `bubblewrap`, `runner`."""
        ...

    async def run(self, command: SandboxCommand) -> Finished:
        """Run one command to its end, and return when no process of it is left, also none that it
        put aside.

        Cancelled, it kills all of them first. Raises SandboxBroken.
        """
        ...

    async def close(self) -> None:
        """Let connections go; what runs is killed."""
        ...
