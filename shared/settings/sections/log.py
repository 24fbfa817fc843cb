"""Settings of the log, `[log]`, and of the place for data, `[data]`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct


class LogSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Format of the log. `auto` is `console` on a terminal and `json` elsewhere; colour `auto` is
    on for a terminal."""

    format: Literal["auto", "json", "console"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"
    colour: Literal["auto", "always", "never"] = "auto"

    def as_json(self, *, terminal: bool) -> bool:
        """Return True when lines are JSON on an output that is, or is not, a terminal."""
        return self.format == "json" or (self.format == "auto" and not terminal)


class DataSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Folder in which `make up` keeps what must survive a restart."""

    dir: Path = Path(".shoal")
