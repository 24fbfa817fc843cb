"""A process that takes strangers' bytes apart shuts itself in before it reads the first of them.

It keeps what a library needs, programs and Python's own files to read, and gives up every other
file, the network, and all processes but itself: the user is the worker's own, so nothing else would
keep it from the worker's secrets.
"""

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
    """Give everything else up, for good. Whether this machine can do that: it takes Linux 6.2 with
    Landlock, and a processor that there is a filter of system calls for. Call it before there is a
    second thread."""
    if sys.platform != "linux":
        return False
    from worker.sandbox import landlock, seccomp

    try:
        version = landlock.confine(read=_readable_paths(), write=())
        seccomp.confine(signals_scoped=version >= landlock.SIGNALS_ABI)
    except OSError:
        return False
    return True


def can_confine_parsers() -> bool:
    """Whether this machine can, as far as it can be told without doing it."""
    if sys.platform != "linux":
        return False
    from worker.sandbox import landlock, seccomp

    return landlock.abi() >= landlock.NEEDED_ABI and platform.machine() in seccomp.ARCHES


def _readable_paths() -> Iterator[str]:
    yield from _MACHINE
    yield from {sys.prefix, sys.base_prefix}
    for entry in sys.path:
        if entry and Path(entry).resolve() != _TOP:
            yield entry
    for package in ("shared", "worker"):  # not all of the folder: data may lie there
        yield str(_TOP / package)
