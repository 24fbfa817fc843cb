"""The frames of a long connection: Protocol Buffers of one message (`pbbp2.Frame` of the vendor's
libraries). Pure.

Importing lark-oapi for its class costs 168 MB and seconds of start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

CONTROL: Final = 0
DATA: Final = 1

TYPE: Final = "type"
MESSAGE_ID: Final = "message_id"
SUM: Final = "sum"
SEQ: Final = "seq"
BIZ_RT: Final = "biz_rt"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MASK: Final = (1 << 64) - 1


class UnreadableFrame(ValueError):
    """These bytes are no frame."""


class FeishuFrame(Struct, frozen=True, kw_only=True):
    """`method` is CONTROL or DATA; `headers` are names and values, in order."""

    seq_id: int = 0
    log_id: int = 0
    service: int = 0
    method: int = CONTROL
    headers: tuple[tuple[str, str], ...] = ()
    payload_encoding: str = ""
    payload_type: str = ""
    payload: bytes = b""
    log_id_new: str = ""

    def header(self, name: str) -> str:
        """Its value; '' = there is none."""
        return next((value for key, value in self.headers if key == name), "")


def ping(service: int) -> FeishuFrame:
    """What is said now and then, so that the connection is kept."""
    return FeishuFrame(service=service, headers=((TYPE, "ping"),))


def read_frame(data: bytes) -> FeishuFrame:
    """Raises BadFrame."""
    numbers = {1: 0, 2: 0, 3: 0, 4: 0}
    parts = {6: b"", 7: b"", 8: b"", 9: b""}
    headers: list[tuple[str, str]] = []
    for field, value in _fields(data):
        if isinstance(value, int):
            numbers[field] = value
        elif field == 5:
            inner = {1: b"", 2: b""} | {number: one for number, one in _fields(value) if isinstance(one, bytes)}
            headers.append((_text(inner[1]), _text(inner[2])))
        else:
            parts[field] = value
    return FeishuFrame(
        seq_id=numbers[1],
        log_id=numbers[2],
        service=_signed(numbers[3]),
        method=_signed(numbers[4]),
        headers=tuple(headers),
        payload_encoding=_text(parts[6]),
        payload_type=_text(parts[7]),
        payload=parts[8],
        log_id_new=_text(parts[9]),
    )


def write_frame(frame: FeishuFrame) -> bytes:
    """The bytes of a frame."""
    out = bytearray()
    for field, number in enumerate((frame.seq_id, frame.log_id, frame.service, frame.method), start=1):
        out += _number(field << 3 | _VARINT) + _number(number)
    for key, value in frame.headers:
        out += _part(5, _part(1, key.encode()) + _part(2, value.encode()))
    for field, text in ((6, frame.payload_encoding), (7, frame.payload_type)):
        out += _part(field, text.encode()) if text else b""
    out += _part(8, frame.payload) if frame.payload else b""
    out += _part(9, frame.log_id_new.encode()) if frame.log_id_new else b""
    return bytes(out)


class FramePieces:
    """Puts together what came in several frames. Only the newest `most` messages are waited for."""

    def __init__(self, most: int = 100) -> None:
        self._most = most
        self._waiting: dict[str, dict[int, bytes]] = {}

    def whole(self, frame: FeishuFrame) -> bytes | None:
        """The payload when this was the last piece of it, else None. Raises BadFrame."""
        total, number, id = _count(frame.header(SUM)), _count(frame.header(SEQ)), frame.header(MESSAGE_ID)
        if total <= 1:
            return frame.payload
        if number >= total or total > 10_000:
            raise UnreadableFrame("a piece with a number that cannot be")
        pieces = self._waiting.setdefault(id, {})
        pieces[number] = frame.payload
        if len(pieces) == total:
            del self._waiting[id]
            return b"".join(pieces[number] for number in range(total))
        while len(self._waiting) > self._most:
            del self._waiting[next(iter(self._waiting))]
        return None


def _count(text: str) -> int:
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise UnreadableFrame("a header that is no number")
    return int(text)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Known numbers and parts; what is of another kind is passed over."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        field, kind = key >> 3, key & 7
        if kind == _VARINT:
            number, at = _varint(data, at)
            if field <= 4:
                yield field, number
            continue
        size = 8 if kind == _FIXED64 else 4 if kind == _FIXED32 else -1
        if kind == _BYTES:
            size, at = _varint(data, at)
        if size < 0 or at + size > len(data) or not field:
            raise UnreadableFrame("a field that ends behind the frame, or of an unknown kind")
        if kind == _BYTES and field in (1, 2, 5, 6, 7, 8, 9):
            yield field, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if at >= len(data):
            raise UnreadableFrame("a frame that is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK, at
        shift += 7
    raise UnreadableFrame("a number that is too long")


def _signed(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


def _text(part: bytes) -> str:
    try:
        return part.decode()
    except UnicodeDecodeError as exc:
        raise UnreadableFrame("text that is not UTF-8") from exc


def _number(value: int) -> bytes:
    value &= _MASK
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _part(field: int, data: bytes) -> bytes:
    return _number(field << 3 | _BYTES) + _number(len(data)) + data
