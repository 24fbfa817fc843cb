"""What a worker and a runner say to each other: frames of a version, a length and one MessagePack
record.

A worker sends one request and then nothing: the end of its side of the connection kills the
command. A runner answers with any number of Output, then Done; or with Refused alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from worker.sandbox.command import Finished, SandboxCommand

VERSION: Final = 1
REQUEST_LIMIT_BYTES: Final = 8 * 1024 * 1024
REPLY_LIMIT_BYTES: Final = 256 * 1024
PIECE_BYTES: Final = 64 * 1024

_HEAD: Final = struct.Struct("!BI")


class BadRunnerFrame(ValueError):
    """What came is no frame of this version, or too long a one."""


class PingRequest(msgspec.Struct, frozen=True, tag="ping", forbid_unknown_fields=True):
    """Whether a runner is there; answered with Pong."""


class RunRequest(msgspec.Struct, frozen=True, tag="run", forbid_unknown_fields=True):
    """Run this."""

    command: SandboxCommand


class PongReply(msgspec.Struct, frozen=True, tag="pong"):
    """A runner is there, confines with this version of Landlock, and runs so many commands."""

    landlock: int
    running: int


class OutputPiece(msgspec.Struct, frozen=True, tag="output"):
    """The next piece of what the command writes."""

    data: bytes


class CommandDone(msgspec.Struct, frozen=True, tag="done"):
    """How it ended. `finished` has no output: that came before."""

    finished: Finished


class RequestRefused(msgspec.Struct, frozen=True, tag="refused"):
    """Nothing more will come, and why."""

    reason: str


RunnerRequest = RunRequest | PingRequest
RunnerReply = PongReply | OutputPiece | CommandDone | RequestRefused

_encoder: Final = msgspec.msgpack.Encoder()
_requests: Final[msgspec.msgpack.Decoder[RunnerRequest]] = msgspec.msgpack.Decoder(RunnerRequest)
_replies: Final[msgspec.msgpack.Decoder[RunnerReply]] = msgspec.msgpack.Decoder(RunnerReply)


def encode(record: RunnerRequest | RunnerReply) -> bytes:
    """A whole frame."""
    body = _encoder.encode(record)
    return _HEAD.pack(VERSION, len(body)) + body


def decode_request(body: bytes) -> RunnerRequest:
    """Raises BadFrame."""
    try:
        return _requests.decode(body)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise BadRunnerFrame(f"no request: {exc}") from None


def decode_reply(body: bytes) -> RunnerReply:
    """Raises BadFrame."""
    try:
        return _replies.decode(body)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise BadRunnerFrame(f"no answer: {exc}") from None


class FrameBodies:
    """Takes a stream of bytes apart. No more is kept than one frame of at most `limit_bytes`, and
    one read."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._kept = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bodies that are whole by now. Raises BadFrame as soon as a head is wrong."""
        self._kept += data
        while len(self._kept) >= _HEAD.size:
            version, length = _HEAD.unpack_from(self._kept)
            if version != VERSION:
                raise BadRunnerFrame(f"a frame of version {version}, not {VERSION}; run the same release on both sides")
            if length > self._limit_bytes:
                raise BadRunnerFrame(f"a frame of {length:,} bytes; at most {self._limit_bytes:,} are taken")
            end = _HEAD.size + length
            if len(self._kept) < end:
                return
            body = bytes(self._kept[_HEAD.size : end])
            del self._kept[:end]
            yield body
