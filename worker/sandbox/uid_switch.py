"""Start bubblewrap as another user, from a worker that is root, in a workspace closed to that user.

Homes and `.shoal` are closed to others and stay so. A shell that is still root, in a mount
namespace of its own, binds the workspace (and the program, which may also lie in a home) at a place
that everyone can reach, then gives up root for good and becomes bubblewrap. The mounts are not
visible outside, and vanish with the command.

Needs CAP_SYS_ADMIN, which root has on a machine and rarely in a container, and the util-linux
programs `unshare`, `mount` and `setpriv`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from worker.sandbox.command import SandboxBroken

_BIND_FOLDERS: Final = ("/mnt", "/media", "/srv", "/opt", "/var/empty")
_SIZE: Final = "64k"
# `cd` comes first: the working directory stays a handle of the workspace when `place` is covered. The
# tmpfs makes room for two mount points, and hides what lies at `place`. setpriv comes last: mounting
# needs root.
_SHELL_LINES: Final = (
    "set -e",
    'place=$1 folder=$2 top=$3 uid=$4 gid=$5; shift 5; cd "$folder"',
    f'mount -t tmpfs -o "mode=0755,size={_SIZE},nosuid,nodev" none "$place"',
    'mkdir "$place/workspace" "$place/program"',
    'mount -c --bind . "$place/workspace"',
    'cd /; [ -z "$top" ] || mount --bind "$top" "$place/program"',
    'exec setpriv --reuid "$uid" --regid "$gid" --clear-groups --inh-caps=-all "$@"',
)


class SandboxUser(msgspec.Struct, frozen=True):
    """The user that a root worker starts bubblewrap as."""

    uid: int
    gid: int


class BubblewrapProgram(msgspec.Struct, frozen=True):
    """bubblewrap: `path`, and the folder `top` above it that holds all it needs (`None`: it is the machine's own)."""

    path: Path
    top: Path | None = None


class UidSwitch(msgspec.Struct, frozen=True):
    """The start of bubblewrap as another user: `argv`, to which its options are appended, and the
    path of the workspace in that mount namespace."""

    argv: tuple[str, ...]
    workspace: str


def plan_uid_switch(program: BubblewrapProgram, folder: str, user: SandboxUser) -> UidSwitch:
    """Plan the start. Raises SandboxBroken if there is no folder to bind at."""
    path, top = program.path, program.top
    bind_folder = _find_bind_folder([folder, *([] if top is None else [str(top)])])
    program_path = str(path) if top is None else f"{bind_folder}/program/{path.relative_to(top)}"
    shell = ("unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", "\n".join(_SHELL_LINES), "sh")
    arguments = (bind_folder, folder, "" if top is None else str(top), str(user.uid), str(user.gid), program_path)
    return UidSwitch((*shell, *arguments), f"{bind_folder}/workspace")


def _find_bind_folder(sources: Sequence[str]) -> str:
    """Return a folder that can be covered for this command: none of the sources lies in it."""
    real = [Path(os.path.realpath(source)) for source in sources]
    for place in map(Path, _BIND_FOLDERS):
        if place.is_dir() and not place.is_symlink() and not any(source.is_relative_to(place) for source in real):
            return str(place)
    raise SandboxBroken(
        f"none of the folders {', '.join(_BIND_FOLDERS)} exists to show a workspace at; make one of them"
    )
