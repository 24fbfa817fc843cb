"""Redis as the manifests have it: TLS, and a user for each role that may do what the role does and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.commands.registry import OWN
from shared.errors import RedisAway
from shared.messages.outbound import OutboundMessage
from shared.process.resp import RespConnection, RespError
from shared.store import keys
from shared.store.client.connection import ReplyError
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.deliveries import OUTBOX_CAP, Cleared, DeliveryQueue, RateKey
from shared.store.delivery.fanout import Fanout
from shared.store.delivery.listener_lease import ListenerLease, ListenerLock
from shared.store.sessions.session import Sessions, SessionState
from tests.deploy import users_acl
from tests.gateway.harness import TOKENS, Client, answers, client, free_port
from tests.helpers.build import message
from tests.helpers.certificates import authority
from tests.helpers.monitoring import fetch
from tests.helpers.need import need
from tests.helpers.processes import Process
from tests.helpers.reach import reach
from tests.helpers.redis_server import ROLES, RedisServer, redis_server
from tests.helpers.wait import eventually

ROOT = Path(__file__).parents[2]

FORBIDDEN = (
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("CONFIG", "SET", "appendonly", "no"),
    ("KEYS", "*"),
    ("DEBUG", "SLEEP", "0"),
    ("SHUTDOWN", "NOSAVE"),
    ("REPLICAOF", "NO", "ONE"),
    ("ACL", "LIST"),
    ("ACL", "SETUSER", "worker", "+@all"),
    ("SCRIPT", "FLUSH"),
    ("SCRIPT", "LOAD", "return 1"),
    ("FUNCTION", "KILL"),
    ("DEL", "shoal:{0ax}:audit"),
    ("XTRIM", "shoal:{0ax}:audit", "MAXLEN", "0"),
    ("XDEL", "shoal:{0ax}:audit", "1-1"),
    ("PEXPIRE", "shoal:{0ax}:audit", "1"),
    ("RENAME", "shoal:{0ax}:audit", "shoal:{0ax}:idle"),
    ("SET", "shoal:{0ax}:audit", "x"),
    ("EVAL", "return redis.call('DEL', 'shoal:{0ax}:audit')", "0"),
    ("EVAL", "return redis.call('XTRIM', KEYS[1], 'MAXLEN', 0)", "1", "shoal:{0ax}:audit"),
    ("FUNCTION", "FLUSH"),
    ("CLIENT", "KILL", "TYPE", "normal"),
    ("CLIENT", "LIST"),
    ("MONITOR",),
    ("SAVE",),
    ("BGREWRITEAOF",),
    ("SWAPDB", "0", "1"),
    ("SELECT", "1"),
    ("MIGRATE", "127.0.0.1", "1", "k", "0", "1"),
    ("MODULE", "LIST"),
    ("SLOWLOG", "GET"),
    ("GET", "somebody-elses"),
    ("EVAL", "return redis.call('GET', 'somebody-elses')", "0"),
    ("EVAL", "return redis.call('FLUSHALL')", "0"),
    ("PUBLISH", "somebody-elses", "x"),
)
ONLY = {
    "gateway": (
        ("GET", "shoal:{0ax}:dead"),
        ("SCAN", "0"),
        ("BLPOP", "shoal:{0ax}:wake:turns", "1"),
        ("CONFIG", "GET", "*"),
    ),
    "worker": (("SCAN", "0"), ("DBSIZE",), ("GET", "shoal:{0ax}:brake:a")),
    "console": (("BLPOP", "shoal:{0ax}:wake:turns", "1"), ("SUBSCRIBE", "shoal:{0ax}:live:a")),
}
"""What another role may, and this one not."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    need("redis-server")
    with redis_server(tmp_path_factory.mktemp("redis")) as running:
        yield running


def refused(server: RedisServer) -> list[str]:
    """What the server has refused to anybody, in words."""
    with server.admin() as admin:
        log = admin.command("ACL", "LOG")
    assert isinstance(log, list)
    found = []
    for entry in log:
        assert isinstance(entry, list)
        words = [word.decode() if isinstance(word, bytes) else str(word) for word in entry]
        fields = dict(zip(words[::2], words[1::2], strict=True))
        found.append(" ".join(fields[name] for name in ("username", "reason", "context", "object")))
    return found


