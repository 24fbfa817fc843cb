"""The bodies of webhook calls: those that come slowly have few places and little time."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from shared.metrics import CONNECTIONS_CUT
from shared.process.places import ConnectionPlace, ListenerPlaces
from shared.settings.sections.gateways import HooksSettings

_NAME = "hook bodies"


class BodyLate(Exception):
    """A body did not come in time, or gave way to another one."""


class BodyReader:
    """Reads bodies. Anyone can send one, for a signature covers it and is looked at when it is
    whole. So a slow one ends after `body_s`, or sooner when others need its place."""

    def __init__(self, settings: HooksSettings) -> None:
        self._limit_bytes = settings.body_kb * 1024
        self._within_s = settings.body_s
        self._slow = ListenerPlaces(_NAME, settings.calls, settings.calls)

    async def read_body(self, request: Request) -> bytes | None:
        """Return the body; None if it is over the limit. Raises BodyLate and ClientDisconnect."""
        loop = asyncio.get_running_loop()
        host = request.client.host if request.client else ""
        place: ConnectionPlace | None = None
        body = bytearray()

        def hold_place() -> None:
            nonlocal place
            place = self._slow.open(host)
            place.cut = lambda: None if limit.expired() else limit.reschedule(loop.time())

        # A body that has come already is read before the event loop gets to this.
        slow = loop.call_soon(hold_place)
        try:
            async with asyncio.timeout(self._within_s) as limit:
                try:
                    async for part in request.stream():
                        body += part
                        if len(body) > self._limit_bytes:
                            return None
                finally:
                    slow.cancel()
                    if place is not None:
                        place.release()
        except TimeoutError:
            if place is None or not place.ended:
                CONNECTIONS_CUT.labels(_NAME, "body").inc()
            raise BodyLate from None
        return bytes(body)
