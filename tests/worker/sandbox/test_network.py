"""A command with `tools.exec_network`: it reaches the web through its proxy, and nothing else in any way."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from shared.confinement import landlock, seccomp
from shared.guards.addresses import WebPolicy
from tests.helpers.certificates import authority
from tests.helpers.need import need
from tests.helpers.runner import RunnerProcess
from tests.helpers.stream_server import stream_server
from tests.helpers.web_server import WebServer, reply, web_server
from tests.worker.sandbox.conftest import tier
from tests.worker.sandbox.test_escapes import MIB, command, left, python
from tests.worker.sandbox.test_probe import settings
from tests.worker.sandbox.test_seccomp import number_of
from tests.worker.sandbox.test_users import tried
from worker.sandbox.bubblewrap import Bubblewrap
from worker.sandbox.command import Finished, SandboxBroken
from worker.sandbox.probe import SandboxOff, choose_sandbox, open_runner

pytestmark = pytest.mark.timeout(180)

ASK = python(
    "import ssl, sys, urllib.request as web",
    "own = ssl._create_unverified_context()",
    "try: print(web.urlopen('{url}', context=own, timeout=20).read().decode())",
    "except OSError as exc: sys.exit(str(exc))",
)


@pytest.fixture
async def web() -> AsyncIterator[WebServer]:
    async with web_server() as server:
        server.pages["/page"] = reply("the page")
        yield server


async def run(folder: Path, line: str, *allow: str) -> Finished:
    await tier("bubblewrap")
    sandbox = await Bubblewrap.find(WebPolicy.from_settings(allow))
    return await sandbox.run(command(folder, line, network=True))


async def test_programs_find_the_proxy_by_themselves(folder: Path, web: WebServer) -> None:
    """Python and curl need no option for it."""
    line = ASK.replace("{url}", web.url("/page")) + f"\n command -v curl >/dev/null && curl -s {web.url('/page')}"
    finished = await run(folder, line, f"127.0.0.1:{web.port}")
    assert finished.output.startswith(b"the page\n"), finished
    assert all(asked.target == "/page" for asked in web.asked)


async def test_a_tunnel_for_tls_works(folder: Path, tmp_path: Path) -> None:
    """The bytes of https:// are the command's own business."""
    authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecret")
        await writer.drain()

    async with stream_server(handle, ssl=context) as port:
        finished = await run(folder, ASK.replace("{url}", f"https://127.0.0.1:{port}/"), f"127.0.0.1:{port}")
    assert finished.output == b"secret\n", finished


# Each would end with 0 if it came through.
DIRECT = {
    "Valkey of the machine": "exec 3<>/dev/tcp/127.0.0.1/{redis} && echo PING >&3 && timeout 5 head -c 5 <&3",
    "Valkey through the proxy": "{ask http://127.0.0.1:{redis}/}",
    "a tunnel to Valkey": "{ask https://127.0.0.1:{redis}/}",
    "another spelling of it": "{ask http://127.1:{redis}/}",
    "a server of the machine": "timeout 5 bash -c ': </dev/tcp/127.0.0.1/{port}'",
    "its address in the network": "timeout 5 bash -c ': </dev/tcp/{own}/{port}'",
    "metadata": "timeout 5 bash -c ': </dev/tcp/169.254.169.254/80'",
    "metadata through the proxy": "{ask http://169.254.169.254/latest/meta-data/}",
    "a name server": "timeout 5 bash -c 'echo x >/dev/udp/127.0.0.53/53'",
    "an abstract socket of the machine": python(
        "import socket", "s = socket.socket(socket.AF_UNIX)", "s.connect('\\0{abstract}')"
    ),
    "a half of a pair, as a way to it": python(
        "import socket", "s, _ = socket.socketpair()", "s.connect('\\0{abstract}')"
    ),
    "a server of its own": python("import socket", "socket.create_server(('127.0.0.1', 0))"),
    "listening without a name": python("import socket", "socket.socket().listen()"),
    "a device of its own": "ip link add x type dummy",
    "another network": "unshare -Urn true",
    "the network of its first process": "nsenter -t 1 -n true",
}