@pytest.mark.timeout(300)
async def test_a_fleet_answers_with_the_rights_of_its_roles(server: RedisServer, tmp_path: Path) -> None:
    """Gateway, worker and console over TLS as their users: a message goes in, a turn commits, every command of a chat
    and of the console does its work, and nothing that they need was refused."""
    with server.admin() as admin:
        admin.command("ACL", "LOG", "RESET")
    port = free_port()
    web = {"SHOAL_WEB__PORT": str(port), "SHOAL_WEB__TOKENS__OWNER": TOKENS["owner"]}
    metrics = {"SHOAL_METRICS__PORT": str(free_port())}
    common = {"SHOAL_DATA__DIR": str(tmp_path), "SHOAL_MEMORY__IDLE_S": "0", "SHOAL_MODEL__REQUESTS_PER_MINUTE": "600"}
    fleet = [
        Process("gateway", env={**server.environment("gateway"), **web, **common}, log=tmp_path / "gateway.log"),
        Process("worker", env={**server.environment("worker"), **common, **metrics}, log=tmp_path / "worker.log"),
    ]
    try:
        address = f"127.0.0.1:{port}"
        await eventually(lambda: answers(address), within_s=60)
        async with client(address) as person:
            await person.send("resume", chat="a", after=0)
            await person.next("resumed", chat="a")
            for text in ("My name is Ada.", "What is 17 * 23?", "Ask a subagent to calculate 37 * 91"):
                await answered(person, text)
            known = await asyncio.to_thread(fetch, f"http://127.0.0.1:{metrics['SHOAL_METRICS__PORT']}/metrics")
            assert "\nshoal_redis_loss_window_seconds 0.0\n" in known, "appendfsync always, and it may know"
            for command in OWN:
                await answered(person, f"/{command}")
            await person.send("chats")
            await person.next("chats")
        console = {**server.environment("console"), **common}
        reading = ("status", "top", "doctor --probe", "dead list", "session list", "session show web:owner/a")
        for words in (*reading, "jobs list"):
            code, message = await shoal(*words.split(), env=console)
            assert "NOPERM" not in message, message
            assert code in (0, 1), message
        assert (await shoal("session", "set", "web:owner/a", "customer=4711", env=console))[0] == 0
        exported = tmp_path / "a.json"
        assert (await shoal("session", "export", "web:owner/a", "-o", str(exported), env=console))[0] == 0
        assert (await shoal("session", "forget", "web:owner/a", "--yes", env=console))[0] == 0
        assert (await shoal("session", "import", str(exported), env=console))[0] == 0
        for process in fleet:
            process.terminate()
        assert [await asyncio.to_thread(process.wait, 60) for process in fleet] == [0, 0]
    finally:
        for process in fleet:
            if process.alive:
                process.kill_group()
    assert refused(server) == []


async def answered(person: Client, text: str) -> None:
    """Say something, and wait for the reply to it."""
    id = (await person.say("a", text))["id"]
    async with asyncio.timeout(60):
        while not any(id in frame.get("in_reply_to", ()) for frame in person.seen):
            await person.next("reply", chat="a")


