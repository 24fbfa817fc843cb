"""The state of a channel, and the opening of its platform, tried until it works."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.platform.protocol import ChannelBroken, NotAccepted, Platform
from shared.backoff import Backoff
from shared.log import logger
from shared.metrics import CHANNEL_ON
from shared.tasks import event_within, until_first

FIRST_S: Final = 1.0
CAP_S: Final = 60.0
MENDED_S: Final = 300.0  # pause of a broken channel: it may have been mended at the platform
OPEN_S: Final = 60.0
REASON_CHARS: Final = 200

log = logger("channel")


class ChannelState:
    """The state of one channel: `opening`, `on`, `away` (tried again by itself), `off` (a person
    must mend something) or `closed`. `why` is '' when it works. `broken` is set while it is
    `off`."""

    def __init__(self, channel: str) -> None:
        self.name = "opening"
        self.why = ""
        self.broken = asyncio.Event()
        self._channel = channel
        CHANNEL_ON.labels(channel).set(0)

    def set_state(self, name: str, why: str = "") -> None:
        """Set the state. A change is logged once."""
        why = " ".join(why.split())[:REASON_CHARS]
        if (name, why) != (self.name, self.why):
            write = {"on": log.info, "closed": log.info, "off": log.error}.get(name, log.warning)
            write("channel", channel=self._channel, state=name, **({"reason": why} if why else {}))
        self.name = name
        self.why = why
        CHANNEL_ON.labels(self._channel).set(name == "on")

    def break_down(self, broken: ChannelBroken) -> None:
        """Turn the channel off until the next try: a person must mend something."""
        self.set_state("off", str(broken))
        self.broken.set()


async def open_platform(platform: Platform, state: ChannelState, draining: asyncio.Event) -> bool:
    """Open a platform, with back-off; return False when the process drains first."""
    backoff = Backoff(FIRST_S, CAP_S)
    # That a broken one can be opened does not mean that it was mended, so it rests first.
    if state.broken.is_set():
        await event_within(draining, MENDED_S)
    while not draining.is_set():
        opening = asyncio.create_task(_open_once(platform, state), name="open")
        await until_first(opening, asyncio.create_task(draining.wait()))
        if opening.cancelled():
            return False
        again_s = opening.result()
        if again_s is None:
            state.set_state("on")
            state.broken.clear()
            return True
        await event_within(draining, again_s or next(backoff))
    return False


async def _open_once(platform: Platform, state: ChannelState) -> float | None:
    """Open once; return None, or on failure the pause before the next try, 0 = use the back-off."""
    try:
        async with asyncio.timeout(OPEN_S):
            await platform.open()
        return None
    except ChannelBroken as broken:
        state.break_down(broken)
        return MENDED_S
    except NotAccepted as exc:
        state.set_state("away", exc.reason)
    except TimeoutError:
        state.set_state("away", f"no answer within {OPEN_S:g} s")
    except Exception as exc:
        log.exception("channel not opened", channel=platform.name)
        state.set_state("away", f"{type(exc).__name__} in the channel's code")
    return 0.0
