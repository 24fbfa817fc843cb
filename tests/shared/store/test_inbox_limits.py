"""Which settings say how much may wait, and what happens to it."""

from __future__ import annotations

from shared.settings import MemorySettings, Settings, WebSettings
from shared.settings.sections.chats import InboxSettings
from shared.store.turns.inbox import InboxLimits


def test_the_limits_are_those_of_the_settings() -> None:
    """Caps, the log, whose memory it is, and when a conversation rests: 15 minutes unless it is set."""
    settings = Settings(
        inbox=InboxSettings(cap=3, sessions_cap=7),
        web=WebSettings(log_days=9),
        memory=MemorySettings(scope="user", idle_s=1.5),
    )
    limits = InboxLimits.of(settings)
    assert (limits.cap, limits.sessions_cap, limits.log_days) == (3, 7, 9)
    assert (limits.memory_scope, limits.idle_ms) == ("user", 1500)
    assert InboxLimits.of(Settings()).idle_ms == 15 * 60 * 1000
