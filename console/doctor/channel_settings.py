"""The settings of channels, which gateways alone can judge: so a gateway is asked, in a process of
its own."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from shared.errors import SettingsError
from shared.settings import Settings, child_environment

WITHIN_S: Final = 60.0
_OK: Final = "ok"


def check_channels(settings: Settings) -> None:
    """Raises SettingsError, one line a problem, when a channel that is on could not start. Nothing
    is connected."""
    if not settings.channels:
        return
    try:
        told = subprocess.run(
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
    if told.returncode != 0 or told.stdout.strip() != _OK:
        raise SettingsError(told.stdout.strip() or f"`python -m gateway --check` ended with code {told.returncode}")
