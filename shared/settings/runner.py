"""The settings of a runner, the process that runs commands beside a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

Uid = Annotated[int, Meta(ge=0, le=2**32 - 2)]


class RunnerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """It listens on `socket`, for workers of the user `worker_uid` (None: its own user), and runs
    `commands` at once.

    `scratch` is where commands have their temporary folders. A runner reads these settings,
    `workspace` and `log`, and those from the environment alone: it has no use for a file with
    secrets."""

    socket: Path = Path(".shoal/runner.sock")
    worker_uid: Uid | None = None
    commands: Annotated[int, Meta(ge=1, le=64)] = 8
    scratch: Path = Path("/tmp")  # noqa: S108 (a folder of its own is made there, for its user alone)
