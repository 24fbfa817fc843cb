"""Trace context of a stored record, read without the rest of it."""

from __future__ import annotations

import msgspec


class _Traced(msgspec.Struct):
    traceparent: str | None = None


_decode = msgspec.msgpack.Decoder(_Traced).decode


def traceparent_of(record: bytes) -> str | None:
    """Return the traceparent of a message or of a subagent's task; None when there is none, and
    for bytes that are not a record, which the reader of the record reports."""
    try:
        return _decode(record).traceparent
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
