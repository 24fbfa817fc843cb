"""Freeze what this version writes and the shapes of its records: `python -m tests.records.freeze`.

Look at the difference before you commit it: a line that goes away is bytes that some Redis still holds.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from shared.embedded import EmbeddedValkey
from shared.store.client.redis_client import RedisClient
from tests.records import frozen_records, samples, shape


async def _store(folder: Path) -> frozen_records.Keys:
    server = EmbeddedValkey(folder, fsync="no")
    server.start()
    client = RedisClient(server.url)
    try:
        await samples.work(client)
        return await frozen_records.dump(client)
    finally:
        await client.close()
        server.stop()


def main() -> None:
    """Write the files of `tests/records/frozen`."""
    records = samples.records()
    written = {meaning: [kind, data.decode("latin-1")] for meaning, (kind, data) in records.items()}
    frozen_records.write("records", written)
    frozen_records.write("shapes", shape.shapes())
    with tempfile.TemporaryDirectory() as folder:
        frozen_records.write("store", asyncio.run(_store(Path(folder))))


if __name__ == "__main__":
    main()
