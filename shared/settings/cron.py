"""The settings of what chats plan: `[cron]` and `[heartbeat]`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class CronSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What chats may plan: `per_chat` schedules in one, `in_all` in all, none more often than every
    `min_every_s`.

    Of one chat at most `waiting` ticks wait for their answers. A tick more than `late_s` late was
    missed: what is made up for runs within `spread_s`, so that an outage ends in no storm; of those
    that shall all be run the newest `catch_up`."""

    on: bool = True
    per_chat: Annotated[int, Meta(ge=1, le=200)] = 20
    in_all: Annotated[int, Meta(ge=1)] = 100_000
    min_every_s: Annotated[float, Meta(ge=0.1, le=86400)] = 60.0
    waiting: Annotated[int, Meta(ge=1, le=50)] = 5
    late_s: Annotated[float, Meta(gt=0, le=86400)] = 60.0
    spread_s: Annotated[float, Meta(ge=0, le=3600)] = 60.0
    catch_up: Annotated[int, Meta(ge=1, le=100)] = 10


class HeartbeatSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How often a chat's agent looks into the HEARTBEAT.md that it wrote there, in minutes; 0 =
    never."""

    every_min: Annotated[float, Meta(ge=0, le=7 * 24 * 60)] = 0.0
