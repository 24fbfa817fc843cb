"""`/jobs` and `/cron`: list or end what runs in the background of a chat, or is planned there."""

from __future__ import annotations

from typing import Final

from gateway.commands.command import CommandAnswer, CommandContext, counted
from shared.messages.schedule import ScheduleStatus, describe_plan, local_time
from shared.store.schedules.schedules import Schedules
from shared.store.subagents.subagents import SubagentInfo, Subagents

JOBS_SHOWN: Final = 20
PLAN_CHARS: Final = 200

_STATES: Final = {"ok": "done", "timeout": "out of time", "poison": "failed"}


async def answer_jobs(subagents: Subagents, context: CommandContext) -> CommandAnswer | str:
    """List what runs in the background of a chat, or end it."""
    word, _, rest = context.argument.partition(" ")
    found = await subagents.of_session(context.message.session)
    running = [child for child in found if child.open]
    if word.casefold() in ("cancel", "stop"):
        return _cancelled(rest.strip("`'\" ").casefold(), running)
    if word:
        return "I know `/jobs`, `/jobs cancel ID` and `/jobs cancel all`."
    if not found:
        return "Nothing runs in the background of this chat, and nothing did within the last hour."
    over = len(found) - len(running)
    ended = f", {over:,} ended within the hour" if over else ""
    head = f"{counted(len(running), 'job')} in the background of this chat{ended}:"
    return "\n".join([head, "", *map(_job_row, found[-JOBS_SHOWN:])])


def _cancelled(id: str, running: list[SubagentInfo]) -> CommandAnswer | str:
    if not id:
        return "Which one? `/jobs cancel ID` or `/jobs cancel all`; `/jobs` lists them."
    if id == "all":
        if not running:
            return "Nothing runs in the background."
        return CommandAnswer(f"{counted(len(running), 'job')} cancelled.", change="cancel")
    for child in running:
        if child.task.id == id:
            text = f"`{id}` ({child.task.label}) is cancelled."
            return CommandAnswer(text, change="cancel", child=id)
    return f"No job `{id[:32]}` runs in this chat; `/jobs` lists them."


def _job_row(child: SubagentInfo) -> str:
    state = _STATES.get(child.state, child.state)
    label = child.task.label.replace("`", "'")
    age = f"{child.age_s:.0f} s" if child.age_s < 120 else f"{child.age_s / 60:.0f} min"
    return (
        f"- `{child.task.id}` **{state}** {label}: "
        f"{counted(child.rounds, 'round')}, {counted(child.tokens, 'token')}, {age}"
    )


async def answer_cron(schedules: Schedules, context: CommandContext) -> CommandAnswer | str:
    """List what is planned in a chat, or take a plan out."""
    word, _, rest = context.argument.partition(" ")
    standing = await schedules.of_session(context.message.session)
    if word.casefold() in ("remove", "delete", "rm"):
        return _removed(rest.strip("`'\" ").casefold(), standing)
    if word:
        return "I know `/cron` and `/cron remove ID`. To plan something, just say it to me."
    if not standing:
        return "Nothing is planned in this chat."
    rows = [f"{counted(len(standing), 'plan')} in this chat:", "", *map(_plan_row, standing), ""]
    return "\n".join([*rows, "`/cron remove ID` takes one out."])


def _removed(id: str, standing: list[ScheduleStatus]) -> CommandAnswer | str:
    if not id:
        return "Which one? `/cron remove ID`; `/cron` lists them."
    for one in standing:
        if one.schedule.id == id:
            text = f"`{id}` is removed: {describe_plan(one.schedule)}."
            return CommandAnswer(text, change="unschedule", schedule=id)
    return f"There is no plan `{id[:32]}` in this chat; `/cron` lists them."


def _plan_row(one: ScheduleStatus) -> str:
    schedule = one.schedule
    text = " ".join(schedule.text.split())
    short = text if len(text) <= PLAN_CHARS else text[: PLAN_CHARS - 1] + "…"
    following = "paused" if one.paused else f"next {local_time(one.next_ms, schedule.timezone)}"
    return (
        f"- `{schedule.id}` {describe_plan(schedule)}; {following}; "
        f"{counted(one.runs, 'run')}{f', {one.missed:,} missed' if one.missed else ''}: {short}"
    )
