"""`/status`."""

from __future__ import annotations

from gateway.commands.command import CommandAnswer, CommandContext, counted
from shared.settings import ModelSettings
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import list_processes
from shared.store.fleet.spending import Spending
from shared.store.sessions.session import Sessions, SessionState
from shared.version import VERSION


class StatusCommand:
    """Shows the state of the chat, its model, memory and spending, and the fleet."""

    name = "status"
    about = "show what is going on"

    def __init__(self, settings: ModelSettings, client: RedisClient) -> None:
        self._settings = settings
        self._client = client
        self._sessions = Sessions(client)
        self._spending = Spending(client)

    async def answer(self, context: CommandContext) -> CommandAnswer:
        state = context.state
        has = await self._sessions.memory_size(state.scope)
        spent = await self._spending.read(context.message.session)
        workers = sum(one.kind == "worker" and not one.draining for one in await list_processes(self._client))
        history = counted(has.log_entries, "entry", "entries")
        usd = f", about ${spent.usd:.4f}" if spent.usd else ""
        rows = [
            f"**Now:** {_doing(state, workers)}",
            *([f"**In the background:** {counted(state.subagents, 'job')}; see `/jobs`"] if state.subagents else []),
            f"**Model:** {self._model(state.preset)}",
            f"**Conversation:** {counted(state.entries, 'entry', 'entries')}",
            f"**Memory:** {counted(has.memory_bytes, 'byte')}; {history} of history",
            f"**Used today:** {counted(spent.tokens, 'token')}{usd}",
            f"**Shoal {VERSION}:** {counted(workers, 'worker')}",
        ]
        return CommandAnswer("\n".join(f"- {row}" for row in rows))

    def _model(self, preset: str) -> str:
        chosen = self._settings.presets.get(preset)
        return f"`{self._settings.name}`" if chosen is None else f"`{chosen.name}`, chosen as `{preset}`"


def _doing(state: SessionState, workers: int) -> str:
    waiting = len(state.waiting) - 1 - state.joined
    if waiting < 0:
        return "nothing to do"
    doing = "working on your message" if state.running else _held_up(state, workers)
    if state.attempt > 1:
        doing += f" (attempt {state.attempt})"
    return f"{doing}; {counted(waiting, 'more waits', 'more wait')}" if waiting else doing


def _held_up(state: SessionState, workers: int) -> str:
    if state.open_question is not None:
        return f"waiting for your yes to `{state.open_question.tool}`: `/yes` or `/no`"
    if state.model_unavailable_since:
        return "your message waits for the model, which cannot be reached; I keep trying"
    if not workers:
        return "your message waits; no worker is running to answer it"
    return "your message waits for a free worker"
