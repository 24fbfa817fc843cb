"""Frames of a long connection: one Protocol Buffers message (`pbbp2.Frame` of the vendor's
libraries), and payloads that span several frames. Pure. The message type is declared here:
importing lark-oapi for its class costs 168 MB and seconds of start."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor_pb2 import EDITION_2023, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from msgspec import Struct
from msgspec.structs import asdict

CONTROL: Final = 0
DATA: Final = 1


class UnreadableFrame(ValueError):
    """These bytes are not a frame."""


class FeishuFrame(Struct, frozen=True, kw_only=True):
    """A frame, fields in the order of their numbers. `method` is CONTROL or DATA."""

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
        """Return a header's value, '' if it is missing."""
        return next((value for key, value in self.headers if key == name), "")


def ping(service: int) -> FeishuFrame:
    """Return the frame that keeps a connection alive."""
    return FeishuFrame(service=service, headers=(("type", "ping"),))


def read_frame(data: bytes) -> FeishuFrame:
    """Decode a frame. Raises UnreadableFrame."""
    try:
        found = _Message.FromString(data)
    except DecodeError as exc:
        raise UnreadableFrame("bytes that are not a frame") from exc
    fields = {name: getattr(found, name) for name in FeishuFrame.__struct_fields__}
    fields["headers"] = tuple((one.key, one.value) for one in found.headers)
    return FeishuFrame(**fields)


def write_frame(frame: FeishuFrame) -> bytes:
    """Encode a frame."""
    # The vendor requires the numbers, also when they are 0; the rest is left out when empty.
    fields = {name: value for name, value in asdict(frame).items() if value or value == 0}
    fields["headers"] = [{"key": key, "value": value} for key, value in frame.headers]
    return bytes(_Message(**fields).SerializeToString())


class FramePieces:
    """Puts together what came in several frames. Only the newest `most` messages are waited for."""

    def __init__(self, most: int = 100) -> None:
        self._most = most
        self._waiting: dict[str, dict[int, bytes]] = {}

    def whole(self, frame: FeishuFrame) -> bytes | None:
        """The payload when this was the last piece of it, else None. Raises UnreadableFrame."""
        total = _count(frame.header("sum"))
        number = _count(frame.header("seq"))
        id = frame.header("message_id")
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
    if text and not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise UnreadableFrame("a header that is not a number")
    return int(text or "0")


def _message_class() -> Any:
    """Return the class of the message, as protoc would generate it."""
    # An edition, unlike proto2, checks that strings are UTF-8, and unlike proto3 writes zeros.
    file = FileDescriptorProto(
        name="feishu_frame.proto", package="shoal.feishu", syntax="editions", edition=EDITION_2023
    )
    header = file.message_type.add(name="Header")
    frame = file.message_type.add(name="Frame")
    of = FieldDescriptorProto
    text = of.TYPE_STRING
    optional = of.LABEL_OPTIONAL
    for number, name in enumerate(("key", "value"), start=1):
        header.field.add(name=name, number=number, type=text, label=optional)
    numbers = (of.TYPE_UINT64, of.TYPE_UINT64, of.TYPE_INT32, of.TYPE_INT32)
    kinds = (*numbers, of.TYPE_MESSAGE, text, text, of.TYPE_BYTES, text)
    fields = zip(FeishuFrame.__struct_fields__, kinds, strict=True)
    for number, (name, kind) in enumerate(fields, start=1):
        field = frame.field.add(name=name, number=number, type=kind, label=optional)
        if name == "headers":
            field.label = of.LABEL_REPEATED
            field.type_name = ".shoal.feishu.Header"
    pool = DescriptorPool()  # one of its own: the vendor's library may be in the default one
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("shoal.feishu.Frame"))


_Message: Final = _message_class()