async def shoal(*words: str, env: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of the console."""
    log = Path(env["SHOAL_DATA__DIR"]) / "console.log"
    log.unlink(missing_ok=True)
    process = Process("console", *words, env=env, log=log)
    return await asyncio.to_thread(process.wait, 60), process.log


@pytest.mark.parametrize("words", FORBIDDEN, ids=" ".join)
@pytest.mark.parametrize("role", ROLES)
def test_no_role_may_do_what_harms_all(server: RedisServer, role: str, words: tuple[str, ...]) -> None:
    """Row 19: not flush, not configure, not list keys, not debug, not reach a key or a channel that is not Shoal's."""
    connection = RespConnection(server.url(role))
    with contextlib.closing(connection), pytest.raises(RespError, match=r"NOPERM|The user executing the script can't"):
        connection.command(*words)


@pytest.mark.parametrize(("role", "words"), [(role, words) for role in ROLES for words in ONLY[role]])
def test_a_role_may_not_do_what_is_another_ones(server: RedisServer, role: str, words: tuple[str, ...]) -> None:
    """A gateway reads no dead letters; nobody but the console walks through all keys."""
    connection = RespConnection(server.url(role))
    with contextlib.closing(connection), pytest.raises(RespError, match="NOPERM"):
        connection.command(*words)


async def test_a_gateway_sets_aside_what_a_platform_did_not_take(server: RedisServer) -> None:
    """All of a delivery with its rights. Dead letters it may write, and not read."""
    with server.admin() as admin:
        admin.command("FLUSHALL")
        admin.command("ACL", "LOG", "RESET")
    redis = RedisClient(server.url("gateway"))
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(redis.close)
        sessions, deliveries = Sessions(redis), DeliveryQueue(redis, "telegram", lease_s=30)
        for n in range(OUTBOX_CAP + 1):
            sent = message("/help", chat="42", channel="telegram")
            await sessions.answer_command(sent, OutboundMessage(content=f"{n}", turn=0, kind="command"), SessionState())
        held, _ = await deliveries.acquire(1)
        assert refused(server) == []
        assert await deliveries.begin_post(held[0], 1, 0, [RateKey("bot", 30, 30)]) == Cleared(unclear=False)
        assert await deliveries.finish_post(held[0], 1, 0, last=True, id="x")
        assert await deliveries.give_up_line(held[0], 3, "blocked", drop_all=True)
        await deliveries.requeue(held[0], 0, unclear=False)
        lock = ListenerLock(redis, "telegram", lease_s=30)
        holding = await lock.acquire()
        assert isinstance(holding, ListenerLease)
        await lock.release(holding)
        assert refused(server) == []
        with pytest.raises(ReplyError, match="no permissions"):
            await redis.command("XRANGE", keys.DEAD, "-", "+")
    with server.admin() as admin:
        assert admin.command("XLEN", keys.DEAD) == 2


@pytest.mark.parametrize("role", [*ROLES, "default"])
def test_without_the_right_password_nobody_comes_in(server: RedisServer, role: str) -> None:
    """Neither with none nor with a wrong one; the user that a server has by itself is off."""
    query = f"ssl_ca_certs={server.ca_file}"
    with contextlib.closing(RespConnection(f"rediss://127.0.0.1:{server.port}/0?{query}")) as nobody:
        with pytest.raises(RespError, match="NOAUTH"):
            nobody.command("PING")
    with pytest.raises(RespError, match="WRONGPASS"):
        RespConnection(f"rediss://{role}:wrong@127.0.0.1:{server.port}/0?{query}")


def test_the_probe_may_ask_whether_the_server_is_there_and_nothing_else(server: RedisServer) -> None:
    """It needs no secret."""
    url = f"rediss://health:x@127.0.0.1:{server.port}/0?ssl_ca_certs={server.ca_file}"
    with contextlib.closing(RespConnection(url)) as probe:
        assert probe.command("PING") == b"PONG"
        for words in (("GET", "shoal:{0ax}:dead"), ("INFO",), ("PUBLISH", "shoal:{0ax}:control", "x")):
            with pytest.raises(RespError, match="NOPERM"):
                probe.command(*words)


async def test_a_certificate_of_another_authority_or_for_another_name_is_refused(
    server: RedisServer, tmp_path: Path
) -> None:
    """Both clients: what signed it must be in `redis.ca_file`, and it must be for the host that was asked for."""
    stranger = authority(tmp_path)
    for url in (server.url("worker", ca_file=stranger), server.url("worker", host="localhost")):
        with pytest.raises(ssl.SSLCertVerificationError):
            RespConnection(url)
        redis = RedisClient(url)
        with pytest.raises(RedisAway):
            await redis.command("PING")
        await redis.close()


async def test_every_kind_of_connection_is_encrypted(server: RedisServer) -> None:
    """The pool, a blocking one and pub/sub; to a server that speaks nothing else."""
    redis = RedisClient(server.url("worker"))
    blocking = redis.blocking(1)
    assert await redis.command("PING") == b"PONG"
    assert await blocking.commands([("BLPOP", "shoal:{0ax}:wake:nobody", 0.01)]) == [None]
    connected = asyncio.Event()

    async def ready() -> None:
        connected.set()

    fanout = Fanout(redis, on_gap=ready)
    await fanout.follow_chat("web:owner/a", lambda _: None)
    listening = asyncio.create_task(fanout.run())
    async with asyncio.timeout(30):
        await connected.wait()
    listening.cancel()
    await blocking.close()
    await redis.close()


def test_a_role_may_do_what_its_code_does_and_no_more(redis_url: str) -> None:
    """Read from the source: its commands, its keys. When this fails: `python -m tests.deploy.users_acl`."""
    assert users_acl.FILE.read_text() == users_acl.text(users_acl.known_commands(redis_url))


def test_what_a_gateway_says_is_read_from_the_source() -> None:
    """A reading that finds too little would take rights away; one that finds everything would give them all."""
    gateway, worker = reach("gateway"), reach("worker")
    assert {"turns/ingest", "fleet/announce", "turns/withdraw"} <= gateway.scripts
    assert {"turns/acquire", "turns/commit", "turns/take"} <= worker.scripts - gateway.scripts
    assert {"shoal:{0ax}:inbox:*", "shoal:{0ax}:chats:*", "shoal:{0ax}:brake:*"} <= gateway.keys
    assert "shoal:{0ax}:crashed:*" in worker.keys - gateway.keys
    assert {"shoal:{0ax}:dead", "shoal:{0ax}:outqueue:*"} <= gateway.keys & worker.keys
    assert {"EVALSHA", "XADD", "XRANGE"} <= gateway.commands
    assert "BLPOP" in worker.commands - gateway.commands


def test_old_and_new_passwords_are_good_while_one_is_changed(tmp_path: Path) -> None:
    """A rotation needs no moment in which nobody comes in."""
    for role in ROLES:
        (tmp_path / role).write_text("new\n")
    (tmp_path / "worker.old").write_text("old")
    result = render(tmp_path)
    assert result.returncode == 0
    lines = {line.split()[1]: line for line in result.stdout.splitlines()}
    assert lines["worker"].count("#") == 2
    assert lines["gateway"].count("#") == 1
    assert "\nnew" not in result.stdout
    assert ">" not in result.stdout


@pytest.mark.parametrize("content", [None, ""])
def test_a_role_without_a_password_stops_the_server_from_starting(tmp_path: Path, content: str | None) -> None:
    """Rather than with a user that anybody can be."""
    for role in ROLES:
        (tmp_path / role).write_text("x")
    (tmp_path / "console").unlink()
    if content is not None:
        (tmp_path / "console").write_text(content)
    result = render(tmp_path)
    assert result.returncode != 0
    assert "write the password of console into it" in result.stderr


def test_admin_and_backup_are_users_only_with_a_password(tmp_path: Path) -> None:
    """An empty file is none; backup may read everything and change nothing. So are those of servers and Sentinels."""
    for role in (*ROLES, "admin"):
        (tmp_path / role).write_text("x")
    (tmp_path / "backup").write_text("")
    lines = {line.split()[1]: line for line in render(tmp_path).stdout.splitlines()}
    assert lines.keys() == {*ROLES, "default", "health", "admin"}
    (tmp_path / "admin").unlink()
    (tmp_path / "backup").write_text("x")
    lines = {line.split()[1]: line for line in render(tmp_path).stdout.splitlines()}
    assert "admin" not in lines
    assert lines["backup"].endswith(" resetchannels -@all +ping +psync +replconf +sync")


def render(secrets: Path) -> subprocess.CompletedProcess[str]:
    """What `render-users` says."""
    folder = ROOT / "deploy" / "redis"
    return subprocess.run(
        [folder / "render-users", folder / "users.acl", secrets], capture_output=True, text=True, check=False
    )
