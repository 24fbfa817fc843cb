"""The options for bubblewrap: a command sees programs and libraries of the machine, and no data of
its users."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from worker.sandbox.command import WORKSPACE, CommandLimits

UID: Final = 1000
"""User id of the command, as it sees it."""

TMP_BYTES: Final = 128 * 1024 * 1024
SHM_BYTES: Final = 16 * 1024 * 1024
OPEN_FILES: Final = 256
OWN_PROCESSES: Final = 3
"""The first inner process of bubblewrap and the shells around a command."""

CPU_GRACE_S: Final = 2
NO_LIMITS: Final = 125
"""Exit code of a shell that could not set the limits."""

TMP: Final = "/tmp"  # noqa: S108 (the command's own, in memory)
_SHM: Final = "/dev/shm"  # noqa: S108
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TOP: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC: Final = (
    "alternatives",
    "ca-certificates",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "mime.types",
    "pki/tls/certs",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
)
_ETC_ONLINE: Final = ("resolv.conf",)
_GENERATED: Final = {
    "passwd": f"agent:x:{UID}:{UID}:agent:{WORKSPACE}:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "group": f"agent:x:{UID}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
GENERATED_FILES: Final[Mapping[str, bytes]] = {f"/etc/{name}": text.encode() for name, text in _GENERATED.items()}
"""Files of /etc that are written for the command, by path."""


def isolation_options(*, network: bool) -> list[str]:
    """Return the options that isolate everything that can be isolated."""
    return [
        *("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
        *(["--share-net"] if network else []),
        *("--cap-drop", "ALL", "--clearenv", "--uid", str(UID), "--gid", str(UID), "--hostname", "sandbox"),
    ]


def mount_options(*, proc: bool, network: bool) -> Iterator[str]:
    """Yield the options for all mounts but the workspace and the generated files. Without `proc`
    there is an empty /proc: where the machine's own is masked, as in a container, the kernel does
    not let a new one be mounted."""
    yield from ("--ro-bind", "/usr", "/usr")
    for name in _TOP:
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", os.readlink(path), f"/{name}")
        elif path.is_dir():
            yield from ("--ro-bind", f"/{name}", f"/{name}")
    for name in (*_ETC, *(_ETC_ONLINE if network else ())):
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    yield from ("--proc", "/proc") if proc else ("--size", "4096", "--tmpfs", "/proc")
    yield from ("--dev", "/dev", "--perms", "0700", "--size", str(SHM_BYTES), "--tmpfs", _SHM)
    yield from ("--remount-ro", "/dev", "--perms", "0700", "--size", str(TMP_BYTES), "--tmpfs", TMP)


def environment_options(given: Mapping[str, str]) -> Iterator[str]:
    """Yield the options for the environment; our own variables win over `given`."""
    ours = {"PATH": PATH, "HOME": WORKSPACE, "LANG": "C.UTF-8", "TMPDIR": TMP, "USER": "agent", "TERM": "dumb"}
    for name, value in {**given, **ours}.items():
        yield from ("--setenv", name, value)


def limited_argv(what: str | Sequence[str], limits: CommandLimits, *, bash: bool) -> list[str]:
    """Wrap a command in a shell that sets the limits for itself and its children. They are set
    inside, where the limit on processes counts only those of the sandbox's own user namespace."""
    soft, hard = limits.cpu_s, limits.cpu_s + CPU_GRACE_S
    processes = limits.processes + OWN_PROCESSES
    settings = (
        f"ulimit -c 0 && ulimit -n {OPEN_FILES} && ulimit -f {limits.file_bytes // 512} "
        f"&& ulimit -d {limits.memory_bytes // 1024} && ulimit -t {hard} && ulimit -S -t {soft} "
        f"&& {{ ulimit -u {processes} || ulimit -p {processes}; }}"
    )
    line = f'{{ {settings}; }} 2>/dev/null || exit {NO_LIMITS}; exec "$@"'
    asked = (["/bin/bash" if bash else "/bin/sh", "-c", what]) if isinstance(what, str) else list(what)
    return ["/bin/sh", "-c", line, "sh", *asked]
