"""The last steps of a process before it becomes a command: Landlock, the system call filter,
limits, then the program.

The order matters. Handles are opened before Landlock takes the paths away; Landlock comes before
the filter, which refuses signals only if Landlock does not keep them inside; limits come last. All
of it holds for the whole process, because it was forked from a process with one thread."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import sys
from typing import Final, NoReturn

from shared.confinement import landlock, seccomp
from shared.confinement.processes import AMBIENT, AMBIENT_CLEAR_ALL, DEATH_SIGNAL, prctl
from worker.sandbox.cgroup import CommandGroup
from worker.sandbox.command import SandboxCommand
from worker.sandbox.layout import ADDRESS_SPACE, CPU_GRACE_S, NICE, OPEN_FILES, command_environment, shell_argv
from worker.sandbox.runner.place import DEVICE_PATHS, READ_PATHS, CommandPlace

# Files of a command are open to its user and to the workspace's group, the worker's.
UMASK: Final = 0o007
_NOT_FOUND: Final = 127
_NOT_RUN: Final = 126


def exec_command(
    command: SandboxCommand,
    place: CommandPlace,
    group: CommandGroup | None,
    stdin: int,
    output: int,
    faults: int,
    parent: int,
) -> NoReturn:
    """Turn this process into the command. If that fails, write why to `faults`, and end."""
    try:
        _prepare_process(stdin, output, parent)
        if group is not None:
            group.add(0)
        os.umask(UMASK)
        os.fchdir(place.workspace)
        writable: list[int | str] = [place.workspace, str(place.tmp)]
        readable = (*READ_PATHS, str(place.shown))
        version = landlock.confine(read=readable, write=writable, devices=DEVICE_PATHS)
        seccomp.confine(signals_scoped=version >= landlock.SIGNALS_ABI)
        environment = command_environment(command, home=place.path, tmp=str(place.tmp))
        argv = shell_argv(command.what)
        # Last: this interpreter may already use more memory than the command is allowed.
        _set_limits(command, place.uid_processes)
        _exec_program(argv, environment)
    except BaseException as exc:
        with contextlib.suppress(BaseException):
            os.write(faults, f"{type(exc).__name__}: {exc}".encode()[:1000])
    os._exit(_NOT_RUN)


def _prepare_process(stdin: int, output: int, parent: int) -> None:
    os.setsid()
    os.nice(NICE)
    prctl(DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the prctl: that signal will never come
        raise OSError(errno.ECHILD, "the supervisor is gone")
    with contextlib.suppress(OSError):
        prctl(AMBIENT, AMBIENT_CLEAR_ALL)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE, signal.SIGHUP):
        # An ignored signal stays ignored across an exec. SIGXFSZ is left ignored on purpose: a write
        # beyond the file limit is then an error and not a death.
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.dup2(stdin, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # The exec closes every handle above 2: main() closed the inherited ones, and Python opens all of
    # its own close-on-exec.


def _set_limits(command: SandboxCommand, uid_processes: int) -> None:
    limits = command.limits
    for kind, soft, hard in (
        # The soft limit sends SIGXCPU, which shows the reason; the hard limit sends SIGKILL.
        (resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + CPU_GRACE_S),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes),
        (resource.RLIMIT_NOFILE, OPEN_FILES, OPEN_FILES),
        (resource.RLIMIT_NPROC, uid_processes, uid_processes),
        (resource.RLIMIT_DATA, limits.memory_bytes, limits.memory_bytes),
        (resource.RLIMIT_AS, limits.memory_bytes * ADDRESS_SPACE, limits.memory_bytes * ADDRESS_SPACE),
    ):
        top = resource.getrlimit(kind)[1]
        if top != resource.RLIM_INFINITY:
            soft = min(soft, top)
            hard = min(hard, top)
        resource.setrlimit(kind, (soft, hard))


def _exec_program(argv: list[str], environment: dict[str, str]) -> NoReturn:
    try:
        os.execvpe(argv[0], argv, environment)  # noqa: S606 (no shell wanted)
    except FileNotFoundError:
        sys.stderr.write(f"{argv[0]}: not found\n")
        code = _NOT_FOUND
    except PermissionError:
        sys.stderr.write(f"{argv[0]}: may not be run\n")
        code = _NOT_RUN
    sys.stderr.flush()
    os._exit(code)
