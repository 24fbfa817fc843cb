"""`python -m worker runner`: check the machine, report what is missing on one line, and run."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from shared import log
from shared.confinement import landlock, seccomp
from shared.errors import SettingsError
from shared.process.stderr import unbuffer_stderr
from shared.settings import load_few
from worker.sandbox.command import SandboxBroken
from worker.sandbox.runner.place import DEVICE_PATHS, READ_PATHS
from worker.sandbox.runner.runner import Runner

EXIT_SETTINGS: Final = 2
EXIT_UNABLE: Final = 3
_HANDLES: Final = 2**31 - 1


def main(words: Sequence[str]) -> int:
    """Run until SIGTERM; return the exit code: 2 for bad settings, 3 without confinement."""
    parser = argparse.ArgumentParser(prog="python -m worker runner", description="Run commands for a worker.")
    parser.add_argument("--socket", type=Path, help="where to listen (default: runner.socket)")
    about = "only check the runner that listens there; exits with 0 if it is healthy"
    parser.add_argument("--health", action="store_true", help=about)
    options = parser.parse_args(words)
    try:
        settings = load_few(("runner", "workspace", "log", "data"))
        runner = settings.runner
        if options.socket is not None:
            runner = msgspec.structs.replace(runner, socket=options.socket)
        if options.health:
            return _check_health(runner.socket)
        if os.geteuid() == 0:
            why = "a runner must not be root: its commands would be too; start it as a user of its own"
            raise SettingsError(why)
        unbuffer_stderr()
        # The starter's handles would be open in every command: an exec closes only those that we open.
        os.closerange(3, _HANDLES)
        log.configure(settings.log, process="runner")
        if (missing := _find_obstacle()) is not None:
            sys.stderr.write(f"no commands can be run here: {missing}\n")
            return EXIT_UNABLE
        Runner(runner, settings.workspace.root).run()
    except SettingsError as exc:
        sys.stderr.write(f"{exc}\n")
        return EXIT_SETTINGS
    except OSError as exc:
        sys.stderr.write(f"runner.scratch cannot be used: {exc}\n")
        return EXIT_SETTINGS
    return 0


def _find_obstacle() -> str | None:
    """Return what keeps this machine from confining a command, or None. It really confines a
    process of its own, because a kernel may offer a feature and still refuse it."""
    fault_reader, fault_writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            version = landlock.confine(read=READ_PATHS, write=(), devices=DEVICE_PATHS)
            seccomp.confine(signals_scoped=version >= landlock.SIGNALS_ABI)
            _check_confinement()
        except BaseException as exc:
            os.write(fault_writer, str(exc).encode()[:1000])
            os._exit(1)
        os._exit(0)
    os.close(fault_writer)
    with open(fault_reader, "rb") as file:
        why = file.read().decode("utf-8", "replace")
    return why or "the trial of it ended early" if os.waitpid(pid, 0)[1] else None


def _check_confinement() -> None:
    try:
        socket.socket(socket.AF_INET).close()
    except PermissionError:
        pass
    else:
        raise OSError("the system call filter lets sockets through")
    try:
        os.close(os.open("/", os.O_RDONLY))
    except PermissionError:
        return
    raise OSError("Landlock lets files through")


def _check_health(path: Path) -> int:
    # Imported here: a runner has few libraries, because its commands are forked from it.
    import asyncio

    from worker.sandbox.runner.client import RunnerSandbox

    try:
        sys.stdout.write(f"{asyncio.run(RunnerSandbox(path).ping())}\n")
    except SandboxBroken as exc:
        sys.stderr.write(f"the runner on {str(path)!r} does not answer: {exc}\n")
        return 1
    return 0
