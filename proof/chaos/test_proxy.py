"""The proxy before the server: it leaves nothing open, whatever moment it is stopped at."""

from __future__ import annotations

import asyncio

from proof.chaos.proxy import Proxy
from tests.helpers.stream_server import stream_server

TURNS = 12
"""Turns of the loop from the end of a connection until the proxy has let go of it, and more to spare."""


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)


async def test_a_proxy_that_is_stopped_while_a_connection_ends_leaves_none_open() -> None:
    """Connections of a process that has just ended are ending when everything is stopped behind it."""
    async with stream_server(echo) as port:
        for turns in range(TURNS):
            proxy = Proxy(f"redis://127.0.0.1:{port}")
            await proxy.start()
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"hello")
            assert await reader.read(100) == b"hello"
            writer.close()
            for _ in range(turns):
                await asyncio.sleep(0)
            await proxy.stop()
