"""How a channel stands, and the opening of its platform, again and again until it works."""

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
MENDED_S: Final = 300.0
"""A channel that is broken is tried again after so long: what was wrong may have been mended at the
platform."""

OPEN_S: Final = 60.0
REASON_CHARS: Final = 200

log = logger("channel")


class ChannelState:
    """`name` is `opening`, `on`, `away` (it is tried again), `off` (a person must mend something)
    or `closed`; `why` says why it does not work, '' when it does. `broken` is set by the word that
    somebody must mend something."""

    def __init__(self, channel: str) -> None:
        self.name = "opening"
        self.why = ""
        self.broken = asyncio.Event()
        self._channel = channel
        CHANNEL_ON.labels(channel).set(0)

    def set_state(self, name: str, why: str = "") -> None:
        """From now on it is so. A change is logged once."""
        why = " ".join(why.split())[:REASON_CHARS]
        if (name, why) != (self.name, self.why):
            log_change = log.info if name in ("on", "closed") else log.error if name == "off" else log.warning
            log_change("channel", channel=self._channel, state=name, **({"reason": why} if why else {}))
        self.name, self.why = name, why
        CHANNEL_ON.labels(self._channel).set(name == "on")

    def break_down(self, broken: ChannelBroken) -> None:
        """A person must mend something: nothing is done here until it is looked at again."""
        self.set_state("off", str(broken))
        self.broken.set()


async def open_platform(platform: Platform, state: ChannelState, draining: asyncio.Event) -> bool:
    """Open it; False when the process drains before it could be. One that broke rests first: that
    it can be opened does not mean that it was mended."""
    backoff = Backoff(FIRST_S, CAP_S)
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
    """None when it is open; else how long to wait until the next try, 0 = as the back-off says."""
    try:
        async with asyncio.timeout(OPEN_S):
            await platform.open()
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
    else:
        return None
    return 0.0
