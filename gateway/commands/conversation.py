"""`/new`, `/stop`, `/forget`, `/pair`, and `/yes`, `/no` and `/always` for channels without buttons."""

from __future__ import annotations

import re
from typing import Literal

from gateway.commands.command import CommandAnswer, CommandContext, counted
from shared.clock import SYSTEM_CLOCK
from shared.messages.inbound import ADMIN
from shared.messages.standing import StandingApproval
from shared.store.access.audit import Audit, actor_of
from shared.store.access.pairing import PairingFailed, Pairings, let_in_line
from shared.store.schedules.schedules import Schedules
from shared.store.sessions.session import Sessions, SessionState
from shared.store.turns.approvals import REFUSALS, ApprovalOutcome, standing_words
from shared.store.turns.inbox import SHARED_SCOPE


async def answer_new(context: CommandContext) -> CommandAnswer:
    """End the conversation. A job puts it into memory."""
    lines = ["New conversation."]
    if context.state.entries:
        lines.append("What we said before goes into memory.")
    lines += _ended(context.state)
    if context.argument:
        lines.append("I have not read what you wrote after `/new`; please send it as a message of its own.")
    return CommandAnswer(" ".join(lines), change="new")


async def answer_stop(context: CommandContext) -> CommandAnswer:
    """End the turn, whose text is kept, and all background jobs; answer waiting messages."""
    state = context.state
    text = "Stopped." if state.turn or state.subagents else "Nothing is running."
    if state.turn and (waiting := len(state.waiting) - 1 - state.joined):
        text += f" {counted(waiting, 'more message waits', 'more messages wait')}."
    if state.subagents:
        text += f" {counted(state.subagents, 'job')} in the background cancelled."
    return CommandAnswer(text, change="stop")


async def answer_forget(sessions: Sessions, schedules: Schedules, context: CommandContext) -> CommandAnswer | str:
    """Delete the memory, and the conversation as the model sees it."""
    state = context.state
    if state.scope == SHARED_SCOPE:
        return (
            "I cannot do that here: this memory belongs to everybody who talks to me. "
            "Only an operator can delete it, with `shoal session forget`. Nothing was changed."
        )
    has = await sessions.memory_size(state.scope)
    planned = len(await schedules.of_session(context.message.session))
    entries = counted(state.entries, "entry", "entries")
    whose = "of you, in **all your chats**" if state.scope.startswith("user:") else "of this chat"
    lines = [
        f"I have forgotten what I remember {whose}. Deleted:",
        "",
        f"- `MEMORY.md` ({counted(has.memory_bytes, 'byte')})",
        f"- `HISTORY.md` ({counted(has.log_entries, 'entry', 'entries')})",
        f"- this conversation ({entries}), and all that was before it",
        "- the files that were sent here, and those in the workspace",
        *([f"- {counted(planned, 'plan')} of this chat"] if planned else []),
        *([f"- {counted(len(state.standing), 'standing yes', 'standing yeses')}"] if state.standing else []),
        "",
        "Kept: the messages that you see here, which I do not read any more.",
        *_ended(state),
    ]
    return CommandAnswer("\n".join(lines), change="forget")


async def answer_question(name: Literal["yes", "no", "always"], context: CommandContext) -> CommandAnswer | str:
    """Answer the question that the chat's turn waits for, or the one whose id is named."""
    asks = context.state.open_question
    named = context.argument.strip("`'\" ").casefold()
    if asks is None:
        return not_counted("over") if named else "I am not waiting for a yes to anything."
    if named and named != asks.id:
        return not_counted("unknown")
    if context.from_stranger or (asks.people and context.message.sender_id not in asks.people):
        return not_counted("not_allowed")
    if name == "no":
        return CommandAnswer(f"I do not run `{asks.tool}`.", change=name)
    if name == "yes":
        return CommandAnswer(f"I run `{asks.tool}` now.", change=name)
    if not asks.standing:
        return not_counted("not_standing")
    return CommandAnswer(
        f"I run `{asks.tool}` now, "
        f"and {standing_words(asks)} in this chat without a question, until `/always off {asks.id}`.",
        change=name,
    )


async def answer_always(context: CommandContext) -> CommandAnswer | str:
    """List the standing approvals of the chat, take one back, or give one to the open question."""
    standing = context.state.standing
    words = context.argument.strip("`'\" ").casefold().split()
    match words:
        case []:
            if not standing:
                return "There is no standing yes in this chat: I ask each time."
            rows = (f"- {_standing_row(one)}: `/always off {one.id}`" for one in standing)
            return "\n".join(["I run this here without a question:", "", *rows, "", "`/always off all` ends them all."])
        case ["off"]:
            return "Which one? `/always` lists them; `/always off ID`, `/always off all`"
        case ["off", id]:
            if id != "all" and all(one.id != id for one in standing):
                return "There is no such standing yes in this chat; `/always` lists them."
            what = "I ask again about everything" if id == "all" else "I ask again about that"
            return CommandAnswer(f"{what}.", change="standing", preset=id)
        case _:
            return await answer_question("always", context)


def _standing_row(one: StandingApproval) -> str:
    """Return what a standing approval covers, as code that nothing in it can end."""
    if not one.arguments:
        return f"every `{one.tool}`"
    shown = one.arguments.replace("\n", " ⏎ ")
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    space = " " if "`" in shown else ""
    return f"{ticks}{space}{shown}{space}{ticks}"


async def answer_pair(context: CommandContext) -> str:
    """Let a person in through the store, which counts one message once."""
    message = context.message
    actor = actor_of(message.channel, message.sender_id)
    if message.metadata.get("group") == "1":
        return "Please say that to me alone, not in a group."
    if message.metadata.get(ADMIN) != "1":
        await Audit(context.client).record("pairing", "no_admin", actor=actor, session=message.session)
        return "Only who is named in `admins` of this channel can let people in."
    if not context.argument:
        return "Which code? `/pair CODE`"
    line = let_in_line(SYSTEM_CLOCK.now_ms())
    request = f"{message.session}/{message.id}"
    try:
        person = await Pairings(context.client).approve(
            context.argument, line, by=actor, request=request, channel=message.channel
        )
    except PairingFailed as exc:
        return f"Nobody was let in: {exc.message}."
    name = f"{person.name} " if person.name else ""
    return f"Let in: {name}(`{person.sender}`)."


def not_counted(why: ApprovalOutcome) -> str:
    """Return the reply to an answer that does not count."""
    return f"{REFUSALS[why][:1].upper()}{REFUSALS[why][1:]}."


def _ended(state: SessionState) -> list[str]:
    """Return a sentence for each thing that ends when the waiting messages are dropped."""
    waiting = len(state.waiting)
    lines = []
    if state.running:
        lines.append("I stopped what I was doing.")
        waiting -= 1 + state.joined
    if state.subagents:
        lines.append(f"{counted(state.subagents, 'job')} in the background cancelled.")
    if waiting > 0:
        lines.append(f"{counted(waiting, 'waiting message was', 'waiting messages were')} dropped.")
    return lines
