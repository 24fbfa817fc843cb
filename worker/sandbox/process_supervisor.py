"""The sandbox of a worker: found at start, and looked for again while a runner may still come
up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from shared.settings import Settings
from shared.store.fleet.presence import WHY_OFF
from worker.sandbox.command import Sandbox
from worker.sandbox.probe import TIERS, OpenTier, SandboxOff, choose_sandbox

RETRY_S: Final = 30.0
WHY_CHARS: Final = 600


class SandboxFinder:
    """Calls `found` once, when there is a sandbox. A worker without one works, too."""

    def __init__(
        self,
        settings: Settings,
        on_found: Callable[[Sandbox], None],
        *,
        tiers: Sequence[tuple[str, OpenTier]] = TIERS,
    ) -> None:
        self._settings = settings
        self._on_found = on_found
        self._tiers = tiers
        self.first_try_done = asyncio.Event()
        """Set when it is known whether there is a sandbox."""

        self._sandbox: Sandbox | SandboxOff | None = None

    async def find(self) -> None:
        """Look once; harmless when there is none."""
        self._sandbox = await choose_sandbox(self._settings, self._tiers)
        if not isinstance(self._sandbox, SandboxOff):
            self._on_found(self._sandbox)
        self.first_try_done.set()

    async def keep_trying(self) -> None:
        """Look; and again every half minute as long as there is none, and a runner is expected."""
        await self.find()
        tools = self._settings.tools
        while tools.exec and tools.exec_runner and isinstance(self._sandbox, SandboxOff):
            await asyncio.sleep(RETRY_S)
            await self.find()

    def details(self) -> dict[str, str]:
        """For the presence record: the tier; or `off`, and why."""
        match self._sandbox:
            case None:
                return {"sandbox": "off"}
            case SandboxOff(reason):
                return {"sandbox": "off", WHY_OFF: reason[:WHY_CHARS]}
            case sandbox:
                return {"sandbox": sandbox.tier}

    async def close(self) -> None:
        """Kill what runs."""
        if self._sandbox is not None and not isinstance(self._sandbox, SandboxOff):
            await self._sandbox.close()
