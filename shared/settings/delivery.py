"""The settings of the way to chat platforms and from them: `[hooks]` and `[delivery]`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class HooksSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the webhooks of all channels of a gateway are: `/hooks/<channel>` on one address.

    A call has at most `body_kb`, and `answer_s` until it is answered; `calls` are answered at
    once."""

    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8090
    body_kb: Annotated[int, Meta(ge=16, le=64 * 1024)] = 4096
    answer_s: Annotated[float, Meta(gt=0, le=300)] = 10.0
    calls: Annotated[int, Meta(ge=1, le=100_000)] = 256


class DeliverySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How replies go out to chat platforms. One gateway serves at most `chats` of a channel at
    once; a call of a platform's API has `call_s`, after which nobody knows whether it arrived.
    `progress` shows what the agent is doing until its first words come."""

    chats: Annotated[int, Meta(ge=1, le=10_000)] = 200
    call_s: Annotated[float, Meta(gt=0, le=300)] = 20.0
    progress: bool = True