@pytest.mark.parametrize("attempt", DIRECT)
async def test_nothing_but_the_proxy_is_in_reach(folder: Path, redis_url: str, attempt: str) -> None:
    """The machine's loopback, its addresses, its abstract sockets, other networks: none of them is there."""
    redis = urlsplit(redis_url).port
    abstract = f"shoal-test-{os.getpid()}"
    line = DIRECT[attempt]
    if line.startswith("{ask "):
        line = ASK.replace("{url}", line[5:-1])
    with socket.create_server(("0.0.0.0", 0)) as server, socket.socket(socket.AF_UNIX) as hidden:
        hidden.bind(f"\0{abstract}")
        hidden.listen()
        given = {"redis": redis, "port": server.getsockname()[1], "abstract": abstract, "own": own_address()}
        for name, value in given.items():
            line = line.replace(f"{{{name}}}", str(value))
        finished = await run(folder, line)
        for one in (server, hidden):
            one.setblocking(False)
            with pytest.raises(BlockingIOError):
                one.accept()
    assert finished.ended == "exit", finished
    assert finished.code != 0, finished.output
    assert b"PONG" not in finished.output


def own_address() -> str:
    """An address of this machine that is not loopback; asking for a route sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("198.51.100.1", 9))
        except OSError:
            return "127.0.0.2"
        return str(asking.getsockname()[0])


FAMILIES = {
    "unix": (1, 1, 0), "netlink": (16, 3, 0), "packet": (17, 3, 0), "alg": (38, 5, 0), "vsock": (40, 1, 0),
    "xdp": (44, 3, 0), "datagram": (2, 2, 0), "datagram 6": (10, 2, 0), "raw": (2, 3, 6), "ping": (2, 2, 1),
    "multipath TCP": (2, 1, 262), "SCTP": (2, 1, 132), "TCP": (2, 1, 0), "TCP 6": (10, 1, 6),
}  # fmt: skip
CALLS = (
    *("io_uring_setup", "userfaultfd", "keyctl", "add_key", "request_key", "memfd_create", "bpf", "ptrace"),
    *("shmget", "semget", "msgget", "mq_open", "bind", "listen", "accept4", "unshare", "setns", "pidfd_getfd"),
)


async def test_the_filter_stays(folder: Path) -> None:
    """Each call and each kind of socket that a command without a network is refused, but for TCP."""
    machine = platform.machine()
    need("seccomp", found=machine in seccomp.ARCHES, install="Linux on x86-64 or arm64")
    numbers = {name: number_of(name, seccomp.ARCHES[machine].column) for name in CALLS}
    script = python(
        "import ctypes, json, socket",
        "libc = ctypes.CDLL(None, use_errno=True)",
        "def call(number):",
        "    return ctypes.get_errno() if libc.syscall(number, 0, 0, 0, 0, 0, 0) < 0 else 0",
        "def make(kind):",
        "    try: socket.socket(*kind).close()",
        "    except OSError as exc: return exc.errno",
        f"calls = {{name: call(number) for name, number in {numbers!r}.items()}}",
        f"print(json.dumps([calls, {{name: make(kind) for name, kind in {FAMILIES!r}.items()}}]))",
    )
    finished = await run(folder, f"grep Seccomp: /proc/self/status; {script}")
    status, _, rest = finished.output.decode().partition("\n")
    assert status.split() == ["Seccomp:", "2"]
    calls, families = json.loads(rest)
    assert calls == dict.fromkeys(CALLS, 1)
    assert families == {name: None if name in ("TCP", "TCP 6") else 1 for name in FAMILIES}


async def test_the_network_ends_with_the_command(folder: Path, web: WebServer) -> None:
    """A connection that a command leaves open is closed, and no handle of it stays in the worker."""
    before = len(os.listdir("/proc/self/fd"))
    line = (
        f"exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT 127.0.0.1:{web.port} HTTP/1.1\\r\\n\\r\\n' >&3; head -1 <&3"
    )
    finished = await run(folder, f"setsid -f sleep 4321; {line}", f"127.0.0.1:{web.port}")
    assert finished.output.strip() == b"HTTP/1.1 200 Connection established"
    assert left("4321") == []
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # a pool for looking names up may have started


async def test_bytes_on_their_way_take_little_memory_of_the_kernel(folder: Path) -> None:
    """200 connections into a server that reads nothing: what is not counted is small, on both sides of the proxy."""
    closing = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await closing.wait()

    script = python(
        "import select, socket",
        "poll, sent, open = select.poll(), 0, {}",
        "for _ in range(200):",
        "    one = socket.socket()",
        "    one.setblocking(False)",
        "    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)",
        "    one.connect_ex(('127.0.0.1', 3128))",
        "    open[one.fileno()] = (one, b'CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\n')",
        "    poll.register(one, select.POLLOUT)",
        "while ready := poll.poll(1000):",
        "    for fd, _ in ready:",
        "        one, head = open[fd]",
        "        try: sent += one.send(head or bytes(65536))",
        "        except OSError: poll.unregister(fd)",
        "        open[fd] = (one, b'')",
        "print(sent)",
    )
    async with stream_server(handle) as port:
        finished = await run(folder, script.replace("{port}", str(port)), f"127.0.0.1:{port}")
        closing.set()
    assert 0 < int(finished.output) <= 64 * MIB, finished


async def test_no_descriptor_of_the_worker_is_inside(folder: Path) -> None:
    """Neither the listener nor the channel that it went out through."""
    there = ("def there(fd):", "    try: os.fstat(fd)", "    except OSError: return False", "    return True")
    finished = await run(folder, python("import os", *there, "print(list(filter(there, range(1024))))"))
    assert finished.output == b"[0, 1, 2]\n", finished.output


async def test_a_network_that_cannot_be_made_is_an_error_and_not_another_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is run then; never does a command get the machine's network instead."""
    await tier("bubblewrap")
    sandbox = await Bubblewrap.find()
    monkeypatch.setattr("worker.sandbox.network.PROXY_PORT", -1)
    with pytest.raises(SandboxBroken, match="bubblewrap did not start"):
        await sandbox.run(command(folder, "touch ran", network=True))
    assert not (folder / "ran").exists()


