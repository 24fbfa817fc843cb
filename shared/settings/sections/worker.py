"""Settings of worker processes: `[worker]`, and `[runner]` for the process that runs commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from shared.settings.sections.kinds import Count

Uid = Annotated[int, Meta(ge=0, le=2**32 - 2)]


class WorkerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Capacity of one worker, the length of its leases, and the time that a drain may take.

    A turn that was running in two crashes runs isolated, in a process with `quarantine_mb` of
    memory. One person gets at most `share` of the fleet's turns while others wait."""

    turns: Count = 100
    jobs: Count = 20
    processes: Annotated[int, Meta(ge=1, le=256)] = 1
    lease_s: Annotated[float, Meta(ge=0.5, le=300)] = 15.0
    drain_s: Annotated[float, Meta(ge=0, le=3600)] = 55.0
    quarantine_mb: Annotated[int, Meta(ge=128)] = 1024
    share: Annotated[float, Meta(gt=0, le=1)] = 0.5


class RunnerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The process that runs commands for a worker. It listens on `socket`, for workers of the user
    `worker_uid` (None: its own user), and runs at most `commands` at once.

    `scratch` holds the temporary folders of commands. A runner reads these settings, `workspace`
    and `log`, from the environment alone: it must not need a file with secrets."""

    socket: Path = Path(".shoal/runner.sock")
    worker_uid: Uid | None = None
    commands: Annotated[int, Meta(ge=1, le=64)] = 8
    scratch: Path = Path("/tmp")  # noqa: S108 (a folder of its own is made there, for its user alone)
