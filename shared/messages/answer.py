"""Stored answers of requests over HTTP, for clients that repeat a request."""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.messages.codec import Decoder
from shared.messages.outbound import TokensUsed


class RequestFailed(msgspec.Struct, frozen=True, kw_only=True):
    """Reason why there is no text: an HTTP status, a code for programs, a message for people."""

    status: int
    code: str
    message: str


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="answer"):
    """The text, or the reason why there is none. `length`: something was left out, as the text
    says."""

    text: str = ""
    finish: Literal["stop", "length"] = "stop"
    usage: TokensUsed | None = None
    failed: RequestFailed | None = None
    v: int = 1


decode_answer: Decoder[StoredAnswer] = Decoder(StoredAnswer, limit_bytes=1024 * 1024)
