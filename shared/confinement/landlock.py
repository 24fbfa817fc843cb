"""Landlock: a process gives up all files and ports but those it names, for itself and its children.

Linux system calls (landlock(7)) through ctypes, because a process that is about to become a command
should not load a library. Needs no privileges. Landlock does not cover metadata: a process that
knows a path can still stat it, and chmod it if it owns it."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable
from typing import Final

from shared.confinement.processes import NO_NEW_PRIVILEGES, prctl

NEEDED_ABI: Final = 3  # before this version a file outside could be truncated. Linux 6.2 has it.
# From this version on a confined process signals only its own confinement (Linux 6.12).
SIGNALS_ABI: Final = 6
_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same numbers on every architecture
_VERSION: Final = 1
_PATH_BENEATH: Final = 1

_EXECUTE = 1 << 0
_WRITE = 1 << 1
_READ = 1 << 2
_LIST = 1 << 3
# Rights that a kernel does not know make the ruleset invalid: each bit comes with its first ABI.
_REMOVE: Final = 1 << 4 | 1 << 5
# Folders, files, FIFOs, links; no sockets, no devices
_MAKE: Final = 1 << 7 | 1 << 8 | 1 << 10 | 1 << 12
_REFER = 1 << 13
_TRUNCATE = 1 << 14
_DEVICE = 1 << 15
_ALL_BITS: Final = ((1, (1 << 13) - 1), (2, _REFER), (3, _TRUNCATE), (5, _DEVICE))
_READ_RIGHTS: Final = _EXECUTE | _READ | _LIST
_WRITE_RIGHTS: Final = _READ_RIGHTS | _WRITE | _TRUNCATE | _REMOVE | _MAKE | _REFER
_OF_A_FILE: Final = _EXECUTE | _READ | _WRITE | _TRUNCATE

_TCP: Final = 1 << 0 | 1 << 1  # bind and connect
_SCOPES: Final = 1 << 0 | 1 << 1  # abstract sockets and signals

_libc: Final = ctypes.CDLL(None, use_errno=True)


class NoLandlock(OSError):
    """The kernel lacks Landlock, has an old version, or refuses it."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def abi() -> int:
    """Return the Landlock version of this kernel; 0 if it is missing or not allowed."""
    return max(0, int(_libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))))


def confine(
    *, read: Iterable[str], write: Iterable[int | str], devices: Iterable[str] = (), needed_abi: int = NEEDED_ABI
) -> int:
    """Confine this thread for good; return the ABI that was used.

    `read` are files and folders that may be read and executed, `devices` files that may be read and
    written, `write` folders (paths or handles) in which everything but sockets and device nodes may
    be created and changed. Missing paths in `read` and `devices` are skipped. No TCP port may be
    bound or connected to; from SIGNALS_ABI on, no process outside can be signalled.

    Raises NoLandlock, and OSError for a folder of `write` that cannot be opened."""
    version = abi()
    if version < needed_abi:
        raise NoLandlock(f"this kernel has Landlock ABI {version}, and {needed_abi} is needed; use Linux 6.2 or newer")
    handled = sum(bits for since, bits in _ALL_BITS if since <= version)
    ruleset = _Ruleset(handled, _TCP if version >= 4 else 0, _SCOPES if version >= SIGNALS_ABI else 0)
    # An older kernel refuses a struct with fields that it does not know.
    size = 24 if version >= SIGNALS_ABI else 16 if version >= 4 else 8
    rules = _check_result(_libc.syscall(_CREATE, ctypes.byref(ruleset), ctypes.c_size_t(size), ctypes.c_uint32(0)))
    try:
        for paths, rights in ((read, _READ_RIGHTS), (devices, _READ | _WRITE | _TRUNCATE)):
            for path in paths:
                try:
                    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
                except (FileNotFoundError, PermissionError):
                    continue
                _add_rule(rules, handle, rights & handled)
                os.close(handle)
        for folder in write:
            handle = os.open(folder, os.O_PATH | os.O_CLOEXEC) if isinstance(folder, str) else folder
            _add_rule(rules, handle, _WRITE_RIGHTS & handled)
            if isinstance(folder, str):
                os.close(handle)
        # The kernel demands it: a setuid program must not escape the rules.
        prctl(NO_NEW_PRIVILEGES, 1)
        _check_result(_libc.syscall(_RESTRICT, ctypes.c_int(rules), ctypes.c_uint32(0)))
    finally:
        os.close(rules)
    return version


def _add_rule(rules: int, handle: int, rights: int) -> None:
    is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
    rule = _PathBeneathRule(rights if is_folder else rights & _OF_A_FILE, handle)
    kind = ctypes.c_int(_PATH_BENEATH)
    nothing = ctypes.c_uint32(0)
    _check_result(_libc.syscall(_ADD, ctypes.c_int(rules), kind, ctypes.byref(rule), nothing))


def _check_result(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise NoLandlock(code, f"Landlock is refused: {os.strerror(code)}")
    return int(result)
