"""Check of channel settings. Only a gateway can validate them, so a gateway process is asked."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from shared.errors import SettingsError
from shared.settings import Settings, child_environment

WITHIN_S: Final = 60.0
_OK: Final = "ok"


def check_channels(settings: Settings) -> None:
    """Raise SettingsError, one line per problem, when an enabled channel could not start. Connects
    to nothing."""
    if not settings.channels:
        return
    try:
        result = subprocess.run(
            [sys.executable, "-m", "gateway", "--check"],
            env=child_environment({}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SettingsError(f"`python -m gateway --check` did not end within {WITHIN_S:g} s; run it by hand") from None
    if result.returncode != 0 or result.stdout.strip() != _OK:
        raise SettingsError(result.stdout.strip() or f"`python -m gateway --check` ended with code {result.returncode}")
