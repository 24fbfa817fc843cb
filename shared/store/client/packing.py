"""Lists and maps as arguments of scripts."""

from __future__ import annotations

import msgspec

_encode = msgspec.msgpack.Encoder().encode


def pack(value: object) -> bytes:
    """Encode lists, tuples, maps, texts, bytes, numbers and None as MessagePack that Lua in the
    server reads. Its library knows no binary data, so bytes are written as a text, whatever they
    are."""
    return _encode(_as_texts(value))


def _as_texts(value: object) -> object:
    if isinstance(value, bytes):
        return msgspec.Raw(_head(len(value)) + value)
    if isinstance(value, list | tuple):
        return [*map(_as_texts, value)]
    if isinstance(value, dict):
        return {name: _as_texts(one) for name, one in value.items()}
    return value


def _head(size: int) -> bytes:
    """Return the first bytes of a text of this size in bytes."""
    if size < 1 << 5:
        return bytes((0xA0 | size,))
    if size < 1 << 8:
        return bytes((0xD9, size))
    if size < 1 << 16:
        return b"\xda" + size.to_bytes(2)
    return b"\xdb" + size.to_bytes(4)
