"""A process like one in a pod of the restricted standard: another user, no capabilities, no new privileges, and the
system call filter of a container runtime, made from its own JSON by libseccomp.

`python -m tests.helpers.pod [--uid N] [--gid N] [--groups N,N] [--profile FILE] MODULE word ...` becomes that and then
runs the `main(words)` of MODULE, without an exec: the user need not be able to read the interpreter.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PROFILE = Path(__file__).parents[1] / "data" / "seccomp" / "default.json"
UID = 1001

_LIBRARY = "libseccomp.so.2"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_ACTIONS = {"SCMP_ACT_ALLOW": 0x7FFF0000, "SCMP_ACT_ERRNO": 0x00050000, "SCMP_ACT_KILL_PROCESS": 0x80000000}
_COMPARE = {
    "SCMP_CMP_NE": 1, "SCMP_CMP_LT": 2, "SCMP_CMP_LE": 3, "SCMP_CMP_EQ": 4, "SCMP_CMP_GE": 5, "SCMP_CMP_GT": 6,
    "SCMP_CMP_MASKED_EQ": 7,
}  # fmt: skip
_BOUNDING_DROP, _NO_NEW_PRIVILEGES = 24, 38
_LAST_CAPABILITY = 63


class _Compare(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


def library() -> ctypes.CDLL | None:
    """libseccomp, where it is installed."""
    try:
        found = ctypes.CDLL(_LIBRARY, use_errno=True)
    except OSError:
        return None
    found.seccomp_init.restype = ctypes.c_void_p
    return found


def rules_without_capabilities(profile: Mapping[str, Any], machine: str) -> Iterator[Mapping[str, Any]]:
    """The rules of a profile that hold on this architecture for a container that has no capability at all."""
    arch = _ARCHITECTURES[machine]
    for rule in profile["syscalls"]:
        includes, excludes = rule.get("includes", {}), rule.get("excludes", {})
        if includes.get("caps") or arch not in includes.get("arches", [arch]) or arch in excludes.get("arches", []):
            continue
        yield rule  # what it says of kernels older than 4.8 holds everywhere by now


def load_profile(path: Path = PROFILE) -> int:
    """Put this process, and all it starts, under a profile; how many rules that were. Needs no privilege."""
    lib = library()
    if lib is None:
        raise OSError(f"{_LIBRARY!r} is not installed")
    profile = json.loads(path.read_text())
    context = ctypes.c_void_p(lib.seccomp_init(_action(profile["defaultAction"], profile.get("defaultErrnoRet"))))
    count = 0
    for rule in rules_without_capabilities(profile, platform.machine()):
        action = _action(rule["action"], rule.get("errnoRet"))
        checks = [
            _Compare(arg["index"], _COMPARE[arg["op"]], arg["value"], arg.get("valueTwo", 0))
            for arg in rule.get("args") or ()
        ]
        for name in rule["names"]:
            number = lib.seccomp_syscall_resolve_name(name.encode())
            if number < 0 or action == _action(profile["defaultAction"], profile.get("defaultErrnoRet")):
                continue  # not on this architecture, not known to this libseccomp, or refused anyway
            array = (_Compare * len(checks))(*checks)
            if (code := lib.seccomp_rule_add_array(context, ctypes.c_uint32(action), number, len(checks), array)) != 0:
                raise OSError(-code, f"no rule for {name!r}")
            count += 1
    if (code := lib.seccomp_load(context)) != 0:
        raise OSError(-code, "the profile cannot be loaded")
    return count


def become(uid: int, gid: int, groups: list[int]) -> None:
    """Another user without any capability, for good. Without root only no_new_privs is set."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:
        for capability in range(_LAST_CAPABILITY + 1):
            libc.prctl(_BOUNDING_DROP, capability, 0, 0, 0)
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--uid", type=int, default=UID)
    parser.add_argument("--gid", type=int, default=UID)
    parser.add_argument("--groups", default="")
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--keep", action="store_true", help="stay who one is")
    parser.add_argument("module")
    parser.add_argument("words", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    run = importlib.import_module(given.module).main
    if not given.keep:
        become(given.uid, given.gid, [int(group) for group in given.groups.split(",") if group])
    if given.profile is not None:
        load_profile(given.profile)
    for handle in (10, 251):  # a starter may forget to close some of its own
        os.dup2(0, handle)
    return int(run(given.words))


def _action(name: str, code: int | None) -> int:
    return _ACTIONS[name] | (code or 1 if name == "SCMP_ACT_ERRNO" else 0)


if __name__ == "__main__":
    sys.exit(main())
