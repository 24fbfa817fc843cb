"""Everything behind a real squid: models by both ways, web tools, an MCP server, every chat platform, traces. A trace
of system calls shows each connection of the gateway and of the workers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from tests.contracts.channels.bench import ChannelBench, PersonAction, all_benches
from tests.contracts.channels.stage import toml
from tests.gateway.harness import free_port
from tests.helpers.certificates import authority
from tests.helpers.egress_proxy import pipe_both
from tests.helpers.need import need
from tests.helpers.openai_answer import Answer, Call
from tests.helpers.openai_server import ScriptedOpenAI
from tests.helpers.otlp_server import collector
from tests.helpers.processes import ROOT
from tests.helpers.squid import squid
from tests.helpers.stream_server import stream_server
from tests.helpers.wait import eventually
from tests.helpers.web_server import reply, web_server
from tests.worker.mcp.peers import HttpPeer

BENCHES: Final = (
    "discord, exclusive",
    "email, exclusive",
    "feishu, socket",
    "matrix, exclusive",
    "slack, socket",
    "telegram, exclusive",
    "whatsapp, webhook",
)
MODELS, PAGES = "models.shoal.example", "pages.shoal.example"
"""Names that squid alone knows."""

_CONNECTED: Final = re.compile(r"connect\(\d+<(\w+)[^>]*>, \{sa_family=AF_INET6?, sin6?_port=htons\((\d+)\)")
LONG_S: Final = 90.0


class Traced:
    """`python -m ...` under strace; `connections` are the ports that it and its children connected to by TCP."""

    def __init__(self, module: str, *args: str, env: dict[str, str], folder: Path, number: int) -> None:
        self._trace = folder / f"{module}-{number}.trace"
        self._log = folder / f"{module}-{number}.log"
        # -D: strace is a grandchild, so that signals reach the process itself.
        strace = ["strace", "-D", "-f", "-qq", "-yy", "--seccomp-bpf", "-e", "trace=connect", "-o", str(self._trace)]
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(
                [*strace, sys.executable, "-m", module, *args],
                cwd=ROOT,
                env=env,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    @property
    def connections(self) -> list[int]:
        return [int(port) for kind, port in _CONNECTED.findall(self._trace.read_text()) if kind.startswith("TCP")]

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(60)


def can_trace() -> bool:
    """Whether strace is there and may look at a process."""
    if shutil.which("strace") is None:
        return False
    tried = subprocess.run(
        ["strace", "-f", "--seccomp-bpf", "-e", "trace=connect", "true"], capture_output=True, check=False
    )
    return tried.returncode == 0


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[list[ChannelBench]]:
    """Every platform, in its usual run mode."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(all_benches()[name]()) for name in BENCHES]


