"""`/new`, `/stop` and `/forget`: the commands that end something."""

from __future__ import annotations

from gateway.commands.command import CommandAnswer, CommandContext, counted
from shared.store.schedules.schedules import Schedules
from shared.store.sessions.session import Sessions, SessionState
from shared.store.turns.inbox import SHARED_SCOPE


class NewCommand:
    """Ends the conversation. A job puts it into memory."""

    name = "new"
    about = "begin a new conversation"

    async def answer(self, context: CommandContext) -> CommandAnswer:
        state = context.state
        lines = ["New conversation."]
        if state.entries:
            lines.append("What we said before goes into memory.")
        lines += _ended(state)
        if context.argument:
            lines.append("I have not read what you wrote after `/new`; please send it as a message of its own.")
        return CommandAnswer(" ".join(lines), change="new")


class StopCommand:
    """Ends the turn at the head and all background jobs of the chat. The text that the turn has
    written is kept; messages that wait are answered."""

    name = "stop"
    about = "stop what I am doing"

    async def answer(self, context: CommandContext) -> CommandAnswer:
        state = context.state
        if not state.turn:
            text = "Stopped." if state.subagents else "Nothing is running."
        elif waiting := len(state.waiting) - 1 - state.joined:
            text = f"Stopped. {counted(waiting, 'more message waits', 'more messages wait')}."
        else:
            text = "Stopped."
        if state.subagents:
            text += f" {counted(state.subagents, 'job')} in the background cancelled."
        return CommandAnswer(text, change="stop")


class ForgetCommand:
    """Deletes the memory, and the conversation as the model sees it."""

    name = "forget"
    about = "delete my memory and this conversation"

    def __init__(self, sessions: Sessions, schedules: Schedules) -> None:
        self._sessions = sessions
        self._schedules = schedules

    async def answer(self, context: CommandContext) -> CommandAnswer:
        state = context.state
        if state.scope == SHARED_SCOPE:
            return CommandAnswer(
                "I cannot do that here: this memory belongs to everybody who talks to me. "
                "Only an operator can delete it, with `shoal session forget`. Nothing was changed."
            )
        has = await self._sessions.memory_size(state.scope)
        planned = len(await self._schedules.of_session(context.message.session))
        personal = state.scope.startswith("user:")
        whose = "what I remember of you, in **all your chats**" if personal else "what I remember of this chat"
        lines = [
            f"I have forgotten {whose}. Deleted:",
            "",
            f"- `MEMORY.md` ({counted(has.memory_bytes, 'byte')})",
            f"- `HISTORY.md` ({counted(has.log_entries, 'entry', 'entries')})",
            f"- this conversation ({counted(state.entries, 'entry', 'entries')}), and older ones not yet in memory",
            "- the files that were sent here, and those in the workspace",
            *([f"- {counted(planned, 'plan')} of this chat"] if planned else []),
            "",
            "Kept: the messages that you see here, which I do not read any more.",
            *_ended(state),
        ]
        return CommandAnswer("\n".join(lines), change="forget")


def _ended(state: SessionState) -> list[str]:
    """Return a sentence for each thing that ends when the session's waiting messages are
    dropped."""
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
