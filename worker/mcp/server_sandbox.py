"""The sandbox of an MCP server that is a process. It sees the machine's files, read-only, without
those that hold our secrets or the data of chats, and no process but its own; it has the network.

Run as a file, standard library only: `server_sandbox.py BWRAP CWD HIDDEN... -- COMMAND...` becomes
the server, inside bubblewrap where that works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from shared.settings import McpServerSettings, Settings

CANNOT_START: Final = 127
_TRIAL_S: Final = 10.0
# Folders that others write too, or with sockets and secrets of the machine: empty for a server.
_EMPTY: Final = ("/run", "/tmp", "/var/tmp")  # noqa: S108
# Where programs keep what logs in elsewhere.
_CREDENTIALS: Final = (
    *(".aws", ".azure", ".config", ".docker", ".git-credentials", ".gnupg", ".kube", ".netrc", ".npmrc"),
    *(".pypirc", ".shoal", ".ssh"),
)


def confined(server: McpServerSettings, hidden: Iterable[str]) -> McpServerSettings:
    """Return the settings of a server so that its command runs in the sandbox, if it has one."""
    if not server.sandbox or not server.command or sys.platform != "linux":
        return server
    from msgspec.structs import replace

    from worker.sandbox.bubblewrap import find_programs

    program = next((str(one.path) for one in find_programs()), "")
    launcher = (sys.executable, "-I", "-S", __file__, program, server.cwd, *hidden, "--")
    return replace(server, command=(*launcher, *server.command))


def hidden_paths(settings: Settings) -> list[str]:
    """List what no server sees: data of chats, files with our secrets, credentials of this user."""
    from shared.settings import secret_files

    data = settings.data.dir, settings.workspace.root, settings.media.dir
    home = os.path.expanduser("~")
    own = (os.path.join(home, name) for name in _CREDENTIALS)
    return sorted(map(os.path.realpath, {*map(str, (*data, *secret_files(settings))), *own}))


def main(program: str, cwd: str, *words: str) -> NoReturn:
    """Become the server."""
    end = words.index("--")
    hidden = words[:end]
    command = words[end + 1 :]
    if shutil.which(command[0]) is None:
        sys.stderr.write(f"{command[0]!r} cannot be started: there is no such program\n")
        sys.exit(CANNOT_START)
    start = [program, *_options(cwd, hidden), "--"]
    # A trial without our paths: a mistake in those ends the server, and never the sandbox.
    if not program or not _works([program, *_options("", ()), "--"]):
        sys.stderr.write("bubblewrap does not work here: the server is not confined\n")
        sys.stderr.flush()
        start = []
    os.execvp((start or command)[0], [*start, *command])  # noqa: S606


def _options(cwd: str, hidden: Iterable[str]) -> list[str]:
    options = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent"]
    options += ["--new-session", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for folder in filter(os.path.isdir, _EMPTY):
        options += ["--tmpfs", os.path.realpath(folder)]
    # Names are looked up through the first, which often lies in /run. From the second come servers in
    # Python, wherever somebody has unpacked it.
    environment = os.path.dirname(os.path.dirname(sys.executable))
    for path in (os.path.realpath("/etc/resolv.conf"), environment):
        if path.startswith(_EMPTY):
            options += ["--ro-bind-try", path, path]
    covered = list(_EMPTY)
    for path in sorted(hidden):
        if path.startswith(tuple(f"{folder}/" for folder in covered)):
            continue
        covered.append(path)
        if os.path.isdir(path):
            options += ["--tmpfs", path, "--remount-ro", path]
        elif os.path.exists(path):
            options += ["--ro-bind", "/dev/null", path]
    # Last, so that the operator's choice is seen wherever it lies.
    if cwd:
        options += ["--bind", os.path.abspath(cwd), os.path.abspath(cwd), "--chdir", os.path.abspath(cwd)]
    return options


def _works(start: list[str]) -> bool:
    try:
        trial = subprocess.run(
            [*start, "/bin/true"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TRIAL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return trial.returncode == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
