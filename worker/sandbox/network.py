"""The network of a command: a namespace of its own, from which one proxy leads out.

The command's only peer is the proxy, on the loopback of its namespace. The proxy runs in the
worker and keeps to the addresses that web_fetch may reach (see worker/guards/proxy.py)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec

from shared.guards.addresses import WebPolicy
from shared.guards.fetch import LookUp, system_look_up
from shared.tasks import cancel_all
from worker.guards.proxy import CommandProxy
from worker.sandbox import network_namespace

PROXY_PORT: Final = 3128
_PROXY: Final = f"http://127.0.0.1:{PROXY_PORT}"
# Nothing is reached past the proxy: a command cannot even listen on its own loopback.
_NAMES: Final = {"http_proxy": _PROXY, "https_proxy": _PROXY, "all_proxy": _PROXY, "no_proxy": ""}
# Programs disagree about the spelling; curl reads `http_proxy` in lower case only.
PROXY_ENVIRONMENT: Final = {**_NAMES, **{name.upper(): value for name, value in _NAMES.items()}}


class NetworkStart(msgspec.Struct, frozen=True):
    """The words before a program that put it into the namespace, and the handle they need."""

    argv: tuple[str, ...]
    handle: int


class CommandNetwork:
    """Opens networks of commands under one policy."""

    def __init__(self, policy: WebPolicy, look_up: LookUp | None = None) -> None:
        self._policy = policy
        self._look_up = look_up or system_look_up()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[NetworkStart]:
        """Serve one command's network until the block ends; then all of its connections end."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            serving = asyncio.create_task(self._serve(ours))
            # -I and -S: nothing of the worker's environment or folder, and a quick start.
            python = (sys.executable, "-I", "-S", str(Path(network_namespace.__file__)))
            try:
                yield NetworkStart((*python, str(theirs.fileno()), str(PROXY_PORT)), theirs.fileno())
            finally:
                await cancel_all([serving])

    async def _serve(self, channel: socket.socket) -> None:
        arrived = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(channel.fileno(), arrived.set)
        try:
            await arrived.wait()
        finally:
            loop.remove_reader(channel.fileno())
        _, handles, _, _ = socket.recv_fds(channel, 1, 1)
        with socket.socket(fileno=handles[0]) as listener:
            await CommandProxy(self._policy, self._look_up).serve(listener)
