"""Debian's Redis as a cluster would have it: TLS alone, and a user for each role. The embedded server has no TLS."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from shared.process.resp import RespConnection
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


@contextmanager
def redis_server(folder: Path) -> Iterator[RedisServer]:
    """One with deploy/valkey.conf and deploy/redis/users.acl, for 127.0.0.1."""
    ca_file = authority(folder / "tls")
    (folder / "secrets").mkdir()
    for role in ROLES:
        (folder / "secrets" / role).write_text(f"{role}'s word: 50%/@\n")
    users = subprocess.run(
        [ROOT / "deploy/redis/render-users", ROOT / "deploy/redis/users.acl", folder / "secrets"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (folder / "users.acl").write_text(f"{users}user {ADMIN} on >{ADMIN} ~* &* +@all\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    tls = {"cert-file": "server.crt", "key-file": "server.key", "ca-cert-file": "ca.crt"}
    command = ["redis-server", str(ROOT / "deploy/valkey.conf"), "--bind", "127.0.0.1", "--port", "0"]
    command += ["--tls-port", str(port), "--tls-auth-clients", "no", "--aclfile", str(folder / "users.acl")]
    command += ["--enable-debug-command", "yes"]  # so that it is the user who is refused
    for name, file in tls.items():
        command += [f"--tls-{name}", str(folder / "tls" / file)]
    with (folder / "redis.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    server = RedisServer(port, folder, ca_file)
    try:
        _wait(server, process)
        yield server
    finally:
        process.terminate()
        process.wait(20)


def _wait(server: RedisServer, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            with server.admin() as connection:
                connection.command("PING")
                return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((server.folder / "redis.log").read_text()) from None
            time.sleep(0.02)
