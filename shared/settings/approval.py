"""The settings of what needs a person's yes: `[approval]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

from msgspec import Meta, Struct

CLASSES: Final = ("read_only", "idempotent", "unsafe")


class ApprovalSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Which tools run only after a yes in the chat: those whose names fit a pattern of `tools`
    (such as `exec` or `mcp_*`), those of `classes`, and with `untrusted` the unsafe ones once the
    turn has read text that strangers may have written. A schedule's turn asks only with
    `schedules`; else it is refused. An answer counts for `wait_s`."""

    tools: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    untrusted: bool = True
    schedules: bool = False
    wait_s: Annotated[float, Meta(ge=1, le=86400)] = 600.0


def approval_problems(settings: ApprovalSettings) -> Iterator[str]:
    """What is wrong with them, one line each."""
    for name in settings.classes:
        if name not in CLASSES:
            yield f"approval.classes has {name!r}, which is no class of tools; use {', '.join(CLASSES)}"
