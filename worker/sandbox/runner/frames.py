"""The protocol between a worker and a runner: frames of a version, a length and one MessagePack
record.

A worker sends one request and then nothing more: when it closes its side, the command is killed. A
runner replies with any number of OutputPiece and a CommandDone, or with RequestRefused alone."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from worker.sandbox.command import Finished, Limiter, SandboxCommand

VERSION: Final = 1
REQUEST_LIMIT_BYTES: Final = 8 * 1024 * 1024
REPLY_LIMIT_BYTES: Final = 256 * 1024
PIECE_BYTES: Final = 64 * 1024

_HEAD: Final = struct.Struct("!BI")


class BadRunnerFrame(ValueError):
    """The bytes are not a frame of this version, or are too long."""


class PingRequest(msgspec.Struct, frozen=True, tag="ping", forbid_unknown_fields=True):
    """A health check; the reply is PongReply."""


class RunRequest(msgspec.Struct, frozen=True, tag="run", forbid_unknown_fields=True):
    """A command to run."""

    command: SandboxCommand


class PongReply(msgspec.Struct, frozen=True, tag="pong"):
    """The runner's version of Landlock, the number of commands it runs, and how it limits them."""

    landlock: int
    running: int
    limited_by: Limiter = "census"


class OutputPiece(msgspec.Struct, frozen=True, tag="output"):
    """The next piece of what the command writes."""

    data: bytes


class CommandDone(msgspec.Struct, frozen=True, tag="done"):
    """The result, without output: that was sent before."""

    finished: Finished


class RequestRefused(msgspec.Struct, frozen=True, tag="refused"):
    """A reason; nothing more follows."""

    reason: str


RunnerRequest = RunRequest | PingRequest
RunnerReply = PongReply | OutputPiece | CommandDone | RequestRefused

_encoder: Final = msgspec.msgpack.Encoder()
_requests: Final[msgspec.msgpack.Decoder[RunnerRequest]] = msgspec.msgpack.Decoder(RunnerRequest)
_replies: Final[msgspec.msgpack.Decoder[RunnerReply]] = msgspec.msgpack.Decoder(RunnerReply)


def encode(record: RunnerRequest | RunnerReply) -> bytes:
    """Return a whole frame."""
    body = _encoder.encode(record)
    return _HEAD.pack(VERSION, len(body)) + body


def decode_request(body: bytes) -> RunnerRequest:
    """Raises BadRunnerFrame."""
    try:
        return _requests.decode(body)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise BadRunnerFrame(f"not a request: {exc}") from None


def decode_reply(body: bytes) -> RunnerReply:
    """Raises BadRunnerFrame."""
    try:
        return _replies.decode(body)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise BadRunnerFrame(f"not a reply: {exc}") from None


class FrameBodies:
    """Splits a stream into bodies. Keeps at most one frame of `limit_bytes` and one read."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._kept = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the bodies that are complete. Raises BadRunnerFrame as soon as a head is wrong."""
        self._kept += data
        while len(self._kept) >= _HEAD.size:
            version, length = _HEAD.unpack_from(self._kept)
            if version != VERSION:
                why = f"a frame of version {version}, not {VERSION}; run the same release on both sides"
                raise BadRunnerFrame(why)
            if length > self._limit_bytes:
                raise BadRunnerFrame(f"a frame of {length:,} bytes; at most {self._limit_bytes:,} are accepted")
            end = _HEAD.size + length
            if len(self._kept) < end:
                return
            body = bytes(self._kept[_HEAD.size : end])
            del self._kept[:end]
            yield body
