"""A control group (cgroup v2) for each command, where this process may make one.

The kernel then holds the limits itself: no memory escapes the count, and none is taken between two
measurements. The census stays in any case (see usage.py): it says which limit it was, and it is all
that there is in most containers, where control groups cannot be changed.

Control groups must have been handed over to this user (systemd: `Delegate=`). A group with
processes cannot have limited groups below it, so this process is in a subgroup, and the groups of
commands are next to that."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import Final

import msgspec

from worker.sandbox.command import CommandLimits
from worker.sandbox.layout import OWN_PROCESSES

SUBGROUP: Final = "shoal"  # or the unit says it: DelegateSubgroup=shoal, from systemd 254 on
_CONTROLLERS: Final = frozenset({"memory", "pids"})
_PREFIX: Final = "command-"


class CommandGroup(msgspec.Struct, frozen=True):
    """The group of one command."""

    path: Path

    def add(self, pid: int) -> None:
        """Put a process (0: this one) and all that it starts from now on under the limits. Raises
        OSError."""
        (self.path / "cgroup.procs").write_text(str(pid))

    def exceeded_memory(self) -> bool:
        """Return whether the kernel has killed the command because of its memory."""
        with contextlib.suppress(OSError):
            events = (self.path / "memory.events").read_text().splitlines()
            return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in events)
        return False

    def remove(self) -> None:
        """Kill what is left, and remove the group. What cannot be removed is found at a start."""
        with contextlib.suppress(OSError):
            (self.path / "cgroup.kill").write_text("1")
        with contextlib.suppress(OSError):
            self.path.rmdir()


class CommandGroups(msgspec.Struct, frozen=True):
    """A folder of the control groups in which this process may make others."""

    folder: Path

    @classmethod
    def find(cls, own: Path | None = None) -> CommandGroups | None:
        """Return the folder, None if there is none. `own` is the group of this process. Moves this
        process to a subgroup if it is alone; it must not do that to others, such as a person's
        shell."""
        try:
            own = own or _find_own_group()
            folder = own.parent if own.name == SUBGROUP else own
            if not set((folder / "cgroup.controllers").read_text().split()) >= _CONTROLLERS:
                return None
            if folder == own:
                if (own / "cgroup.procs").read_text().split() != [str(os.getpid())]:
                    return None
                (own / SUBGROUP).mkdir(exist_ok=True)
                CommandGroup(own / SUBGROUP).add(0)
            (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(_CONTROLLERS)))
            for left in folder.glob(f"{_PREFIX}*"):  # of a process that was killed
                with contextlib.suppress(OSError):
                    left.rmdir()  # it fails for those in use, as of another worker
            made = cls(folder)
            made.create(CommandLimits()).remove()
        except (OSError, LookupError):
            return None
        return made

    def create(self, limits: CommandLimits) -> CommandGroup:
        """Create a group with the limits of a command. Raises OSError."""
        group = self.folder / f"{_PREFIX}{secrets.token_hex(8)}"
        group.mkdir()
        # Above the limit of the census: at this one the kernel first drops and rereads the command's
        # programs for as long as that helps, and the census would never see its own limit passed.
        (group / "memory.max").write_text(str(limits.memory_bytes * 11 // 10))
        # All of the command ends, and not only the process that asked for the last page.
        (group / "memory.oom.group").write_text("1")
        # A bomb ends here between two measurements; the census ends the command.
        (group / "pids.max").write_text(str(2 * limits.processes + OWN_PROCESSES))
        with contextlib.suppress(FileNotFoundError):  # a kernel without swap
            (group / "memory.swap.max").write_text("0")
        return CommandGroup(group)


def _find_own_group() -> Path:
    """Return the folder of this process's group. Raises OSError and LookupError without cgroup v2."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    path = next((line[3:] for line in lines if line.startswith("0::/")), "")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        top, point = mount.split()[3:5]
        if kind.startswith("cgroup2 ") and path and top == "/":
            return Path(f"{point}{path}".rstrip("/"))
    raise LookupError("no cgroup v2")