async def test_nothing_of_a_whole_installation_goes_past_squid(redis_url: str, tmp_path: Path) -> None:
    """A message in every platform, answered by the direct client, once after web_fetch and a tool of an MCP server;
    then one answered by LiteLLM. Every TCP connection is one to squid or to Redis. The name of the model's server is
    known to squid alone."""
    need("strace", found=can_trace())
    hooks, peer = free_port(), HttpPeer(tmp_path, free_port())
    await peer.start()
    try:
        ca_file = authority(tmp_path / "tls", address=MODELS)
        with ScriptedOpenAI(in_thread=True) as model, collector() as traces:
            async with (
                squid(MODELS, PAGES) as proxy,
                web_server() as web,
                opened() as benches,
                encrypted(model.port, tmp_path / "tls") as models_port,
            ):
                web.pages["/page"] = reply("the ponds are deep")
                page = web.url("/page", PAGES)
                model.script(
                    Answer(
                        match="^tools",
                        calls=[Call("web_fetch", json.dumps({"url": page})), Call("mcp_peer_add", '{"a": 40, "b": 2}')],
                    ),
                    Answer(match="^tools", role="tool", text="all tools done"),
                )
                tables: dict[str, Any] = {
                    **{f"channels.{bench.name}": bench.table() for bench in benches},
                    "network": {"proxy": proxy.url, "no_proxy": [], "ca_file": str(ca_file)},
                    "redis": {"url": redis_url},
                    "data": {"dir": str(tmp_path)},
                    "hooks": {"port": hooks},
                    "metrics": {"port": 0},
                    "log": {"format": "json"},
                    "worker": {"lease_s": 60},
                    "tools": {"exec": False, "web_allow": [f"{PAGES}:{web.port}"]},
                    "mcp.peer": {"url": peer.url, "safety": "read_only"},
                    "tracing": {"endpoint": traces.address},
                }
                fleet = Fleet(tables, f"https://{MODELS}:{models_port}/v1", tmp_path)
                try:
                    gateway = fleet.start("gateway", *(bench.name for bench in benches))
                    worker = fleet.start("worker", client="direct")
                    await asyncio.gather(*(converse(bench, hooks, "hello", "echo: hello") for bench in benches))
                    await converse(benches[5], hooks, "tools", "all tools done", chat=1)
                    await asyncio.to_thread(worker.end)
                    other = fleet.start("worker", client="litellm")
                    await converse(benches[5], hooks, "again", "echo: again", chat=2)
                    await eventually(lambda: traces.named("deliver"), within_s=LONG_S, what="traces")
                finally:
                    await asyncio.to_thread(fleet.end)
                served = proxy.served()
    finally:
        peer.kill()
    allowed = {proxy.port, urlsplit(redis_url).port}
    for process in (gateway, worker, other):
        assert proxy.port in process.connections
        assert [port for port in process.connections if port not in allowed] == []
    assert len([one for one in served if f"CONNECT {MODELS}:{models_port}" in one]) >= 2
    for target in (f"GET {page}", f"POST {peer.url}", f"POST {traces.address}/v1/traces"):
        assert any(target in one for one in served), target
    assert not [one for one in served if one.startswith("407")]


@contextlib.asynccontextmanager
async def encrypted(port: int, certificates: Path) -> AsyncIterator[int]:
    """The port of a server that adds TLS to the one on `port`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.crt", certificates / "server.key")

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await pipe_both(reader, writer, *await asyncio.open_connection("127.0.0.1", port))

    async with stream_server(pass_on, ssl=context) as outer:
        yield outer


class Fleet:
    """Processes with the same settings."""

    def __init__(self, tables: dict[str, Any], api_base: str, folder: Path) -> None:
        self._file, self._folder, self._api_base = folder / "shoal.toml", folder, api_base
        self._file.write_text(toml(tables))
        self._started: list[Traced] = []

    def start(self, module: str, *args: str, client: str = "auto") -> Traced:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
        own = {
            "SHOAL_CONFIG": str(self._file),
            "SHOAL_MODEL__NAME": "openai/scripted",
            "SHOAL_MODEL__API_BASE": self._api_base,
            "SHOAL_MODEL__API_KEY": "none",
            "SHOAL_MODEL__CLIENT": client,
        }
        number = len(self._started)
        made = Traced(module, *args, env={**clean, **own}, folder=self._folder, number=number)
        self._started.append(made)
        return made

    def end(self) -> None:
        for process in self._started:
            process.end()


async def converse(bench: ChannelBench, hooks: int, text: str, answer: str, *, chat: int = 0) -> None:
    """A person says something and reads the answer."""
    where = bench.chat(chat)
    action = PersonAction(chat=where, text=text, id=f"{text}-{chat}")

    async def is_sent() -> bool:
        if bench.run_mode != "webhook":
            await bench.tell(action)
            return True
        request = bench.hook(action)
        url = f"http://127.0.0.1:{hooks}/hooks/{bench.name}"
        async with aiohttp.ClientSession() as http:
            with contextlib.suppress(aiohttp.ClientError):
                async with http.post(url, headers=request.headers, data=request.body) as response:
                    return response.status == 200
        return False

    def seen() -> bool:
        found = [one.text for one in bench.shown(where)]
        assert found[-1:] == [answer], f"{bench.name} shows {found!r}"
        return True

    if bench.run_mode != "webhook":
        await eventually(lambda: bench.listeners() > 0, within_s=LONG_S, what=f"{bench.name} to listen")
    await eventually(is_sent, within_s=LONG_S, every_s=0.3, what=f"{bench.name} to take a message")
    await eventually(seen, within_s=LONG_S, what=f"{answer!r} in {bench.name}")
