"""Null where a platform's documentation has an optional field reads as if the field were
missing."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


Json = bytes | bytearray | msgspec.Raw


class NullTolerantDecoder(Generic[T]):
    """A decoder of JSON that reads bytes again without their nulls, if it cannot read them as they
    are. Almost all are: the second way may be slow."""

    def __init__(self, kind: type[T]) -> None:
        self._strict = msgspec.json.Decoder(kind)

    def decode(self, body: Json) -> T:
        """Raises msgspec.DecodeError."""
        try:
            return self._strict.decode(body)
        except msgspec.ValidationError as exc:
            try:
                # As bytes: a field of type Raw is read from nothing else.
                again = msgspec.json.encode(without_nulls(msgspec.json.decode(body)))
            except (RecursionError, OverflowError):
                raise exc from None
            return self._strict.decode(again)


def decode_json(body: Json, kind: type[T]) -> T:
    """Decode JSON, without its nulls if need be. Raises msgspec.DecodeError."""
    return NullTolerantDecoder(kind).decode(body)


def convert(data: Any, kind: type[T]) -> T:
    """Return plain values as a Struct, without their nulls if need be. Raises ValidationError."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError:
        return msgspec.convert(without_nulls(data), kind)


def without_nulls(data: Any) -> Any:
    """Return plain values without the fields and items that are null."""
    if isinstance(data, dict):
        return {key: without_nulls(value) for key, value in data.items() if value is not None}
    if isinstance(data, list):
        return [without_nulls(value) for value in data if value is not None]
    return data
