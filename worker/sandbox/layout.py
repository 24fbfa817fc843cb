"""The way bubblewrap is started: its options, and another user from a worker that is root.

A command sees programs and libraries of the machine, and no data of its users. Homes and `.shoal`
are closed to others and stay so, also where bubblewrap runs as another user. A shell that is still
root, in a mount namespace of its own, binds the workspace (and the program, which may also lie in a
home) at a place that everyone can reach, then gives up root for good and becomes bubblewrap. The
mounts are not visible outside, and vanish with the command. That needs CAP_SYS_ADMIN, which root
has on a machine and rarely in a container, and the util-linux programs `unshare`, `mount` and
`setpriv`."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from worker.sandbox.command import WORKSPACE, CommandLimits, SandboxBroken, SandboxCommand

UID: Final = 1000  # user id of the command, as it sees it
TMP_BYTES: Final = 128 * 1024 * 1024
SHM_BYTES: Final = 16 * 1024 * 1024
OPEN_FILES: Final = 256
# Address space of a process, as a multiple of its memory: runtimes reserve much more than they use,
# and page tables for all of it would take twice the memory.
ADDRESS_SPACE: Final = 1024
OWN_PROCESSES: Final = 3  # the first inner process of bubblewrap and the shells around a command
CPU_GRACE_S: Final = 2
NICE: Final = 10  # whoever measures and ends a command must still get to run
NO_LIMITS: Final = 125  # exit code of a shell that could not set the limits
OPEN_GATE: Final = b"open\n"
TMP: Final = "/tmp"  # noqa: S108 (the command's own, in memory)
SHM: Final = "/dev/shm"  # noqa: S108
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TOP: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_GATE: Final = "/gate"
_SHELLS: Final = ("/bin/bash", "/usr/bin/bash", "/bin/sh")
_ETC: Final = (
    *("alternatives", "ca-certificates", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime"),
    *("magic", "mime.types", "pki/tls/certs", "ssl/certs", "ssl/openssl.cnf", "terminfo"),
)
# Files of /proc that describe the machine, and that no command needs.
_MASKED: Final = tuple(
    f"/proc/{name}"
    for name in ("cmdline", "config.gz", "iomem", "ioports", "kallsyms", "keys", "modules", "timer_list")
)
_GENERATED: Final = {
    "passwd": f"agent:x:{UID}:{UID}:agent:{WORKSPACE}:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "group": f"agent:x:{UID}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_BIND_FOLDERS: Final = ("/mnt", "/media", "/srv", "/opt", "/var/empty")
_SIZE: Final = "64k"
# `cd` comes first: the working directory stays a handle of the workspace when `place` is covered.
# The tmpfs makes room for two mount points, and hides what lies at `place`. setpriv comes last:
# mounting needs root.
_SHELL_LINES: Final = (
    "set -e",
    'place=$1 folder=$2 top=$3 uid=$4 gid=$5; shift 5; cd "$folder"',
    f'mount -t tmpfs -o "mode=0755,size={_SIZE},nosuid,nodev" none "$place"',
    'mkdir "$place/workspace" "$place/program"',
    'mount -c --bind . "$place/workspace"',
    'cd /; [ -z "$top" ] || mount --bind "$top" "$place/program"',
    # A shell exports the folders it was in. The command could read them from its first process.
    'exec env -i PATH="$PATH" setpriv --reuid "$uid" --regid "$gid" --clear-groups --inh-caps=-all "$@"',
)
GENERATED_FILES: Final = {f"/etc/{name}": text.encode() for name, text in _GENERATED.items()}
"""Files of /etc that are written for the command, by path."""


def isolation_options(*, proc: bool, network: bool) -> list[str]:
    """Return the options that isolate all that can be isolated, and those for fixed mounts. With
    `network` the network namespace stays that of the start: it must be the command's own."""
    return [
        *("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
        *(["--share-net"] if network else []),
        *("--cap-drop", "ALL", "--clearenv", "--uid", str(UID), "--gid", str(UID), "--hostname", "sandbox"),
        *_mount_options(proc=proc),
    ]


def _mount_options(*, proc: bool) -> Iterator[str]:
    """Yield the mounts. Without `proc` /proc is empty: where the machine's own is masked, as in a
    container, the kernel lets no new one be mounted."""
    yield from ("--ro-bind", "/usr", "/usr")
    for name in _TOP:
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", os.readlink(path), f"/{name}")
        elif path.is_dir():
            yield from ("--ro-bind", f"/{name}", f"/{name}")
    for name in _ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    if proc:
        yield from ("--proc", "/proc")
        for masked in filter(os.path.exists, _MASKED):
            # bubblewrap mounts without devices, so that nobody can open this one.
            yield from ("--ro-bind", "/dev/null", masked)
    else:
        yield from ("--size", "4096", "--tmpfs", "/proc", "--remount-ro", "/proc")
    yield from ("--dev", "/dev", "--perms", "0700", "--size", str(SHM_BYTES), "--tmpfs", SHM)
    yield from ("--remount-ro", "/dev", "--perms", "0700", "--size", str(TMP_BYTES), "--tmpfs", TMP)


def command_environment(command: SandboxCommand, *, home: str, tmp: str) -> dict[str, str]:
    """Return the environment of a command in any tier; our own variables win over the given."""
    ours = {"PATH": PATH, "HOME": home, "LANG": "C.UTF-8", "TMPDIR": tmp, "TERM": "dumb"}
    return {**command.environment, **ours}


def shell_argv(what: str | Sequence[str]) -> list[str]:
    """Return the argv of a command: a line goes to bash, or to sh where there is no bash."""
    if not isinstance(what, str):
        return list(what)
    shell = next((path for path in _SHELLS if os.access(path, os.X_OK)), _SHELLS[-1])
    return [shell, "-c", what]


def limited_argv(what: str | Sequence[str], limits: CommandLimits) -> list[str]:
    """Wrap a command in a shell that sets the limits for itself and its children. They are set
    inside, where the limit on processes counts only those of the sandbox's own user namespace. It
    runs nothing when the gate was not opened."""
    soft = limits.cpu_s
    hard = limits.cpu_s + CPU_GRACE_S
    processes = limits.processes + OWN_PROCESSES
    settings = (
        f"ulimit -c 0 && ulimit -n {OPEN_FILES} && ulimit -f {limits.file_bytes // 512} "
        f"&& ulimit -d {limits.memory_bytes // 1024} && ulimit -v {limits.memory_bytes * ADDRESS_SPACE // 1024} "
        f"&& ulimit -t {hard} && ulimit -S -t {soft} "
        f"&& {{ ulimit -u {processes} || ulimit -p {processes}; }}"
    )
    line = f'[ -s {_GATE} ] && {{ {settings}; }} 2>/dev/null || exit {NO_LIMITS}; exec "$@"'
    return ["/bin/sh", "-c", line, "sh", *shell_argv(what)]


def gate_options(gate: int) -> tuple[str, ...]:
    """Return the options that come first: bubblewrap copies the pipe `gate` into a file and waits for
    the end of the pipe meanwhile. The file is empty when the worker was killed and has opened
    nothing: the command then ends at once. `--block-fd` would let it run unwatched."""
    return ("--perms", "0444", "--file", str(gate), _GATE)


class SandboxUser(msgspec.Struct, frozen=True):
    """The user that a root worker starts bubblewrap as."""

    uid: int
    gid: int


class BubblewrapProgram(msgspec.Struct, frozen=True):
    """bubblewrap: `path`, and a folder `top` above it with all it needs, if not the machine's."""

    path: Path
    top: Path | None = None


class BubblewrapStart(msgspec.Struct, frozen=True):
    """The start of bubblewrap: `argv`, to which its options are appended, and the user to start as
    (None: this one). As another user, `workspace` is its path in that mount namespace."""

    argv: tuple[str, ...]
    workspace: str = ""
    user: SandboxUser | None = None


def plan_uid_switch(program: BubblewrapProgram, folder: str, user: SandboxUser) -> BubblewrapStart:
    """Plan a start by root, who is given up before bubblewrap. Raises SandboxBroken."""
    path = program.path
    top = program.top
    bind_folder = _find_bind_folder([folder, *([] if top is None else [str(top)])])
    program_path = str(path) if top is None else f"{bind_folder}/program/{path.relative_to(top)}"
    unshare = ("unshare", "--mount", "--propagation", "private")
    shell = ("/bin/sh", "-c", "\n".join(_SHELL_LINES), "sh", bind_folder, folder)
    ids = (str(user.uid), str(user.gid))
    argv = (*unshare, *shell, "" if top is None else str(top), *ids, program_path)
    return BubblewrapStart(argv, f"{bind_folder}/workspace")


def _find_bind_folder(sources: Sequence[str]) -> str:
    """Return a folder that can be covered for this command: none of the sources lies in it."""
    real = [Path(os.path.realpath(source)) for source in sources]
    for place in map(Path, _BIND_FOLDERS):
        covers = any(source.is_relative_to(place) for source in real)
        if place.is_dir() and not place.is_symlink() and not covers:
            return str(place)
    raise SandboxBroken(
        f"none of the folders {', '.join(_BIND_FOLDERS)} exists to show a workspace at; make one of them"
    )


def show_files(workspace: int, files: Mapping[str, bytes], folder: Path) -> None:
    """Write the files into `folder` and link to them: a runner cannot mount a file over another. A
    command that replaces the link changes only its own view. Raises OSError."""
    for name, data in files.items():
        if not is_plain_name(name):
            raise OSError(f"{name!r} is not a plain name")
        copy = folder / name
        copy.write_bytes(data)
        copy.chmod(0o440)
        _free_name(workspace, name)
        os.symlink(copy, name, dir_fd=workspace)


def is_plain_name(name: str) -> bool:
    """Return whether a name leads nowhere but into its folder."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def hide_files(workspace: int, files: Mapping[str, bytes]) -> None:
    """Remove the names from the workspace at the end of a command, whatever they are by now."""
    for name in files:
        with contextlib.suppress(OSError):
            _free_name(workspace, name)


def _free_name(workspace: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=workspace)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):  # the command made it a folder
        os.rename(name, f"{name}.{secrets.token_hex(4)}", src_dir_fd=workspace, dst_dir_fd=workspace)
