"""`/cron`."""

from __future__ import annotations

from gateway.commands.command import CommandAnswer, CommandContext, counted
from shared.messages.schedule import ScheduleStatus, describe_plan, local_time
from shared.store.schedules.schedules import Schedules

REMOVE = ("remove", "delete", "rm")
SHOWN_CHARS = 200


class CronCommand:
    """Lists what is planned in a chat, or takes a plan out."""

    name = "cron"
    about = "list what is planned here; `/cron remove ID`"

    def __init__(self, schedules: Schedules) -> None:
        self._schedules = schedules

    async def answer(self, context: CommandContext) -> CommandAnswer:
        word, _, rest = context.argument.partition(" ")
        standing = await self._schedules.of_session(context.message.session)
        if word.casefold() in REMOVE:
            return _removed(rest.strip("`'\" ").casefold(), standing)
        if word:
            return CommandAnswer("I know `/cron` and `/cron remove ID`. To plan something, just say it to me.")
        if not standing:
            return CommandAnswer("Nothing is planned in this chat.")
        rows = [f"{counted(len(standing), 'plan')} in this chat:", "", *map(_row, standing), ""]
        return CommandAnswer("\n".join([*rows, "`/cron remove ID` takes one out."]))


def _removed(id: str, standing: list[ScheduleStatus]) -> CommandAnswer:
    if not id:
        return CommandAnswer("Which one? `/cron remove ID`; `/cron` lists them.")
    for one in standing:
        if one.schedule.id == id:
            return CommandAnswer(f"`{id}` is removed: {describe_plan(one.schedule)}.", change="unschedule", schedule=id)
    return CommandAnswer(f"There is no plan `{id[:32]}` in this chat; `/cron` lists them.")


def _row(one: ScheduleStatus) -> str:
    schedule = one.schedule
    text = " ".join(schedule.text.split())
    short = text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"
    following = "paused" if one.paused else f"next {local_time(one.next_ms, schedule.timezone)}"
    runs = f"{counted(one.runs, 'run')}{f', {one.missed:,} missed' if one.missed else ''}"
    return f"- `{schedule.id}` {describe_plan(schedule)}; {following}; {runs}: {short}"