async def test_an_ordinary_user_and_root_without_privileges_make_networks(folder: Path) -> None:
    """The namespace then belongs to a user namespace, in which the user is alone."""
    need("root", found=os.geteuid() == 0, install="run the tests as root for this one")
    program = shutil.which("python3", path="/usr/local/bin:/usr/bin")
    need("python3 for others", found=program is not None)
    with tempfile.TemporaryDirectory(prefix="shoal-user-") as top:
        os.chown(top, 1001, 1001)
        found = await asyncio.to_thread(
            tried, ["--uid", "1001", "--gid", "1001", "tests.helpers.try_exec", "network", top, str(program)]
        )
    assert found.get("output") == "lo:\nHTTP/1.1 403 blocked address 127.0.0.1 (loopback). Only the public web", found


async def test_a_runner_is_not_chosen_for_commands_with_a_network(folder: Path) -> None:
    """Its walls know ports and not addresses; the reason says what to set, also in the doctor."""
    need("Landlock", found=landlock.abi() >= landlock.NEEDED_ABI, install="Linux 6.2 or newer with Landlock on")
    runner = RunnerProcess(WORKSPACE__ROOT=str(folder.parent))
    try:
        await runner.ready()
        given = settings(folder, exec_network=True, exec_runner=str(runner.socket))
        found = await choose_sandbox(given, [("runner", open_runner)])
    finally:
        runner.close()
    assert isinstance(found, SandboxOff)
    assert "a runner cannot keep a command's network to the public web; set tools.exec_network = false" in found.reason


def test_landlock_alone_would_not_hold(folder: Path) -> None:
    """The reason why a runner is refused: a rule for the proxy's port is a rule for that port of every address."""
    need("Landlock", found=landlock.abi() >= 4, install="Linux 6.7 or newer with Landlock on")
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        port = proxy.getsockname()[1]
        with socket.create_server(("127.0.0.2", port)):
            ran = subprocess.run(
                [sys.executable, "-c", ONE_PORT, str(port)], capture_output=True, text=True, check=False
            )
    assert ran.stdout.split() == ["reached", "127.0.0.2"], ran.stderr


ONE_PORT = """
import ctypes, socket, struct, sys
libc, port = ctypes.CDLL(None, use_errno=True), int(sys.argv[1])
rules = libc.syscall(444, struct.pack("=QQ", 0, 3), ctypes.c_size_t(16), 0)
assert libc.syscall(445, rules, 2, struct.pack("=QQ", 2, port), 0) == 0
libc.prctl(38, 1, 0, 0, 0)
assert libc.syscall(446, rules, 0) == 0
socket.create_connection(("127.0.0.2", port))
print("reached 127.0.0.2")
"""
