"""The filter itself, run as a program for both architectures, and for real on this one."""

from __future__ import annotations

import errno
import platform
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from shared.confinement import seccomp
from tests.helpers import pod
from tests.helpers.need import need

ROOT = Path(__file__).parents[3]
ALLOW, KILL = 0x7FFF0000, 0x80000000
CLONE_THREAD_FLAGS, CLONE_NEWUSER = 0x3D0F00, 0x10000000
X86, ARM = "x86_64", "aarch64"


def verdict(
    machine: str, call: str | int, *args: int, arch: int | None = None, scoped: bool = True, network: bool = False
) -> int:
    """Run the filter on one system call: a small machine for the instructions that it uses."""
    of = seccomp.ARCHES[machine]
    number = call if isinstance(call, int) else number_of(call, of.column)
    data = struct.pack("=IIQ6Q", number, of.audit if arch is None else arch, 0, *args, *([0] * (6 - len(args))))
    code = list(struct.iter_unpack("=HBBI", seccomp.build_filter(machine, signals_scoped=scoped, network=network)))
    at = word = 0
    while True:
        op, when, otherwise, value = code[at]
        at += 1
        match op:
            case 0x20:
                (word,) = struct.unpack_from("=I", data, value)
            case 0x54:
                word &= value
            case 0x06:
                return int(value)
            case 0x15 | 0x25 | 0x45:
                holds = {0x15: word == value, 0x25: word > value, 0x45: bool(word & value)}[op]
                at += when if holds else otherwise
            case _:
                raise AssertionError(f"unknown instruction {op:#x}")


def number_of(call: str, column: int) -> int:
    table = {**seccomp.REFUSED, **seccomp.NETWORK, **seccomp.UNSUPPORTED, **seccomp.SIGNALS, **seccomp.CONDITIONAL}
    number = table[call][column]
    assert number is not None
    return number


def refused(code: int = errno.EPERM) -> int:
    return 0x00050000 | code


@pytest.mark.parametrize("machine", [X86, ARM])
def test_every_listed_call_is_refused_and_common_ones_are_not(machine: str) -> None:
    """EPERM, not death: a program may try, and go on without."""
    column = seccomp.ARCHES[machine].column
    for name, numbers in {**seccomp.REFUSED, **seccomp.NETWORK}.items():
        if numbers[column] is not None:
            assert verdict(machine, name) == refused(), name
            assert name in seccomp.NETWORK or verdict(machine, name, network=True) == refused(), name
    read, write, openat, execve = ((0, 1, 257, 59), (63, 64, 56, 221))[column]
    for number in (read, write, openat, execve):
        assert verdict(machine, number) == ALLOW


@pytest.mark.parametrize("machine", [X86, ARM])
@pytest.mark.parametrize(
    ("call", "args", "expected"),
    [
        ("clone", (CLONE_THREAD_FLAGS,), ALLOW),
        ("clone", (CLONE_NEWUSER | 17,), refused()),
        ("clone", (0x20000,), refused()),
        ("clone", (CLONE_THREAD_FLAGS & ~0x400,), refused()),
        ("clone", (17,), ALLOW),
        ("setsockopt", (3, 1, 2), ALLOW),
        ("setsockopt", (3, 1, 7), refused(0)),
        ("setsockopt", (3, 1, 8), refused(0)),
        ("setsockopt", (3, 1, 9), ALLOW),
        ("setsockopt", (3, 6, 7), ALLOW),
        ("fcntl", (3, 1), ALLOW),
        ("fcntl", (3, 1031, 1 << 20), refused()),
        ("vmsplice", (), refused(errno.EINVAL)),
        ("splice", (), refused(errno.EINVAL)),
        ("tee", (), refused(errno.EINVAL)),
        ("sendfile", (), refused(errno.EINVAL)),
        ("clone3", (0, 88), refused(errno.ENOSYS)),
        ("socketpair", (1, 1 | 0o2000000), ALLOW),
        ("socketpair", (1, 2), refused()),
        ("socketpair", (2, 1), refused()),
        ("prlimit64", (0, 7), ALLOW),
        ("prlimit64", (1, 0), refused()),
        ("sched_setaffinity", (0,), ALLOW),
        ("sched_setaffinity", (1,), refused()),
        ("setpriority", (0, 0, 19), ALLOW),
        ("setpriority", (0, 1, 19), refused()),
        ("setpriority", (2, 0, 19), refused()),
        ("ioctl", (0, 0x5401), ALLOW),
        ("ioctl", (0, 0x5412), refused()),
        ("ioctl", (0, 0x5412 | 1 << 32), refused()),
        ("ioctl", (0, 0x541C), refused()),
        ("personality", (0xFFFFFFFF,), ALLOW),
        ("personality", (0,), ALLOW),
        ("personality", (0x0040000,), refused()),
    ],
)
def test_some_calls_depend_on_their_arguments(machine: str, call: str, args: tuple[int, ...], expected: int) -> None:
    """Threads, halves of a pair and one's own limits are fine; namespaces, other sockets and other processes not."""
    assert verdict(machine, call, *args) == expected


