"""Servers with the users that we ship; and Debian's Redis as a cluster would have it: TLS alone, and a user for each
role. The embedded server has no TLS."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from shared.process.resp import RespConnection, RespError
from tests.gateway.harness import free_port
from tests.helpers.certificates import authority

ROOT: Final = Path(__file__).parents[2]
ROLES: Final = ("gateway", "worker", "console")
ADMIN: Final = "of-the-test"


class RedisServer:
    """A server that runs. `password(role)` is what is in `secrets`/`role`."""

    def __init__(self, port: int, folder: Path, ca_file: Path) -> None:
        self.port = port
        self.folder = folder
        self.ca_file = ca_file

    def password(self, role: str) -> str:
        """The password of a role, or of the test's own user who may do everything."""
        return ADMIN if role == ADMIN else (self.folder / "secrets" / role).read_text().rstrip("\n")

    def url(self, role: str, *, host: str = "127.0.0.1", ca_file: Path | None = None) -> str:
        """The address with all that is needed."""
        query = urlencode({"ssl_ca_certs": ca_file or self.ca_file})
        return f"rediss://{role}:{quote(self.password(role), safe='')}@{host}:{self.port}/0?{query}"

    def environment(self, role: str) -> dict[str, str]:
        """The settings of a process of this role, the way the manifests give them."""
        return {
            "SHOAL_REDIS__URL": f"rediss://127.0.0.1:{self.port}/0",
            "SHOAL_REDIS__USER": role,
            "SHOAL_REDIS__PASSWORD_FILE": str(self.folder / "secrets" / role),
            "SHOAL_REDIS__CA_FILE": str(self.ca_file),
        }

    @contextmanager
    def admin(self) -> Iterator[RespConnection]:
        """A connection that may do everything, for what the test itself wants to know."""
        connection = RespConnection(self.url(ADMIN))
        try:
            yield connection
        finally:
            connection.close()


def write_users(folder: Path, password: str = "{role}") -> Path:
    """Write each role's password to `secrets`, and deploy/redis/users.acl with them and with ADMIN; return its file."""
    (folder / "secrets").mkdir()
    for role in ROLES:
        (folder / "secrets" / role).write_text(password.format(role=role))
    rendered = subprocess.run(
        [ROOT / "deploy/redis/render-users", ROOT / "deploy/redis/users.acl", folder / "secrets"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    users = folder / "users.acl"
    users.write_text(f"{rendered}user {ADMIN} on >{ADMIN} ~* &* +@all\n")
    return users


def started(command: Sequence[str | Path], folder: Path, url: str) -> subprocess.Popen[bytes]:
    """Start a server and wait until it answers; its log is `redis.log`."""
    log = folder / "redis.log"
    with log.open("ab") as file:
        process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=file)
    deadline = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError, RespError), contextlib.closing(RespConnection(url)) as connection:
            connection.command("PING")
            return process
        time.sleep(0.02)
    process.kill()
    process.wait(20)
    raise AssertionError(log.read_text(errors="replace"))


@contextmanager
def redis_server(folder: Path) -> Iterator[RedisServer]:
    """One with deploy/valkey.conf and deploy/redis/users.acl, for 127.0.0.1."""
    ca_file = authority(folder / "tls")
    users = write_users(folder, "{role}'s word: 50%/@\n")
    server = RedisServer(free_port(), folder, ca_file)
    tls = {"cert-file": "server.crt", "key-file": "server.key", "ca-cert-file": "ca.crt"}
    command = ["redis-server", str(ROOT / "deploy/valkey.conf"), "--bind", "127.0.0.1", "--port", "0"]
    command += ["--tls-port", str(server.port), "--tls-auth-clients", "no", "--aclfile", str(users)]
    command += ["--enable-debug-command", "yes"]  # so that it is the user who is refused
    for name, file in tls.items():
        command += [f"--tls-{name}", str(folder / "tls" / file)]
    process = started(command, folder, server.url(ADMIN))
    try:
        yield server
    finally:
        process.terminate()
        process.wait(20)
