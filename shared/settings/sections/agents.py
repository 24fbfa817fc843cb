"""Settings of the agent: `[agent]`, `[memory]`, `[budget]`, `[plugins]`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from shared.settings.sections.kinds import Count, Seconds, Text


class AgentSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The agent loop. `dir` holds bootstrap files and skills; `timezone` None is the machine's.

    A turn ends after `turn_timeout_s`; a message whose model is unavailable is given up `give_up_s`
    after its first try, and its sender is told after `tell_s`. One that its provider fails alone,
    while others are answered or nobody else asks, is given up after `give_up_alone_s`. A tool's
    result is cut to `result_bytes` for the model and to `saved_result_chars` in history; of a
    model's thoughts `saved_thought_chars` a step are kept for the work log (0: none). A prompt over
    `compact_at` of the model's context is compacted: the newest `compact_keep` messages stay.
    A reply cut by its length is continued up to `continuations` times. A hook may take `hook_s`.

    A subagent makes at most `subagent_rounds` model calls and ends after `subagent_timeout_s`. At
    most `subagents_per_session` of one session run at once, and `subagents_in_all` in the fleet (0:
    no limit); others wait. With `own_files` the agent may edit the SOUL.md of a chat and the
    USER.md of a person.

    With `titles` the model gives a chat of the page or the console its title after the first
    answer: that of the preset `title_model`, or the chat's own."""

    max_rounds: Count = 40
    subagent_rounds: Count = 15
    memory_window: Annotated[int, Meta(ge=4)] = 100
    dir: Path = Path("agent")
    timezone: Text | None = None
    turn_timeout_s: Seconds = 900.0
    give_up_s: Seconds = 900.0
    give_up_alone_s: Seconds = 120.0
    tell_s: Seconds = 5.0
    result_bytes: Annotated[int, Meta(ge=256, le=1024 * 1024)] = 10 * 1024
    saved_result_chars: Annotated[int, Meta(ge=50, le=100_000)] = 500
    saved_thought_chars: Annotated[int, Meta(ge=0, le=100_000)] = 4000
    compact_at: Annotated[float, Meta(gt=0, le=1)] = 0.8
    compact_keep: Annotated[int, Meta(ge=2)] = 20
    continuations: Annotated[int, Meta(ge=0, le=20)] = 3
    subagent_timeout_s: Seconds = 900.0
    subagents_per_session: Annotated[int, Meta(ge=1, le=1000)] = 10
    subagents_in_all: Annotated[int, Meta(ge=0)] = 0
    own_files: bool = False
    hook_s: Seconds = 1.0
    titles: bool = True
    title_model: str = ""


class MemorySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Memory beyond the conversation. `scope` chooses the MEMORY.md of a chat: its own, that of its
    user (in chats of one person), or one for all. A conversation of `consolidate_at` entries is
    consolidated down to the newest `keep`; after `idle_s` without a message down to `idle_keep`.
    When HISTORY.md has `dream_entries`, MEMORY.md and the agent's own files are rewritten from it
    at the times of the cron expression `dream` ("": never), or every `rework_h` hours if that is
    set, whatever it has. What leaves a conversation is kept for `archive_days` (0: not at all), at
    most `archive_bytes` of it, compressed."""

    scope: Literal["chat", "user", "shared"] = "chat"
    consolidate_at: Annotated[int, Meta(ge=4, le=1000)] = 100
    keep: Annotated[int, Meta(ge=0, le=1000)] = 50
    idle_s: Annotated[float, Meta(ge=0, le=86400 * 30)] = 900.0
    idle_keep: Annotated[int, Meta(ge=0, le=1000)] = 8
    dream: str = "0 4 * * *"
    dream_entries: Annotated[int, Meta(ge=1, le=100_000)] = 20
    rework_h: Annotated[float, Meta(ge=0, le=24 * 365)] = 0.0
    file_bytes: Annotated[int, Meta(ge=1024, le=256 * 1024)] = 32 * 1024
    log_bytes: Annotated[int, Meta(ge=1024, le=16 * 1024 * 1024)] = 1024 * 1024
    archive_days: Annotated[int, Meta(ge=0, le=3650)] = 365
    archive_bytes: Annotated[int, Meta(ge=1024, le=256 * 1024 * 1024)] = 4 * 1024 * 1024


class BudgetSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of one chat for a day (UTC), 0: none. The chat is warned at the share `warn_at`."""

    tokens_per_day: Annotated[int, Meta(ge=0)] = 0
    usd_per_day: Annotated[float, Meta(ge=0)] = 0.0
    warn_at: Annotated[float, Meta(gt=0, le=1)] = 0.8


class PluginSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Plugins of installed packages: hooks, tools, commands, channels; those in `off` are not
    loaded."""

    off: tuple[str, ...] = ()


def title_problems(agent: AgentSettings, presets: Collection[str]) -> Iterator[str]:
    """Yield a line if the preset that gives titles does not exist."""
    if agent.title_model and agent.title_model not in presets:
        yield f"agent.title_model is {agent.title_model!r}, which is not a preset; add it to model.presets"


def memory_problems(memory: MemorySettings) -> Iterator[str]:
    """Yield a line for each conflict between settings that are valid one by one."""
    if memory.keep >= memory.consolidate_at:
        yield "memory.keep must be below memory.consolidate_at, or nothing would ever be consolidated; lower it"


def timezone_problem(value: str | None) -> str | None:
    """Check a name of the timezone database."""
    if value is None:
        return None
    from zoneinfo import ZoneInfo  # only who sets a timezone pays for it

    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError):
        return f"is {value!r}, which is no timezone; write a name such as Europe/Berlin"
    return None