@pytest.mark.parametrize("machine", [X86, ARM])
def test_with_a_network_there_is_tcp_and_nothing_else(machine: str) -> None:
    """Whatever a family, a type and a protocol are called, and in the 32 bits that the kernel reads."""
    allowed = {(family, kind, protocol) for family in (2, 10) for kind in (1, 1 | 0o2004000) for protocol in (0, 6)}
    for family in range(64):
        for kind in (*range(16), 1 | 0o2004000):
            for protocol in (0, 1, 6, 17, 132, 136, 262):
                expected = ALLOW if (family, kind, protocol) in allowed else refused()
                assert verdict(machine, "socket", family, kind, protocol, network=True) == expected
                assert verdict(machine, "socket", family, kind, protocol) == refused()
    assert verdict(machine, "socket", 2 | 1 << 32, 1, 0, network=True) == ALLOW
    assert verdict(machine, "connect", 3, network=True) == ALLOW


@pytest.mark.parametrize("machine", [X86, ARM])
def test_signals_are_free_only_where_landlock_keeps_them_inside(machine: str) -> None:
    """An old kernel's command signals its own group alone: -1 and the numbers of others are refused."""
    for target in (-1 & 0xFFFFFFFF, 1, 4711):
        assert verdict(machine, "kill", target, 9) == ALLOW
        assert verdict(machine, "kill", target, 9, scoped=False) == refused()
    assert verdict(machine, "kill", 0, 9, scoped=False) == ALLOW
    for call in seccomp.SIGNALS:
        assert verdict(machine, call, 1, 9) == ALLOW
        assert verdict(machine, call, 1, 9, scoped=False) == refused()


def test_another_architectures_calls_are_death() -> None:
    """Numbers mean other calls there: 32-bit calls and x32 would walk past the table."""
    assert verdict(X86, 1, arch=0x40000003) == KILL
    assert verdict(ARM, 1, arch=0x40000028) == KILL
    assert verdict(X86, 0x40000000 | 41) == KILL


@pytest.mark.parametrize("machine", [X86, ARM])
def test_a_call_newer_than_the_table_does_not_exist(machine: str) -> None:
    """A call that was not reviewed is refused."""
    assert verdict(machine, seccomp.NEWEST + 1) == refused(errno.ENOSYS)
    assert verdict(machine, 5000) == refused(errno.ENOSYS)


def test_an_unknown_architecture_has_no_filter() -> None:
    """Fail closed, with a text that says where it works."""
    with pytest.raises(seccomp.NoSeccomp, match="riscv64"):
        seccomp.build_filter("riscv64", signals_scoped=True)


def test_the_numbers_are_those_of_libseccomp() -> None:
    """A wrong number would refuse one call and let another through."""
    lib = pod.library()
    need("libseccomp2", found=lib is not None)
    assert lib is not None
    known = 0
    tables = {**seccomp.REFUSED, **seccomp.NETWORK, **seccomp.UNSUPPORTED, **seccomp.SIGNALS, **seccomp.CONDITIONAL}
    for name, numbers in tables.items():
        for arch in seccomp.ARCHES.values():
            number = lib.seccomp_syscall_resolve_name_arch(arch.audit, name.encode())
            if number == -1:
                continue  # newer than this libseccomp
            known += 1
            assert (number if number >= 0 else None) == numbers[arch.column], name
    assert known > 200


SCRIPT = """
import ctypes, errno, os, socket, subprocess, sys, threading
from shared.confinement import seccomp
seccomp.confine(signals_scoped={scoped})
libc = ctypes.CDLL(None, use_errno=True)
def code(call):
    try:
        return 0 if call() is not None else 0
    except OSError as exc:
        return exc.errno
def raw(*words):
    return ctypes.get_errno() if libc.syscall(*words) < 0 else 0
left, right = socket.socketpair()
left.send(b"x"); assert right.recv(1) == b"x"
thread = threading.Thread(target=print); thread.start(); thread.join()
assert subprocess.run(["/bin/sh", "-c", "exit 7"]).returncode == 7
print(
    *[code(lambda f=f: socket.socket(f)) for f in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, 16)],
    code(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)),
    raw({unshare}, 0x10000000), raw({ptrace}, 0, 0, 0, 0), raw({memfd}, b"x", 0), raw(425, 8, 0), raw(9999),
    code(lambda: os.kill(1, 0)) if not {scoped} else 1,
)
"""


@pytest.mark.parametrize("scoped", [True, False])
def test_a_confined_process_still_works_and_reaches_nothing(scoped: bool) -> None:
    """For real: threads, children and pairs work; every socket, namespace, trace and anonymous program is refused."""
    machine = platform.machine()
    need("seccomp", found=sys.platform == "linux" and machine in seccomp.ARCHES, install="Linux on x86-64 or arm64")
    column = seccomp.ARCHES[machine].column
    numbers = {name: number_of(name, column) for name in ("unshare", "ptrace")}
    script = SCRIPT.format(scoped=scoped, memfd=number_of("memfd_create", column), **numbers)
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == [*["1"] * 9, str(errno.ENOSYS), "1"]
