"""Confinement of a process that parses bytes of strangers, applied before it reads the first one.

It may read what a library needs (programs, Python's own files) and loses every other file, the
network, and access to other processes. The process runs as the user of its worker or gateway, so
nothing else would keep an exploited parser from their secrets."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_TOP: Final = Path(__file__).parents[2]
_MACHINE: Final = (
    *("/usr", "/bin", "/lib", "/lib64", "/dev/null", "/dev/urandom"),
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/etc/ssl/openssl.cnf"),
)


def confine_parser() -> bool:
    """Confine this process for good; return False where the machine cannot do that. Call it before
    there is a second thread: Landlock and seccomp confine only the calling thread and its children.
    Needs Linux 6.2 with Landlock, and a processor that has a system call filter."""
    if sys.platform != "linux":
        return False
    from shared.confinement import landlock, seccomp

    try:
        # Landlock first: if it keeps signals inside, the filter need not refuse them.
        version = landlock.confine(read=_readable_paths(), write=())
        seccomp.confine(signals_scoped=version >= landlock.SIGNALS_ABI)
    except OSError:
        return False
    return True


def can_confine_parsers() -> bool:
    """Return whether this machine can confine a parser, as far as that is known without trying."""
    if sys.platform != "linux":
        return False
    from shared.confinement import landlock, seccomp

    return landlock.abi() >= landlock.NEEDED_ABI and platform.machine() in seccomp.ARCHES


def _readable_paths() -> Iterator[str]:
    yield from _MACHINE
    yield from {sys.prefix, sys.base_prefix}
    for entry in sys.path:
        if entry and Path(entry).resolve() != _TOP:
            yield entry
    for package in ("gateway", "shared", "worker"):  # not the whole folder: data and settings may lie in it
        yield str(_TOP / package)
