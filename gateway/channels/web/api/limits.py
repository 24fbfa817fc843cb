"""What one request over HTTP may cost, and how long it may take."""

from __future__ import annotations

import msgspec


class ApiLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Times in s. A message is tried again for `retry_s`, and its answer waited for `away_s`, while
    Redis is away; an answer is waited for `wait_s` at all. A stream that is silent for `alive_s`
    says that it lives.

    A body has `body_bytes` at most and `body_s` to come; a message `files` files. A person has
    `at_once_each` requests open at this gateway, all together `at_once`; and may ask `burst` at
    once and `per_s` a second, above what one may say in a minute: it keeps refusals cheap."""

    retry_s: float = 5.0
    away_s: float = 10.0
    wait_s: float = 1800.0
    alive_s: float = 15.0
    body_bytes: int = 16 * 1024 * 1024
    body_s: float = 60.0
    files: int = 4
    at_once: int = 1000
    at_once_each: int = 200
    burst: int = 200
    per_s: float = 20.0
