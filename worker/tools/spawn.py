"""Giving a task to a subagent, which runs in parallel to the turn, on any worker."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import Annotated, Final, Protocol

from msgspec import Meta, Struct

from shared.errors import BadInput, RedisAway, ToolFailed
from shared.messages.effects import SpawnEffect
from shared.messages.subagent import LABEL_LIMIT, NO_RESULT, SubagentTask, label_of
from shared.store.subagents.subagents import AwaitedSubagent
from shared.tracing import current_traceparent
from worker.agent.tools.tool import Safety, ToolContext

# The longest wait of a turn for a subagent; after that its result arrives as a message.
WAIT_S: Final = 300.0
LOOK_FIRST_S: Final = 0.05
LOOK_CAP_S: Final = 0.5
TASK_CHARS: Final = 16_000
PER_TURN: Final = 5


class AwaitedSubagents(Protocol):
    """The store of subagents, as far as this tool needs it."""

    async def read_awaited(self, id: str) -> AwaitedSubagent | None: ...
    async def detach(self, id: str) -> bool: ...


class SpawnArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """A task, and the facts it needs."""

    task: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=TASK_CHARS,
            description="What to do, complete in itself: a subagent sees nothing of this conversation.",
        ),
    ]
    label: Annotated[str, Meta(max_length=LABEL_LIMIT, description="A few words to call it by.")] = ""
    context: Annotated[
        str, Meta(max_length=TASK_CHARS, description="Facts that it needs, such as paths, names or numbers.")
    ] = ""
    wait: Annotated[
        bool,
        Meta(description="For short tasks: wait, and get the result as the answer. Several in one reply run at once."),
    ] = False


class SpawnTool:
    """Returns at once that the subagent has started, or with `wait` its result. It is queued in one
    step with the record of this call, so a lost worker can neither lose nor double it; its id is
    derived from session, turn and call. Raises ToolFailed over the limits."""

    name = "spawn"
    description = (
        "Give a task to a subagent, which works on it in the background with the same files and web "
        "tools. You are told when it has ended: then say so to the user. For long or independent "
        "work; short things do yourself."
    )
    parameters = SpawnArguments
    safety: Safety = "idempotent"
    concurrent = True

    def __init__(self, children: AwaitedSubagents, *, wait_s: float = WAIT_S) -> None:
        self._children = children
        self._wait_s = wait_s
        # The tool ends its wait itself, well before this limit. If it were cut off while Redis is
        # unreachable, the subagent would stay marked as waited for, and its result would be lost.
        self.timeout_s = wait_s + 600.0

    async def run(self, arguments: SpawnArguments, context: ToolContext) -> str:
        text = arguments.task.strip()
        if not text:
            raise ToolFailed("`task` is empty; say what the subagent is to do")
        task = SubagentTask(
            id=child_id(context.session, context.turn, context.call_id),
            session=context.session,
            turn=context.turn,
            call_id=context.call_id,
            task=text,
            label=label_of(arguments.label, text),
            context=arguments.context.strip(),
            wait=arguments.wait,
            at=context.clock.now_ms(),
            traceparent=current_traceparent(),
        )
        try:
            await context.effects.carry_out(SpawnEffect(task=task, per_turn=PER_TURN))
        except BadInput as exc:
            raise ToolFailed(
                f"{exc.message}, so [{task.label}] was not started. Do it yourself, or when others have ended"
            ) from None
        if not task.wait:
            return f"Subagent [{task.label}] started (id: {task.id}). I'll notify you when it completes."
        return await self._result(task, context)

    async def _result(self, task: SubagentTask, context: ToolContext) -> str:
        """Wait for the result. A worker that takes the turn over waits for the same subagent."""
        give_up_at = context.clock.monotonic() + self._wait_s
        look_s = LOOK_FIRST_S
        started = False
        while True:
            try:
                found = await self._children.read_awaited(task.id)
                if found is None:
                    raise ToolFailed(f"subagent [{task.label}] is gone, and what came of it is not known")
                # A subagent that reports to the inbox must not be reported here as well.
                if found.ended and (found.waited_for or found.state == "cancelled"):
                    context.mark_read(found.sources)
                    return _render_outcome(task, found)
                started = found.state != "queued"
                late = context.clock.monotonic() >= give_up_at
                if not found.waited_for or (late and await self._children.detach(task.id)):
                    now = "is still running"
                    if not started:
                        now = "has not started yet: no worker had room for it"
                    return (
                        f"Subagent [{task.label}] (id: {task.id}) {now}. "
                        "I'll notify you when it completes; do not wait for it."
                    )
            except RedisAway:
                pass  # the turn waits until Redis is reachable again
            await context.effects.border()
            await asyncio.sleep(look_s)
            look_s = min(LOOK_CAP_S, look_s * 1.5)


def _render_outcome(task: SubagentTask, found: AwaitedSubagent) -> str:
    result = found.result.strip() or NO_RESULT
    if found.state == "ok":
        return f"Subagent [{task.label}] completed successfully. Result:\n{result}"
    if found.state == "cancelled":
        return f"Subagent [{task.label}] was cancelled; there is no result."
    raise ToolFailed(f"subagent [{task.label}] failed: {result}")


def child_id(session: str, turn: int, call_id: str) -> str:
    """Return an id of 8 characters; the same for the same call, on every worker."""
    digest = hashlib.blake2s(f"{session}\0{turn}\0{call_id}".encode(), digest_size=5).digest()
    return base64.b32encode(digest).decode().lower()
