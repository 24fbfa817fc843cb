"""The surroundings of a command of the runner: its folders, and the paths that it may read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from worker.sandbox.cgroup import CommandGroups

_PROGRAMS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives")
_ETC: Final = (
    *("passwd", "group", "nsswitch.conf", "localtime", "timezone", "mime.types", "magic"),
    *("ld.so.cache", "terminfo", "ssl/certs", "ssl/openssl.cnf", "ca-certificates"),
)
_MACHINE: Final = ("/dev/random", "/dev/urandom", "/proc/cpuinfo", "/proc/meminfo")
READ_PATHS: Final = (*_PROGRAMS, *(f"/etc/{name}" for name in _ETC), *_MACHINE)
DEVICE_PATHS: Final = ("/dev/null", "/dev/zero", "/dev/full")


class CommandPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The surroundings of a command: the handle and the path of its workspace, and a folder for its
    temporary files (`tmp`) and for files that it may only read (`shown`). `uid_processes` limits all
    processes of this user, as a last resort: the supervisor counts those of the command. `groups`
    is where a control group can be made for it, if anywhere."""

    workspace: int
    path: str
    folder: Path
    uid_processes: int
    groups: CommandGroups | None = None

    @property
    def tmp(self) -> Path:
        return self.folder / "tmp"

    @property
    def shown(self) -> Path:
        return self.folder / "shown"
