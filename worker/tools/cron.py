"""The time of day, and schedules of the chat: tasks for later, once or repeatedly."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta, Struct

from shared.errors import BadInput, ToolFailed
from shared.messages.schedule import AtPlan, CronPlan, EveryPlan, Plan, describe_plan, local_time
from shared.store.schedules.times import check_steps, cron_fields
from shared.time_zones import find_timezone
from worker.agent.tools.tool import Safety, ToolContext

MESSAGE_CHARS: Final = 4000


class CurrentTimeArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """A time zone."""

    timezone: Annotated[
        str | None,
        Meta(description="IANA name such as Europe/Berlin; leave out for the user's own zone."),
    ] = None


class CurrentTime:
    """Returns `2026-11-21 14:05:09 (Saturday), Europe/Berlin (UTC+01:00)`."""

    name = "current_time"
    description = "The current date and time, in the user's time zone or in another one."
    parameters = CurrentTimeArguments
    safety: Safety = "read_only"
    timeout_s = 5.0

    async def run(self, arguments: CurrentTimeArguments, context: ToolContext) -> str:
        name = _zone_name(arguments.timezone or context.timezone)
        now = datetime.fromtimestamp(context.clock.now_ms() / 1000, ZoneInfo(name))
        return f"{now:%Y-%m-%d %H:%M:%S (%A)}, {name} (UTC{now.isoformat()[-6:]})"


class CronArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """A new schedule, or the id of one."""

    action: Annotated[Literal["add", "list", "remove"], Meta(description="What to do.")]
    message: Annotated[
        str | None,
        Meta(description="add: what you are to do then, complete in itself: `Remind Ann of the call`."),
    ] = None
    at: Annotated[
        str | None,
        Meta(description="add: once, at a local date and time such as `2026-11-22 09:00`."),
    ] = None
    every_seconds: Annotated[
        float | None, Meta(description="add: again and again, whenever so many seconds have passed.")
    ] = None
    cron_expr: Annotated[
        str | None,
        Meta(
            description="add: at the times of a cron expression, minute hour day-of-month month "
            "day-of-week, such as `30 8 * * 1-5`, or one of @hourly, @daily, @weekly, @monthly and "
            "@yearly."
        ),
    ] = None
    timezone: Annotated[
        str | None,
        Meta(description="add: IANA name for `at` and `cron_expr`; leave out for the user's own zone."),
    ] = None
    missed: Annotated[
        Literal["skip", "once", "all"] | None,
        Meta(
            description="add: what becomes of runs that an outage prevents: skip them, make up for "
            "all by one, or run all. Usually left out: a single time is made up for, repeated ones "
            "are skipped."
        ),
    ] = None
    id: Annotated[str | None, Meta(description="remove: the schedule's id.")] = None


class CronTool:
    """Returns `Schedule 1a2b3c4d is made: once, at 2026-11-22 09:00 (Sunday, Europe/Berlin).`"""

    name = "cron"
    parameters = CronArguments
    safety: Safety = "idempotent"
    timeout_s = 20.0

    def __init__(self, heartbeat_min: float = 0.0) -> None:
        self.description = (
            "Plan something in this chat: at its time you are given the message and answer here, "
            "without anybody writing. Give one of at, every_seconds and cron_expr. Also lists and "
            "removes what is planned."
        )
        if heartbeat_min > 0:
            self.description += (
                " For what is to be looked after all the time, write HEARTBEAT.md instead: every "
                f"{heartbeat_min:g} minutes you are given what it says, as long as it says something."
            )

    async def run(self, arguments: CronArguments, context: ToolContext) -> str:
        match arguments.action:
            case "add":
                return await self._add(arguments, context)
            case "list":
                return await self._list(context)
            case "remove":
                if not arguments.id:
                    raise ToolFailed("remove needs the id of a schedule; action list shows them")
                await context.schedules.remove(arguments.id)
                return f"Schedule {arguments.id} is removed."

    async def _add(self, arguments: CronArguments, context: ToolContext) -> str:
        text = (arguments.message or "").strip()
        if not text:
            raise ToolFailed("add needs a message: what you are to do then")
        if len(text) > MESSAGE_CHARS:
            raise ToolFailed(
                f"the message has {len(text):,} characters; at most {MESSAGE_CHARS:,} are kept. "
                "Put the rest into a file, and name that in the message"
            )
        timezone = _zone_name(arguments.timezone) if arguments.timezone else context.timezone
        now_ms = context.clock.now_ms()
        plan = _plan(arguments, timezone, now_ms)
        misfire = arguments.missed or ("once" if isinstance(plan, AtPlan) else "skip")
        key = f"{context.call_id}\0{msgspec.json.encode(arguments).decode()}"
        schedule, next_ms = await context.schedules.add(
            text, plan, misfire=misfire, timezone=timezone, key=key, now_ms=now_ms
        )
        planned = describe_plan(schedule)
        if not isinstance(plan, AtPlan):
            planned += f"; first {local_time(next_ms, schedule.timezone)}"
        read = f" {arguments.timezone!r} is read as the time zone {timezone}."
        aside = read if arguments.timezone not in (None, timezone) else ""
        return f"Schedule {schedule.id} is made: {planned}.{aside}"

    async def _list(self, context: ToolContext) -> str:
        standing = await context.schedules.listed()
        if not standing:
            return "Nothing is planned in this chat."
        rows = []
        for one in standing:
            plan = one.schedule
            when = f"{describe_plan(plan)}; next {local_time(one.next_ms, plan.timezone)}"
            rows.append(
                f"{plan.id}: {when}; {one.runs} runs, {one.missed} missed{'; paused' if one.paused else ''}: "
                f"{plan.text}"
            )
        return "\n".join(rows)


def _plan(arguments: CronArguments, timezone: str, now_ms: int) -> Plan:
    ways = ("at", "every_seconds", "cron_expr")
    given = ", ".join(way for way in ways if getattr(arguments, way) is not None)
    if given not in ways:
        raise ToolFailed(f"add needs exactly one of at, every_seconds and cron_expr; {given or 'none'} was given")
    if arguments.cron_expr is not None:
        expression = " ".join(arguments.cron_expr.split())
        try:
            check_steps(expression)
        except BadInput as exc:
            raise ToolFailed(exc.message) from None
        # Stored as five fields: a worker of an earlier release knows no other form.
        return CronPlan(cron_fields(expression), timezone)
    if (every_s := arguments.every_seconds) is not None:
        if not 0 < every_s <= 366 * 86_400:
            raise ToolFailed(f"every_seconds is {every_s:g}; give from 1 second to a year")
        return EveryPlan(max(1, int(every_s * 1000)), now_ms)
    return AtPlan(_instant(arguments.at or "", timezone))


def _instant(text: str, timezone: str) -> int:
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ToolFailed(f"{text!r} is not a date and time; write it like '2026-11-22 09:00'") from None
    zone = ZoneInfo(_zone_name(timezone))
    try:
        return int((when if when.tzinfo else when.replace(tzinfo=zone)).timestamp() * 1000)
    except (OverflowError, ValueError):
        raise ToolFailed(f"{text!r} is out of any calendar; give a time within ten years") from None


def _zone_name(name: str) -> str:
    try:
        return find_timezone(name)
    except BadInput as exc:
        raise ToolFailed(exc.message) from None
