"""The time of day in any time zone."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from msgspec import Meta, Struct

from shared.errors import ToolFailed
from worker.agent.tools.tool import Safety, ToolContext


class CurrentTimeArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """A time zone."""

    timezone: Annotated[
        str | None,
        Meta(description="IANA name such as Europe/Berlin; leave out for the user's own zone."),
    ] = None


class CurrentTime:
    """Returns `2026-11-21 14:05:09 (Saturday), Europe/Berlin (UTC+01:00)`."""

    name = "current_time"
    description = "The current date and time, in the user's time zone or in another one."
    parameters = CurrentTimeArguments
    safety: Safety = "read_only"
    timeout_s = 5.0

    async def run(self, arguments: CurrentTimeArguments, context: ToolContext) -> str:
        name = arguments.timezone or context.timezone
        try:
            zone = ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            advice = "use an IANA name such as 'Europe/Berlin' or 'UTC'"
            raise ToolFailed(f"{name!r} is not a time zone; {advice}") from None
        now = datetime.fromtimestamp(context.clock.now_ms() / 1000, zone)
        return f"{now:%Y-%m-%d %H:%M:%S (%A)}, {name} (UTC{now.isoformat()[-6:]})"
