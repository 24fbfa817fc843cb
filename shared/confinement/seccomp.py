"""System calls that are forbidden to a command: a seccomp filter in BPF, set through ctypes.

Forbidden are: the network (a socket can only be half of a connected pair; with a network namespace
of its own, a command may open TCP connections there), other processes (memory, limits, priorities,
and their signals where Landlock does not see to that), namespaces and mounts, keys, shared memory
between commands, what asks a kernel to run programs for one (BPF, io_uring, perf), anonymous
executables, and all that only a root has. A call that is newer than this table does not exist for a
command."""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

from shared.confinement.processes import NO_NEW_PRIVILEGES, SECCOMP, prctl

# Highest reviewed call (Linux 6.13). From 424 on, numbers are the same everywhere.
NEWEST: Final = 466
_LD_WORD = 0x20
_JEQ = 0x15
_JGT = 0x25
_JSET = 0x45
_AND = 0x54
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ERRNO = 0x00050000
_NUMBER_AT = 0
_ARCH_AT = 4
_ARGS_AT = 16
_X32_BIT: Final = 0x40000000
_NEW_NAMESPACES: Final = 0x7E020000  # CLONE_NEW* as clone(2) reads them
_CLONE_THREAD = 0x10000
_CLONE_FILES = 0x400
_FILTER: Final = 2
_AF_UNIX = 1
_AF_INET = 2
_AF_INET6 = 10
_SOCK_STREAM = 1
_SOCK_TYPES = 0xF
_TCP = 6
_SOL_SOCKET = 1
_SO_SNDBUF = 7
_SO_RCVBUF = 8
_F_SETPIPE_SZ = 1031
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # typing into a terminal


T = TypeVar("T")


class Arch(NamedTuple):
    """An architecture: its audit number, and its column in the tables."""

    audit: int
    column: int


ARCHES: Final = {"x86_64": Arch(0xC000003E, 0), "aarch64": Arch(0xC00000B7, 1)}


def _table(*rows: dict[str, T]) -> dict[str, T]:
    return {name: numbers for row in rows for name, numbers in row.items()}


