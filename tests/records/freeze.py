"""Freeze what this release writes, and the shapes of its records: `python -m tests.records.freeze`.

Look at the difference before you commit it: a line that goes away is bytes that some Redis still holds.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Final

from shared.embedded import EmbeddedValkey
from shared.store.client.redis_client import RedisClient
from tests.records import frozen, samples, shape

NOW: Final = frozen.HERE / "now"


async def _store(folder: Path) -> frozen.Keys:
    server = EmbeddedValkey(folder, fsync="no")
    server.start()
    client = RedisClient(server.url)
    try:
        await samples.work(client)
        return await frozen.take(client)
    finally:
        await client.close()
        server.stop()


def main() -> None:
    """Write the files of `tests/records/now`."""
    records = samples.records() | samples.newer()
    frozen.write(NOW, "records", {meaning: [kind, data.decode("latin-1")] for meaning, (kind, data) in records.items()})
    frozen.write(NOW, "shapes", shape.shapes())
    with tempfile.TemporaryDirectory() as folder:
        frozen.write(NOW, "store", asyncio.run(_store(Path(folder))))


if __name__ == "__main__":
    main()
