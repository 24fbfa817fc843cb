"""A relay before a Redis that counts what clients write: how often they go to the network, not how much they say."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

from tests.helpers.stream_server import stream_server

CHUNK_BYTES: Final = 256 * 1024


class Relay:
    """`writes` counts for each connection, by the address that the server knows it by. Commands that a client hands to
    the network together are one write; on a slow machine some that it did not are, too, and never more than it did."""

    def __init__(self, url: str) -> None:
        self.writes: Counter[str] = Counter()
        self.url = ""
        self._server_url = url

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client came."""
        parts = urlsplit(self._server_url)
        from_server, to_server = await asyncio.open_connection(parts.hostname, parts.port)
        host, port = to_server.get_extra_info("sockname")[:2]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, to_server, f"{host}:{port}"))
                group.create_task(self._pump(from_server, writer, None))
        except* ConnectionError:
            pass
        finally:
            to_server.close()
            writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: str | None) -> None:
        while data := await reader.read(CHUNK_BYTES):
            if client is not None:
                self.writes[client] += 1
            writer.write(data)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def relay(url: str) -> AsyncIterator[Relay]:
    """One before this Redis, at `url` of its own."""
    made = Relay(url)
    parts = urlsplit(url)
    async with stream_server(made.serve) as port:
        made.url = parts._replace(netloc=parts.netloc.rpartition(":")[0] + f":{port}").geturl()
        yield made
