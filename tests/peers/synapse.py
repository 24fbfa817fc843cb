"""A real Matrix homeserver, Synapse, on loopback: sqlite, no federation, people registered by a shared secret."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import msgspec
import psutil

from tests.helpers.need import need

PYTHON: Final = Path(__file__).parents[2] / ".venv" / "peers" / "bin" / "python"
NAME: Final = "pond.example"
UP_S: Final = 120.0
CLIENT: Final = "/_matrix/client/v3"


def need_synapse() -> None:
    """Skip where it is not installed."""
    need("synapse", install="run `make peers`", found=(PYTHON.parent / "generate_config").exists())


class User:
    """Somebody with a token, who talks to the homeserver in its own words."""

    def __init__(self, http: aiohttp.ClientSession, base: str, id: str, token: str) -> None:
        self.id = id
        self.token = token
        self._http = http
        self._base = base

    async def call(self, method: str, path: str, **given: Any) -> Any:
        """The answer, whatever its status was, as JSON."""
        headers = {"Authorization": f"Bearer {self.token}", **given.pop("headers", {})}
        async with self._http.request(method, self._base + path, headers=headers, **given) as answer:
            return json.loads(await answer.read())

    async def room(self, *invited: str, **more: Any) -> str:
        """A new room without encryption; its id."""
        made = await self.call("POST", f"{CLIENT}/createRoom", json={"invite": list(invited), **more})
        return str(made["room_id"])

    async def join(self, room: str) -> None:
        await self.call("POST", f"{CLIENT}/rooms/{quote(room)}/join", json={})

    async def send(self, room: str, content: dict[str, Any], *, type: str = "m.room.message") -> str:
        """The id of the event."""
        path = f"{CLIENT}/rooms/{quote(room)}/send/{type}/{secrets.token_hex(8)}"
        done = await self.call("PUT", path, json=content)
        return str(done["event_id"])

    async def say(self, room: str, text: str, **more: Any) -> str:
        return await self.send(room, {"msgtype": "m.text", "body": text, "m.mentions": {}, **more})

    async def take_back(self, room: str, id: str) -> None:
        path = f"{CLIENT}/rooms/{quote(room)}/redact/{quote(id)}/{secrets.token_hex(8)}"
        await self.call("PUT", path, json={})

    async def upload(self, data: bytes, name: str) -> str:
        path = f"/_matrix/media/v3/upload?filename={quote(name)}"
        done = await self.call("POST", path, data=data, headers={"Content-Type": "text/plain"})
        return str(done["content_uri"])

    async def download(self, uri: str) -> bytes:
        path = f"/_matrix/client/v1/media/download/{uri.removeprefix('mxc://')}"
        headers = {"Authorization": f"Bearer {self.token}"}
        async with self._http.get(self._base + path, headers=headers) as answer:
            assert answer.status == 200
            return await answer.read()

    async def events(self, room: str, *, of: str) -> list[dict[str, Any]]:
        """The messages of somebody in a room, oldest first, each as it was sent."""
        only = json.dumps({"types": ["m.room.message"], "senders": [of]})
        path = f"{CLIENT}/rooms/{quote(room)}/messages?dir=b&limit=100&filter={quote(only)}"
        page = await self.call("GET", path)
        return list(reversed(page["chunk"]))

    async def is_in(self, room: str, user: str) -> bool:
        members = await self.call("GET", f"{CLIENT}/rooms/{quote(room)}/joined_members")
        return user in members.get("joined", {})


class Synapse(msgspec.Struct, frozen=True):
    """A running one."""

    address: str
    secret: str

    async def user(self, http: aiohttp.ClientSession, name: str, password: str = "correct horse") -> User:
        """Register somebody."""
        url = f"{self.address}/_synapse/admin/v1/register"
        async with http.get(url) as answer:
            nonce = (await answer.json())["nonce"]
        words = f"{nonce}\0{name}\0{password}\0notadmin".encode()
        mac = hmac.new(self.secret.encode(), words, hashlib.sha1).hexdigest()
        asked = {"nonce": nonce, "username": name, "password": password, "admin": False, "mac": mac}
        async with http.post(url, json=asked) as answer:
            made = await answer.json()
        return User(http, self.address, made["user_id"], made["access_token"])


@contextlib.contextmanager
def synapse(home: Path, *, upload_limit: str = "1M") -> Iterator[Synapse]:
    """One that lives as long as this; its files are in `home`."""
    need_synapse()
    secret = secrets.token_hex(16)
    _configure(home, secret, upload_limit)
    with (home / "out.log").open("wb") as log:
        make_key = [str(PYTHON), "-m", "synapse._scripts.generate_signing_key", "-o", "signing.key"]
        subprocess.run(make_key, cwd=home, stdout=log, stderr=log, check=True)
        run = [str(PYTHON), "-m", "synapse.app.homeserver", "-c", "homeserver.yaml"]
        process = subprocess.Popen(run, cwd=home, stdout=log, stderr=log, start_new_session=True)
    try:
        end_at = time.monotonic() + UP_S
        while not (port := _port(process)):
            assert time.monotonic() < end_at, "Synapse does not listen; out.log beside its settings says why"
            time.sleep(0.1)
        yield Synapse(f"http://127.0.0.1:{port}", secret)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _port(process: subprocess.Popen[bytes]) -> int:
    """Where it listens; 0 = not yet."""
    assert process.poll() is None, "Synapse ended; out.log beside its settings says why"
    there = psutil.Process(process.pid).net_connections("tcp")
    return next((one.laddr.port for one in there if one.status == psutil.CONN_LISTEN), 0)


def _configure(home: Path, secret: str, upload_limit: str) -> None:
    """The rates are out of the way: what they say when they are met is the fake's part."""
    quick = {"per_second": 1000, "burst_count": 1000}
    log = {"version": 1, "handlers": {"console": {"class": "logging.StreamHandler"}}}
    (home / "log.yaml").write_text(json.dumps({**log, "root": {"level": "WARNING", "handlers": ["console"]}}))
    config = {
        "server_name": NAME,
        "public_baseurl": "http://127.0.0.1/",
        "pid_file": str(home / "pid"),
        "listeners": [
            {"port": 0, "type": "http", "bind_addresses": ["127.0.0.1"], "resources": [{"names": ["client", "media"]}]}
        ],
        "database": {"name": "sqlite3", "args": {"database": str(home / "homeserver.db")}},
        "log_config": str(home / "log.yaml"),
        "media_store_path": str(home / "media"),
        "signing_key_path": str(home / "signing.key"),
        "registration_shared_secret": secret,
        "macaroon_secret_key": secrets.token_hex(16),
        "form_secret": secrets.token_hex(16),
        "trusted_key_servers": [],
        "federation_domain_whitelist": [],
        "report_stats": False,
        "max_upload_size": upload_limit,
        "bcrypt_rounds": 4,
        "rc_message": quick,
        "rc_joins": {"local": quick, "remote": quick},
        "rc_invites": {"per_room": quick, "per_user": quick, "per_issuer": quick},
        "rc_login": {"address": quick, "account": quick, "failed_attempts": quick},
    }
    (home / "homeserver.yaml").write_text(json.dumps(config))
