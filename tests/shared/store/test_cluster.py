"""Nodes of a cluster say which primary has our slot: by their answer, or by where they send us."""

from __future__ import annotations

import asyncio
import binascii
import contextlib
import re
from collections.abc import AsyncIterator, Sequence

import pytest
from arq import connections, jobs, worker

from shared.errors import RedisAway
from shared.process.resp import RespConnection
from shared.store import keys
from shared.store.client.address import Address, read_address, read_moved
from shared.store.client.cluster import NodeView, read_view
from shared.store.client.redis_client import RedisClient
from shared.store.client.scripts import load, script_names
from tests.helpers.stream_server import stream_server
from worker.arq import lease_worker


class FakeNode:
    """Answers each command about a key with `reply`, which a test changes; with None it says nothing."""

    def __init__(self, reply: str | None) -> None:
        self.reply = reply
        self.port = 0
        self.commands: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while line := await reader.readuntil(b"\r\n"):
                words = []
                for _ in range(int(line[1:])):
                    size = int((await reader.readuntil(b"\r\n"))[1:])
                    words.append((await reader.readexactly(size + 2))[:-2].decode())
                self.commands.append(words[0])
                known = {"HELLO": "*4\r\n+mode\r\n+cluster\r\n+role\r\n+master", "CLIENT": "+OK"}
                if (reply := known.get(words[0], self.reply)) is not None:
                    writer.write(f"{reply}\r\n".encode())
        writer.close()


@pytest.fixture
async def three() -> AsyncIterator[list[FakeNode]]:
    """The first one has the slot; the others send us there, one without naming the host."""
    made = [FakeNode(":0") for _ in range(3)]
    async with contextlib.AsyncExitStack() as stack:
        for one in made:
            one.port = await stack.enter_async_context(stream_server(one.serve))
        made[1].reply = f"-MOVED 545 127.0.0.1:{made[0].port}"
        made[2].reply = f"-MOVED 545 :{made[0].port}"
        yield made


def url_of(three: Sequence[FakeNode]) -> str:
    return "redis+cluster://" + ",".join(f"127.0.0.1:{one.port}" for one in three)


@pytest.fixture
async def client(three: list[FakeNode]) -> AsyncIterator[RedisClient]:
    made = RedisClient(url_of(three), timeout_s=0.3)
    yield made
    await made.close()


async def test_the_primary_of_our_slot_is_used(client: RedisClient, three: list[FakeNode]) -> None:
    """By our client and by the guardian, whichever node they ask first."""
    assert await client.command("GET", "a") == 0
    assert client.locator.is_current(Address(port=three[0].port, host="127.0.0.1"))
    assert [("GET" in one.commands) for one in three] == [True, False, False]
    connection = await asyncio.to_thread(RespConnection, url_of(three[1:]))
    assert await asyncio.to_thread(connection.command, "GET", "a") == 0
    connection.close()


async def test_what_most_nodes_say_counts_and_a_silent_one_does_not(client: RedisClient, three: list[FakeNode]) -> None:
    """A node that was cut off still believes in itself; a dead one says nothing."""
    three[2].reply = None
    assert await client.command("GET", "a") == 0
    three[0].reply, three[1].reply = "-CLUSTERDOWN The cluster is down", "-CLUSTERDOWN Hash slot not served"
    with pytest.raises(RedisAway, match="Redis cannot serve now: CLUSTERDOWN"):
        await client.command("GET", "a")
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="no node of the cluster knows a primary for slot 545"):
        await asyncio.to_thread(RespConnection, url_of(three), timeout_s=0.3)


@pytest.mark.parametrize("reply", ["-ASK 545 127.0.0.1:1", "-TRYAGAIN Multiple keys request during rehashing of slot"])
async def test_while_a_slot_is_moved_the_store_is_away(client: RedisClient, three: list[FakeNode], reply: str) -> None:
    """Key by key: callers try again; the connection is kept, for the slot is still here."""
    await client.command("GET", "a")
    three[0].reply = reply
    with pytest.raises(RedisAway):
        await client.command("GET", "a")
    three[0].reply = ":0"
    await client.command("GET", "a")
    assert three[0].commands.count("HELLO") == 2  # one that writes, one that asks


async def test_a_connection_leaves_where_the_slot_was(client: RedisClient, three: list[FakeNode]) -> None:
    """MOVED ends it, and the next call goes where the nodes say."""
    await client.command("GET", "a")
    three[1].reply, three[0].reply = ":0", f"-MOVED 545 127.0.0.1:{three[1].port}"
    three[2].reply = three[0].reply
    with pytest.raises(RedisAway, match="another server has become the primary"):
        await client.command("GET", "a")
    assert await client.command("GET", "a") == 0
    assert "GET" in three[1].commands


async def test_a_node_under_a_plain_address_says_what_to_write(three: list[FakeNode]) -> None:
    """A cluster needs its own kind of address."""
    client = RedisClient(f"redis://127.0.0.1:{three[0].port}")
    with pytest.raises(RedisAway, match=r"write redis\.url as redis\+cluster://host:6379,host:6379"):
        await client.command("PING")
    await client.close()


