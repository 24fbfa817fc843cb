"""The protocol between the channels of a gateway and the rest of it."""

from __future__ import annotations

import asyncio
from typing import Protocol

from gateway.ingress.ingest import Ingress


class Channel(Protocol):
    """One way for people to talk to Shoal."""

    @property
    def name(self) -> str:
        """The first half of the names of its sessions."""
        ...

    async def listen(self, ingress: Ingress, draining: asyncio.Event) -> None:
        """Take messages until `draining` is set; then finish what is under way, within a few
        seconds, and return. Raises SettingsError at once when it cannot start."""
        ...

    def facts(self) -> dict[str, str]:
        """Return what operators see of it, such as its address and its open connections."""
        ...
