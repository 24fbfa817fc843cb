"""`/settings/you`: who the person is here, and the time zone of their plans."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request

from gateway.channels.web.http.auth import OWNER
from gateway.channels.web.settings.answers import Refusal, read_json
from gateway.channels.web.settings.zones import ChosenZones
from shared.clock import machine_timezone
from shared.errors import BadInput
from shared.settings import Settings
from shared.time_zones import find_timezone
from shared.version import VERSION

BODY_BYTES: Final = 1024


class _NewZone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    timezone: Annotated[str, Meta(max_length=64)]


class YouPart:
    """Shows and changes what a person has chosen for all of their devices."""

    def __init__(self, zones: ChosenZones, settings: Settings) -> None:
        self._zones = zones
        self._usual_zone = settings.agent.timezone or machine_timezone() or "UTC"

    async def show_person(self, principal: str, request: Request) -> dict[str, Any]:
        """Return the person, and the zone that they have chosen ("": that of each browser)."""
        return {
            "principal": principal,
            "owner": principal == OWNER,
            "timezone": await self._zones.read_zone(principal),
            "usual_timezone": self._usual_zone,
            "version": VERSION,
        }

    async def choose_zone(self, principal: str, request: Request) -> dict[str, Any]:
        """Keep another zone; "" goes back to that of each browser."""
        new = await read_json(request, _NewZone, BODY_BYTES, "send the time zone as JSON")
        name = new.timezone.strip()
        try:
            zone = find_timezone(name) if name else ""
        except BadInput as exc:
            raise Refusal(400, exc.message) from None
        await self._zones.choose(principal, zone)
        return await self.show_person(principal, request)
