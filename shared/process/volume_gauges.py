"""The gauge of the room that volumes have for files, above the space that must stay free."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from shared.media.disk import DiskFloor
from shared.metrics import VOLUME_ROOM_BYTES
from shared.settings import Settings

ANSWER_S: Final = 0.5  # longest wait of a reading: a network volume can hang
_MB: Final = 1024 * 1024


class VolumeGauges:
    """Fills the gauge on demand. A volume that does not answer is NaN until it does."""

    def __init__(self, volumes: Mapping[str, tuple[Path, DiskFloor]], *, answer_s: float = ANSWER_S) -> None:
        self.volumes: Final = dict(volumes)
        self._answer_s = answer_s
        self._readings: dict[str, asyncio.Future[int]] = {}

    @classmethod
    def of(cls, settings: Settings, *, workspaces: bool) -> VolumeGauges:
        """Return the gauges of a process, which may have no workspaces."""
        media = settings.media
        space = settings.workspace
        volumes = {"media": (media.dir, DiskFloor(media.free_mb * _MB))}
        if workspaces:
            volumes["workspaces"] = (space.root, DiskFloor(space.free_mb * _MB))
        return cls(volumes)

    async def refresh(self) -> None:
        """Read all volumes. One that hangs costs one thread, however often it is read."""
        for name, (folder, floor) in self.volumes.items():
            if name not in self._readings:
                reading = asyncio.ensure_future(asyncio.to_thread(floor.room_bytes, folder.absolute()))
                self._readings[name] = reading
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._answer_s):
                await asyncio.wait(self._readings.values())
        for name in self.volumes:
            room = math.nan
            if self._readings[name].done():
                with contextlib.suppress(OSError):
                    room = self._readings.pop(name).result()
            VOLUME_ROOM_BYTES.labels(name).set(room)
