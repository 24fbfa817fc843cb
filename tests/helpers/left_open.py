"""Connections that a test leaves open: found where the loop ends, and told of that test. The collector would find them
later, in the middle of another one."""

from __future__ import annotations

from asyncio import selector_events
from typing import Any, Final

_left: Final[list[str]] = []


def taken() -> list[str]:
    """What loops have left since the last call, in words."""
    left = _left.copy()
    _left.clear()
    return left


def watch() -> None:
    """Look at each loop when it is closed, from now on."""
    base: Any = selector_events.BaseSelectorEventLoop
    close = base.close

    def watched(loop: Any) -> None:
        for transport in [] if loop.is_closed() else list(loop._transports.values()):
            if not transport.is_closing():
                _left.append(f"{transport.get_extra_info('sockname')} to {transport.get_extra_info('peername')}")
                transport._sock.close()
                transport._sock = None
        close(loop)

    base.close = watched