# Name -> number on x86_64 and on aarch64; None where there is no such call.
REFUSED: Final[dict[str, tuple[int | None, int | None]]] = _table(
    # network: also what a half of a pair could still be turned into
    {"bind": (49, 200), "listen": (50, 201), "accept": (43, 202), "accept4": (288, 242)},
    # other processes
    {"ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271)},
    {"kcmp": (312, 272), "process_madvise": (440, 440), "process_mrelease": (448, 448)},
    {"pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424)},
    {"move_pages": (279, 239), "migrate_pages": (256, 238), "sched_setparam": (142, 118)},
    {"sched_setscheduler": (144, 119), "sched_setattr": (314, 274), "ioprio_set": (251, 30)},
    # namespaces and mounts
    {"unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39)},
    {"pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428)},
    {"move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432)},
    {"fspick": (433, 433), "mount_setattr": (442, 442), "statmount": (457, 457)},
    {"listmount": (458, 458), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265)},
    {"fanotify_init": (300, 262), "fanotify_mark": (301, 263)},
    # keys, shared memory and queues that other commands would see
    {"add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "shmget": (29, 194)},
    {"shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197), "semget": (64, 190)},
    {"semop": (65, 193), "semtimedop": (220, 192), "semctl": (66, 191), "msgget": (68, 186)},
    {"msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180)},
    {"mq_unlink": (241, 181), "mq_timedsend": (242, 182), "mq_timedreceive": (243, 183)},
    {"mq_notify": (244, 184), "mq_getsetattr": (245, 185)},
    # programs for the kernel, and memory that runs
    {"bpf": (321, 280), "perf_event_open": (298, 241), "io_uring_setup": (425, 425)},
    {"io_uring_enter": (426, 426), "io_uring_register": (427, 427), "userfaultfd": (323, 282)},
    {"memfd_create": (319, 279), "memfd_secret": (447, 447), "modify_ldt": (154, None)},
    # whose files they are, by path, which Landlock does not look at
    {"chown": (92, None), "lchown": (94, None), "fchownat": (260, 54), "setxattr": (188, 5)},
    {"lsetxattr": (189, 6), "removexattr": (197, 14), "lremovexattr": (198, 15)},
    {"setxattrat": (463, 463), "removexattrat": (466, 466)},
    # the machine
    {"kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105)},
    {"finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142)},
    {"swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60)},
    {"quotactl_fd": (443, 443), "syslog": (103, 116), "settimeofday": (164, 170)},
    {"clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266)},
    {"sethostname": (170, 161), "setdomainname": (171, 162), "vhangup": (153, 58)},
    {"iopl": (172, None), "ioperm": (173, None), "uselib": (134, None)},
    {"lsm_set_self_attr": (460, 460)},
)
# Refused without a network. With one, a command has TCP and calls only: a queue of connections that
# nobody accepts, or a datagram, would hold memory that is counted nowhere.
NETWORK: Final = _table({"socket": (41, 198), "connect": (42, 203)})
# Refused with EINVAL, as by a file system that does not support them: programs then copy by read
# and write. In a pipe or socket, a byte from each of many large pages would keep all of these
# pages, and nothing counts them.
UNSUPPORTED: Final = _table(
    {"sendfile": (40, 71), "splice": (275, 76), "tee": (276, 77), "vmsplice": (278, 75)},
)
# Refused where Landlock does not keep signals inside: the filter sees a pid, and not whose it is.
SIGNALS: Final = _table(
    {"tkill": (200, 130), "tgkill": (234, 131)},
    {"rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240)},
)
CONDITIONAL: Final = _table(
    {"kill": (62, 129), "clone": (56, 220), "clone3": (435, 435), "socketpair": (53, 199)},
    {"prlimit64": (302, 261), "sched_setaffinity": (203, 122), "setpriority": (141, 140)},
    {"ioctl": (16, 29), "personality": (135, 92), "setsockopt": (54, 208), "fcntl": (72, 25)},
)

_PRIO_PROCESS: Final = 0
_PERSONALITY_ASK: Final = 0xFFFFFFFF


class NoSeccomp(OSError):
    """The kernel lacks or refuses seccomp filters, or there is no table for this architecture."""


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def build_filter(machine: str, *, signals_scoped: bool, network: bool = False) -> bytes:
    """Return the filter for an architecture as BPF. Unless `signals_scoped` (by Landlock), a
    process can signal only its own group. With `network` it may open TCP connections: let it have
    a network namespace of its own. Raises NoSeccomp for an unknown architecture."""
    try:
        arch = ARCHES[machine]
    except KeyError:
        known = ", ".join(ARCHES)
        why = f"there is no system call filter for {machine!r}; use one of {known}"
        raise NoSeccomp(why) from None
    code = [
        _instruction(_LD_WORD, _ARCH_AT),
        _instruction(_JEQ, arch.audit, 1, 0),
        _instruction(_RETURN, _KILL),
        _instruction(_LD_WORD, _NUMBER_AT),
    ]
    if machine == "x86_64":  # the x32 ABI has the same audit number and other call numbers
        code += [_instruction(_JSET, _X32_BIT, 0, 1), _instruction(_RETURN, _KILL)]
    # ENOSYS for calls newer than the table: libraries then fall back to an older call.
    code += [_instruction(_JGT, NEWEST, 0, 1), _return_errno(errno.ENOSYS)]
    refused = {**REFUSED, **({} if signals_scoped else SIGNALS), **({} if network else NETWORK)}
    for table, error in ((refused, errno.EPERM), (UNSUPPORTED, errno.EINVAL)):
        for columns in table.values():
            if (number := columns[arch.column]) is not None:
                code += [_instruction(_JEQ, number, 0, 1), _return_errno(error)]
    for name, columns in {**CONDITIONAL, "socket": NETWORK["socket"]}.items():
        if name != "kill" or not signals_scoped:
            checks = [*_check_arguments(name), _instruction(_RETURN, _ALLOW)]
            code += [_instruction(_JEQ, columns[arch.column], 0, len(checks)), *checks]
    return b"".join([*code, _instruction(_RETURN, _ALLOW)])


def confine(*, signals_scoped: bool) -> None:
    """Set the filter for this thread and all it starts, for good. Raises NoSeccomp."""
    code = build_filter(platform.machine(), signals_scoped=signals_scoped)
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_program = _FilterProgram(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    try:
        prctl(NO_NEW_PRIVILEGES, 1)
        prctl(SECCOMP, _FILTER, ctypes.addressof(filter_program))
    except OSError as exc:
        raise NoSeccomp(exc.errno, f"a system call filter is refused: {exc.strerror}") from None


def _check_arguments(name: str) -> Iterable[bytes]:
    """Return the checks of a call's arguments; a call that falls through is allowed."""
    match name:
        case "clone3":
            # Its flags are in memory, which a filter cannot read; on ENOSYS libc uses clone.
            return [_return_errno(errno.ENOSYS)]
        case "clone":
            return [
                _load_argument(0),
                _instruction(_JSET, _NEW_NAMESPACES, 0, 1),
                _REFUSE,
                # A thread with handles of its own: /proc shows only those of the first thread.
                _instruction(_JSET, _CLONE_THREAD, 0, 2),
                _instruction(_JSET, _CLONE_FILES, 1, 0),
                _REFUSE,
            ]
        case "socketpair":
            return [*_refuse_unless(0, _AF_UNIX), *_REFUSE_UNLESS_STREAM]
        case "socket":
            return [*_refuse_unless(0, _AF_INET, _AF_INET6), *_REFUSE_UNLESS_STREAM, *_refuse_unless(2, 0, _TCP)]
        case "kill" | "prlimit64" | "sched_setaffinity":  # 0 is oneself, for kill the own group
            return _refuse_unless(0, 0)
        case "setpriority":
            return [*_refuse_unless(0, _PRIO_PROCESS), *_refuse_unless(1, 0)]
        case "setsockopt":
            # Sizes of buffers are ignored: what a socket holds is counted by their defaults.
            return [
                _load_argument(1),
                _instruction(_JEQ, _SOL_SOCKET, 0, 4),
                _load_argument(2),
                _instruction(_JEQ, _SO_SNDBUF, 1, 0),
                _instruction(_JEQ, _SO_RCVBUF, 0, 1),
                _return_errno(0),
            ]
        case "fcntl":
            return [_load_argument(1), _instruction(_JEQ, _F_SETPIPE_SZ, 0, 1), _REFUSE]
        case "ioctl":
            return [
                _load_argument(1),
                _instruction(_JEQ, _TIOCSTI, 1, 0),
                _instruction(_JEQ, _TIOCLINUX, 0, 1),
                _REFUSE,
            ]
        case "personality":
            return [_load_argument(0), _instruction(_JEQ, 0, 2, 0), _instruction(_JEQ, _PERSONALITY_ASK, 1, 0), _REFUSE]
    raise AssertionError(name)


def _refuse_unless(index: int, *values: int) -> list[bytes]:
    """Refuse a call unless an argument has one of these values, in the 32 bits that the kernel
    reads."""
    # A value that fits skips the comparisons that are left, and the refusal.
    checks = [_instruction(_JEQ, value, len(values) - at, 0) for at, value in enumerate(values)]
    return [_load_argument(index), *checks, _REFUSE]


def _load_argument(index: int) -> bytes:
    return _instruction(_LD_WORD, _ARGS_AT + 8 * index)  # both architectures are little-endian


def _instruction(code: int, value: int, when: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, when, otherwise, value)


def _return_errno(code: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | code)


_REFUSE: Final = _return_errno(errno.EPERM)
_REFUSE_UNLESS_STREAM: Final = (
    _load_argument(1),
    _instruction(_AND, _SOCK_TYPES),
    _instruction(_JEQ, _SOCK_STREAM, 1, 0),
    _REFUSE,
)
