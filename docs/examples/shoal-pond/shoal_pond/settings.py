"""`[channels.pond]`."""

from __future__ import annotations

from typing import Literal

from shoal.plugin import AccessSettings, Secret


class PondSettings(AccessSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`api` is the address of the server, `secret` that of the webhook (only with `run = "webhook"`). `offers` is what
    the server knows of a post that is sent twice: its operator says so."""

    api: str
    token: Secret
    secret: Secret | None = None
    poll_s: float = 20.0
    timeout_s: float = 20.0
    offers: Literal["key", "look-up", "nothing"] = "nothing"
