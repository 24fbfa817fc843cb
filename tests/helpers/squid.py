"""A real squid, as companies have one: it asks for a user and a password, and knows names that nobody else knows."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from tests.gateway.harness import free_port
from tests.helpers.need import need
from tests.helpers.wait import eventually

USER: Final = "shoal"
PASSWORD: Final = "p@ss/word"
URL_LOGIN: Final = "shoal:p%40ss%2Fword"
_NCSA: Final = Path("/usr/lib/squid/basic_ncsa_auth")
_CONFIGURATION: Final = """
http_port 127.0.0.1:{port}
visible_hostname squid
pid_filename none
pinger_enable off
cache deny all
max_filedescriptors 1024
shutdown_lifetime 0 seconds
access_log stdio:{folder}/access.log
cache_log {folder}/cache.log
hosts_file {folder}/hosts
http_upgrade_request_protocols websocket allow all
auth_param basic program {ncsa} {folder}/users
acl known proxy_auth REQUIRED
http_access allow known
http_access deny all
"""


class Squid:
    """A squid that runs. `url` has the user and the password."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port = port
        self.url = f"http://{URL_LOGIN}@127.0.0.1:{port}"
        self._folder = folder

    def listens(self) -> bool:
        """Whether it takes connections."""
        log = self._folder / "cache.log"
        return log.exists() and "Accepting HTTP" in log.read_text()

    def served(self) -> list[str]:
        """What it was asked for, such as `CONNECT 127.0.0.1:443`, with the status that it answered in front."""
        with contextlib.suppress(FileNotFoundError):
            rows = [line.split() for line in (self._folder / "access.log").read_text().splitlines()]
            return [f"{row[3].partition('/')[2]} {row[5]} {row[6]}" for row in rows]
        return []


@contextlib.asynccontextmanager
async def squid(*names: str) -> AsyncIterator[Squid]:
    """A squid that knows these names as names of this machine."""
    program = shutil.which("squid") or shutil.which("squid", path="/usr/sbin")
    need("squid", found=program is not None and _NCSA.exists())
    need("openssl")
    folder, port = Path(tempfile.mkdtemp(prefix="squid-")), free_port()
    # Started by root it would change to its own user, which can read nothing of a test's.
    user = "proxy" if os.geteuid() == 0 else None
    made = subprocess.run(["openssl", "passwd", "-apr1", PASSWORD], capture_output=True, text=True, check=True)
    (folder / "users").write_text(f"{USER}:{made.stdout}")
    (folder / "hosts").write_text("".join(f"127.0.0.1 {name}\n" for name in names))
    (folder / "squid.conf").write_text(_CONFIGURATION.format(port=port, folder=folder, ncsa=_NCSA))
    if user:
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, user)
    running = subprocess.Popen(
        [program or "squid", "-N", "-f", folder / "squid.conf"],
        cwd=folder,
        user=user,
        group=user,
        extra_groups=[] if user else None,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        found = Squid(folder, port)
        await eventually(found.listens, within_s=30, what="squid")
        yield found
    finally:
        running.terminate()
        running.wait(10)
        shutil.rmtree(folder)