def test_an_address_of_a_cluster_is_read_whole() -> None:
    """All nodes have the same login and encryption."""
    read = read_address("rediss+cluster://u:p%40@a:1,b,[::1]:7?ssl_ca_certs=f")
    assert [(one.host, one.port, one.user, one.password, bool(one.tls)) for one in read.nodes] == [
        ("a", 1, "u", "p@", True), ("b", 6379, "u", "p@", True), ("::1", 7, "u", "p@", True),
    ]  # fmt: skip


@pytest.mark.parametrize("url", ["redis+cluster://a,/", "redis+cluster://a/2", "redis+cluster://a?db=1"])
def test_a_cluster_has_nodes_and_no_database(url: str) -> None:
    """Database 0 is the only one that there is."""
    with pytest.raises(ValueError, match="without a database"):
        read_address(url)


def test_a_reply_that_sends_us_elsewhere_is_read() -> None:
    """An empty host is that of the node which was asked."""
    assert read_moved("MOVED 545 a.example:7", "b") == ("a.example", 7)
    assert read_moved("MOVED 545 ::1:7", "b") == ("::1", 7)
    assert read_moved("MOVED 545 :7", "b") == ("b", 7)
    assert read_moved("CLUSTERDOWN Hash slot not served", "b") is None


NODES = """\
a1 10.0.0.1:6379@16379,one.example myself,master - 0 0 1 connected 0-5460 [545->-b2]
b2 10.0.0.2:6379@16379,two.example {flags} - 0 1 2 {link} 5461-10922
c3 10.0.0.3:6379@16379 master - 0 1 3 connected 10923-16383
d4 10.0.0.4:6379@16379 slave a1 0 1 1 connected
e5 10.0.0.5:6379@16379 master - 0 1 0 connected
"""


@pytest.mark.parametrize(
    ("flags", "link", "place", "sees"),
    [
        ("master", "connected", ("10.0.0.1", 6379), True),
        ("master", "connected", ("elsewhere", 6379), True),  # it is asked itself, whatever its name
        ("master", "connected", ("10.0.0.1", 6380), False),
        ("master", "connected", None, False),
    ],
)
def test_a_primary_tells_of_itself(flags: str, link: str, place: tuple[str, int] | None, sees: bool) -> None:
    """Those without slots and replicas have no vote."""
    assert read_view(NODES.format(flags=flags, link=link), place) == NodeView(3, True, sees)


@pytest.mark.parametrize(
    ("flags", "link", "place", "sees"),
    [
        ("master", "connected", ("10.0.0.2", 6379), True),
        ("master", "connected", ("two.example", 6379), True),
        ("master", "connected", ("10.0.0.3", 6379), False),
        ("master,fail?", "connected", ("10.0.0.2", 6379), False),
        ("master,fail", "connected", ("10.0.0.2", 6379), False),
        ("master", "disconnected", ("10.0.0.2", 6379), False),
        ("slave", "connected", ("10.0.0.2", 6379), False),
    ],
)
def test_another_node_tells_what_it_thinks_of_ours(flags: str, link: str, place: tuple[str, int], sees: bool) -> None:
    """By address or by name; one that it takes for dead, or does not reach, is not seen."""
    nodes = NODES.replace("0-5460 [545->-b2]", "5461-10922").replace("{link} 5461-10922", "{link} 0-5460")
    assert read_view(nodes.format(flags=flags, link=link), place).sees_ours is sees


def test_every_name_of_ours_has_the_hash_tag() -> None:
    """A script that touched another slot would fail on a cluster alone."""
    assert all(name.startswith(keys.PREFIX) for name in keys.FLEET)
    assert all(name.startswith(keys.PREFIX) for name, kind in keys.FAMILIES.items() if kind.type)
    assert binascii.crc_hqx(b"0ax", 0) % 16384 == keys.SLOT
    for name in script_names():
        found = re.findall(r"'(shoal:[^']*)'", load(name).source)
        assert set(found) <= {keys.PREFIX, "shoal:"}, name


def test_scripts_on_a_cluster_keep_arqs_keys_beside_ours() -> None:
    """What is written there has our hash tag; elsewhere arq's tools find their own names."""
    for name in script_names():
        assert "'arq:job" not in load(name, arq=keys.ARQ_ON_CLUSTER).source
    assert "'arq:{0ax}:job:sub:'" in load("subagents/sweep", arq=keys.ARQ_ON_CLUSTER).source
    assert "'arq:job:sub:'" in load("subagents/sweep").source


def test_arqs_own_names_can_have_a_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are constants in each of its modules."""
    modules = [vars(one) for one in (connections, jobs, worker)]
    for names in modules:
        for name, value in names.copy().items():
            if isinstance(value, str) and value.startswith("arq:"):
                monkeypatch.setitem(names, name, value)
    lease_worker._rename_keys(keys.ARQ_ON_CLUSTER)
    assert {names["job_key_prefix"] for names in modules} == {"arq:{0ax}:job:"}
    assert {names["result_key_prefix"] for names in modules} == {"arq:{0ax}:result:"}
    assert modules[1]["abort_jobs_ss"] == "arq:{0ax}:abort"
