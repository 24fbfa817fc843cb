"""`shoal jobs`: the subagents of the fleet."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from console import completion
from console.output import as_json, examples, limit, print_facts, print_json, print_table, show_chats
from console.progress import end, run_each
from console.redis_call import redis_command
from shared.clock import SYSTEM_CLOCK
from shared.errors import BadInput, LeaseLost
from shared.ids import log_id
from shared.terminal_text import counted, duration

if TYPE_CHECKING:
    from shared.store.client.redis_client import RedisClient
    from shared.store.subagents.subagents import SubagentInfo, Subagents

CANCELLED: Final = "Whoever runs this service has ended it."


@click.group()
def jobs() -> None:
    """Manage background jobs of agents (subagents): list, show, cancel.

    A job that has ended is listed for another hour, but only with --session.
    """


@jobs.command("list", epilog=examples("shoal jobs list", "shoal jobs list --session web:owner/terminal --text"))
@completion.session_option("--session", default="", help="Only this session, including ended jobs.")
@limit(100, 1000)
@click.option("--text", "with_text", is_flag=True, help="Also show the labels that the agent gave.")
@show_chats
@as_json
@redis_command
async def list_(
    client: RedisClient, session: str, limit: int, with_text: bool, show_chats: bool, as_json: bool
) -> None:
    """List running and waiting jobs, oldest first.

    With --session also those that ended within the last hour.
    """
    children = _children(client)
    if session:
        found = (await children.of_session(session))[-limit:]
    else:
        found = await children.all(limit=limit)
    rows = [_facts(child, with_text, show_chats) for child in found]
    if as_json:
        print_json({"jobs": rows})
        return
    for facts in rows:
        del facts["turn"], facts["waited_for"]
        facts |= {"tokens": f"{facts['tokens']:,}", "age": duration(facts.pop("age_s"))}
    print_table(rows, "No jobs." if session else "No job runs or waits; those that ended: --session NAME.")


@jobs.command(epilog=examples("shoal jobs show k3f7q2", "shoal jobs show k3f7q2 --text"))
@click.argument("id", shell_complete=completion.jobs)
@click.option("--text", "with_text", is_flag=True, help="Also show task and result.")
@show_chats
@as_json
@redis_command
async def show(client: RedisClient, id: str, with_text: bool, show_chats: bool, as_json: bool) -> None:
    """Show a job in full."""
    child = await _found(_children(client), id)
    facts = _facts(child, with_text, show_chats)
    if with_text:
        facts |= {"task": child.task.task, "context": child.task.context, "result": child.result}
    print_facts(facts, as_json=as_json, texts=("task", "context", "result"))


@jobs.command(epilog=examples("shoal jobs cancel k3f7q2", "shoal jobs cancel --all"))
@click.argument("id", required=False, shell_complete=completion.jobs)
@click.option("--all", "every", is_flag=True, help="All running and waiting jobs.")
@as_json
@redis_command
async def cancel(client: RedisClient, id: str | None, every: bool, as_json: bool) -> None:
    """Cancel a job. Its chat gets a notice."""
    if every == (id is not None):
        raise click.UsageError("Name one job, or say --all.")
    children = _children(client)
    chosen = await children.all() if id is None else [await _found(children, id)]
    ended: list[str] = []

    async def cancel_one(child: SubagentInfo) -> None:
        now_ms = SYSTEM_CLOCK.now_ms()
        try:
            how = await children.finish(child.task, "cancelled", CANCELLED, claim=None, now_ms=now_ms)
        except LeaseLost:  # it had ended before
            return
        if how != "known":
            ended.append(child.task.id)

    shown = every and not as_json
    whole = await run_each(chosen, cancel_one, what="cancelling", total=len(chosen), shown=shown)
    text = f"{counted(len(ended), 'job')} cancelled." if ended or every else "It has ended already."
    how_far = f"{len(ended)} of {counted(len(chosen), 'job')} cancelled, the others go on."
    end(whole, {"cancelled": ended}, text if ended or whole else "", how_far, as_json=as_json)
    if not ended and not every:
        sys.exit(1)


def _children(client: RedisClient) -> Subagents:
    from shared.settings import load
    from shared.store.subagents.subagents import Subagents
    from shared.store.turns.inbox import InboxLimits

    return Subagents(client, InboxLimits.of(load()))


async def _found(children: Subagents, id: str) -> SubagentInfo:
    child = await children.read_info(id)
    if child is None:
        raise BadInput("not_found", f"there is no job {id!r}; `shoal jobs list` shows those that run or wait")
    return child


def _facts(child: SubagentInfo, with_text: bool, show_chats: bool) -> dict[str, Any]:
    """Return the facts to show. The label is text of a conversation: only on request."""
    session = child.task.session
    return {
        "id": child.task.id,
        "state": child.state,
        **({"label": child.task.label} if with_text else {}),
        "chat" if show_chats else "session": session if show_chats else log_id(session),
        "turn": child.task.turn,
        "rounds": child.rounds,
        "tokens": child.tokens,
        "age_s": round(child.age_s, 1),
        "waited_for": child.task.wait,
    }
