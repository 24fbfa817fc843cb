"""Frozen records: bytes as an earlier version wrote them, kept in `frozen/` as readable latin-1 in JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from shared.store.client.redis_client import RedisClient

FOLDER: Final = Path(__file__).with_name("frozen")

Keys = dict[str, tuple[str, Any]]
"""Key -> its Redis type, and its content."""


def read(name: str) -> Any:
    """Return the content of a frozen file."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def write(name: str, content: Any) -> None:
    """Freeze some content under a name."""
    text = json.dumps(content, indent=1, sort_keys=True)
    (FOLDER / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


def records() -> dict[str, tuple[str, bytes]]:
    """Return kind and bytes of each frozen record, by its meaning."""
    return {meaning: (kind, text.encode("latin-1")) for meaning, (kind, text) in read("records").items()}


async def dump(client: RedisClient) -> Keys:
    """Return everything in Redis."""
    found: Keys = {}
    for key in sorted(await client.command("KEYS", "*")):
        kind = (await client.command("TYPE", key)).decode()
        ask = {
            "hash": ("HGETALL", key),
            "list": ("LRANGE", key, 0, -1),
            "stream": ("XRANGE", key, "-", "+"),
            "string": ("GET", key),
            "zset": ("ZRANGE", key, 0, -1, "WITHSCORES"),
        }[kind]
        found[key.decode()] = (kind, _text(await client.command(*ask)))
    return found


async def restore(client: RedisClient, keys: Keys) -> None:
    """Write dumped keys into Redis."""
    for key, (kind, content) in keys.items():
        match kind:
            case "hash":
                await client.command("HSET", key, *map(_bytes, content))
            case "list":
                await client.command("RPUSH", key, *map(_bytes, content))
            case "stream":
                for id, fields in content:
                    await client.command("XADD", key, id, *map(_bytes, fields))
            case "zset":
                for member, score in zip(content[::2], content[1::2], strict=True):
                    await client.command("ZADD", key, score, _bytes(member))
            case _:
                await client.command("SET", key, _bytes(content))


def _text(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_text(one) for one in value]
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")
