"""Encoding of records that cross a process border: msgpack of limited size and depth. A record is a
frozen, tagged Struct. Fields are only added, with a default, so that the versions before and after
can read it. No bytes can make this module import or run code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from shared.errors import BadRecord

SCHEMA_VERSION: Final = 4
"""Newest version of the records that are queued. A worker leaves a record with a higher version
than its own to newer workers: raise it when an old worker must not handle what is new in a
record."""

OPTIONS_VERSION: Final = 3
"""Version of a message with options, but without functions of a program."""

PLAIN_VERSION: Final = 2
"""Version of records without anything that came later: workers of the release before take them."""

RECORD_LIMIT_BYTES: Final = 4 * 1024 * 1024

T = TypeVar("T")

_ARRAY: Final = b"\xdd"  # header of a msgpack array whose length follows in four bytes
_encoder = msgspec.msgpack.Encoder()


def encode(record: msgspec.Struct) -> bytes:
    """Encode one record."""
    return _encoder.encode(record)


class Decoder(Generic[T]):
    """A decoder for one kind of record, created once, at import. Raises BadRecord with a code:
    `record_too_big`, `record_too_deep`, `record_malformed`, `record_wrong_shape`."""

    def __init__(self, kind: Any, *, limit_bytes: int = RECORD_LIMIT_BYTES) -> None:
        self._decode = msgspec.msgpack.Decoder(kind).decode
        self._decode_list = msgspec.msgpack.Decoder(list[kind]).decode
        self._limit_bytes = limit_bytes

    def __call__(self, data: bytes) -> T:
        return self._decode_checked(self._decode, data)  # type: ignore[no-any-return]

    def or_none(self, data: bytes) -> T | None:
        """Decode a record; None for one that cannot be read, such as one of a newer version."""
        try:
            return self(data)
        except BadRecord:
            return None

    def every(self, records: Sequence[bytes]) -> list[T]:
        """Decode many records, much faster than one by one. Raises for the first that cannot be
        read, or when together they are larger than one may be."""
        # One array header and all records behind it: msgspec decodes them in one call.
        array = b"".join([_ARRAY, len(records).to_bytes(4), *records])
        return self._decode_checked(self._decode_list, array)  # type: ignore[no-any-return]

    def _decode_checked(self, decode: Callable[[bytes], Any], data: bytes) -> Any:
        if len(data) > self._limit_bytes:
            over = f"a record of {len(data)} bytes is over the limit of {self._limit_bytes}"
            raise BadRecord("record_too_big", over)
        try:
            return decode(data)
        except msgspec.ValidationError as exc:
            raise BadRecord("record_wrong_shape", f"a record does not have the shape of its kind: {exc}") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise BadRecord("record_malformed", f"a record is not msgpack: {exc}") from None
        except RecursionError:
            raise BadRecord("record_too_deep", "a record is nested too deeply") from None


class _Traced(msgspec.Struct):
    traceparent: str | None = None


_decode_traced = msgspec.msgpack.Decoder(_Traced).decode


def traceparent_of(record: bytes) -> str | None:
    """Return the traceparent of a message or of a subagent's task; None when there is none, and
    for bytes that are not a record, which the reader of the record reports."""
    try:
        return _decode_traced(record).traceparent
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
