"""`shoal cron`: schedules of chats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from console import completion
from console.output import as_json, examples, limit, print_facts, print_json, print_table, without_asking
from console.redis_call import redis_command, with_redis
from shared.errors import BadInput
from shared.ids import log_id
from shared.terminal_text import counted

if TYPE_CHECKING:
    from shared.messages.schedule import ScheduleStatus
    from shared.store.client.redis_client import RedisClient

_chat = completion.session_option("--chat", default="", help="Only this chat, as channel:chat.")


@click.group()
def cron() -> None:
    """Manage schedules: list, show, remove.

    ID is the one that `list` shows. If several chats have the same ID (every heartbeat has), add
    --chat.
    """


@cron.command("list", epilog=examples("shoal cron list", "shoal cron list --chat web:owner/terminal"))
@_chat
@limit(50, 10_000)
@as_json
@redis_command
async def list_(client: RedisClient, chat: str, limit: int, as_json: bool) -> None:
    """List schedules, the next one first."""
    found = sorted(await _standing(client, chat), key=lambda one: one.next_ms)
    rows = [_facts(one) for one in found[:limit]]
    if as_json:
        print_json({"schedules": rows, "total": len(found)})
        return
    for facts in rows:
        facts["missed"] = facts["missed"] or ""
        facts["next"] = "paused" if facts["paused"] else facts["next"]
    titles = ("id", "session", "in logs", "plan", "next", "runs", "missed")
    table = [{title: facts[title.replace(" ", "_")] for title in titles} for facts in rows]
    print_table(table, "Nothing is planned.")
    if len(found) > limit:
        click.echo(f"\n{len(found):,} in all; a higher --limit shows others")


@cron.command(epilog=examples("shoal cron show x8r2", "shoal cron show heartbeat --chat web:owner/terminal --text"))
@click.argument("id", shell_complete=completion.schedules)
@_chat
@click.option("--text", "with_text", is_flag=True, help="Also show the text that the agent gets.")
@as_json
@redis_command
async def show(client: RedisClient, id: str, chat: str, with_text: bool, as_json: bool) -> None:
    """Show a schedule in full."""
    one = await _found(client, id, chat)
    facts = _facts(one) | ({"text": one.schedule.text} if with_text else {})
    print_facts(facts, as_json=as_json)


@cron.command(epilog=examples("shoal cron remove x8r2", "shoal cron remove heartbeat --chat web:owner/terminal --yes"))
@click.argument("id", shell_complete=completion.schedules)
@_chat
@without_asking
@as_json
def remove(id: str, chat: str, yes: bool, as_json: bool) -> None:
    """Remove a schedule. Its chat gets no notice."""
    from shared.store.schedules.schedules import Schedules

    facts = _facts(with_redis(lambda client: _found(client, id, chat)))
    session = facts["session"]
    if not yes:
        click.confirm(f"Remove {id!r} of {session!r} ({facts['plan']})?", abort=True, err=True)
    done = with_redis(lambda client: Schedules(client).remove(session, id))
    if as_json:
        print_json({"id": id, "session": session, "removed": done})
    else:
        click.echo(f"{'Removed' if done else 'It was gone already'}: {id!r} of {session!r}.")


async def _standing(client: RedisClient, chat: str) -> list[ScheduleStatus]:
    from shared.store.schedules.schedules import Schedules
    from shared.store.sessions.backup import session_name

    schedules = Schedules(client)
    if chat:
        return await schedules.of_session(session_name(chat))
    return [one async for session in schedules.sessions() for one in await schedules.of_session(session)]


async def _found(client: RedisClient, id: str, chat: str) -> ScheduleStatus:
    found = [one for one in await _standing(client, chat) if one.schedule.id == id]
    if not found:
        raise BadInput("no_schedule", f"there is no schedule {id!r}; `shoal cron list` shows all")
    if len(found) > 1:
        chats = counted(len(found), "chat")
        raise BadInput("which_schedule", f"{chats} have a schedule {id!r}; say which by --chat NAME")
    return found[0]


def _facts(one: ScheduleStatus) -> dict[str, Any]:
    from shared.messages.schedule import describe_plan, local_time

    schedule = one.schedule
    return {
        "id": schedule.id,
        "session": schedule.session,
        "in_logs": log_id(schedule.session),
        "plan": describe_plan(schedule),
        "next": local_time(one.next_ms, schedule.timezone),
        "next_ms": one.next_ms,
        "missed_ticks": schedule.misfire,
        "timezone": schedule.timezone,
        "owner": schedule.owner,
        "created_ms": schedule.created_at,
        "paused": one.paused,
        "runs": one.runs,
        "missed": one.missed,
        "last_ms": one.last_ms,
    }
