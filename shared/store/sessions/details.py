"""Age and metadata of a session, fields of its hash; sessions of older releases have none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from shared.errors import BadInput
from shared.store.client.packing import pack
from shared.store.client.redis_client import RedisClient

METADATA_BYTES: Final = 4096
"""Size of all metadata of a session, as JSON."""

NAME_CHARS: Final = 64
FIELDS: Final = ("created", "updated", "meta")


class SessionDetails(msgspec.Struct, frozen=True, kw_only=True):
    """When a session had its first message, and its last message or answer, in ms since 1970 (0 if
    unknown); and what its owner noted about it."""

    created_at: int = 0
    updated_at: int = 0
    metadata: dict[str, str] = {}


def parse_details(created: bytes | None, updated: bytes | None, metadata: bytes | None) -> SessionDetails:
    """Parse the values of FIELDS; what cannot be read is as if it were missing."""
    try:
        found = msgspec.json.decode(metadata or b"{}", type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = {}
    return SessionDetails(created_at=_number(created), updated_at=_number(updated), metadata=found)


def pack_metadata(metadata: Mapping[str, str]) -> bytes:
    """Return metadata as it is stored. Raises BadInput for what is not kept."""
    for name in metadata:
        if not (0 < len(name) <= NAME_CHARS and name.isprintable() and "=" not in name):
            wrong = f"{name[:NAME_CHARS]!r} is no name of metadata: 1 to {NAME_CHARS} printable characters without '='"
            raise BadInput("bad_metadata", wrong)
    try:
        packed = msgspec.json.encode(metadata)
    except UnicodeEncodeError:
        raise BadInput("bad_metadata", "the metadata is no valid text") from None
    if len(packed) > METADATA_BYTES:
        raise BadInput("bad_metadata", f"the metadata has {len(packed):,} bytes; at most {METADATA_BYTES:,} are kept")
    return packed


async def change_metadata(
    client: RedisClient, session: str, changes: Mapping[str, str], *, replace: bool = False
) -> bool:
    """Set names of a session's metadata, and remove those whose text is empty; with `replace` also
    all others. Return False if there is no such session. Raises BadInput, RedisAway."""
    pack_metadata(changes)
    words = pack([word for change in changes.items() for word in change])
    done = await client.run(
        "sessions/describe", session=session, most_bytes=METADATA_BYTES, whole=int(replace), changes=words
    )
    if done == b"too_big":
        full = f"with what is there the metadata would have more than {METADATA_BYTES:,} bytes; remove some first"
        raise BadInput("bad_metadata", full)
    return bool(done == b"done")


def _number(value: bytes | None) -> int:
    return int(value) if value is not None and value.isdigit() else 0
