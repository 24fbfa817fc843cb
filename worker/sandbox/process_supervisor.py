"""The sandbox of a worker: found at start, and looked for again while a runner may still come
up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from shared.settings import Settings
from shared.store.fleet.presence import WHY_OFF
from worker.sandbox.command import Sandbox
from worker.sandbox.probe import TIERS, Off, Open, choose

AGAIN_S: Final = 30.0
WHY_CHARS: Final = 600


class SandboxKeeper:
    """Calls `found` once, when there is a sandbox. A worker without one works, too."""

    def __init__(
        self,
        settings: Settings,
        found: Callable[[Sandbox], None],
        *,
        tiers: Sequence[tuple[str, Open]] = TIERS,
    ) -> None:
        self._settings = settings
        self._found = found
        self._tiers = tiers
        self.looked = asyncio.Event()
        """Set when it is known whether there is a sandbox."""

        self._sandbox: Sandbox | Off | None = None

    async def open(self) -> None:
        """Look once; harmless when there is none."""
        self._sandbox = await choose(self._settings, self._tiers)
        if not isinstance(self._sandbox, Off):
            self._found(self._sandbox)
        self.looked.set()

    async def keep_looking(self) -> None:
        """Look; and again every half minute as long as there is none, and a runner is expected."""
        await self.open()
        tools = self._settings.tools
        while tools.exec and tools.exec_runner and isinstance(self._sandbox, Off):
            await asyncio.sleep(AGAIN_S)
            await self.open()

    def details(self) -> dict[str, str]:
        """For the presence record: the tier; or `off`, and why."""
        match self._sandbox:
            case None:
                return {"sandbox": "off"}
            case Off(reason):
                return {"sandbox": "off", WHY_OFF: reason[:WHY_CHARS]}
            case sandbox:
                return {"sandbox": sandbox.tier}

    async def close(self) -> None:
        """Kill what runs."""
        if self._sandbox is not None and not isinstance(self._sandbox, Off):
            await self._sandbox.close()
