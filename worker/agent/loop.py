"""The agent: ask, act, append, until there is an answer."""

from __future__ import annotations

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import TurnStopped
from worker.agent.followups import NO_FOLLOWUPS, Followups
from worker.agent.hook import NO_HOOK, AgentHook
from worker.agent.journal import SILENT, Journal, Show
from worker.agent.limits import UNLIMITED, Allowance
from worker.agent.model.compact import Compact
from worker.agent.model.model import Model
from worker.agent.run import Run
from worker.agent.tools.tool import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec


async def run_agent(
    spec: AgentRunSpec,
    model: Model,
    tools: Toolbox,
    journal: Journal,
    *,
    hook: AgentHook = NO_HOOK,
    show: Show = SILENT,
    clock: Clock = SYSTEM_CLOCK,
    compact: Compact | None = None,
    allowance: Allowance = UNLIMITED,
    followups: Followups = NO_FOLLOWUPS,
) -> AgentResult:
    """Carry one turn to its end, from its beginning or from where the ledger in `spec.resume` shows
    it stood.

    Knows no channel and no queue. Hooks that are not to be trusted come in a CompositeHook. Without
    `compact` a prompt that is too big is sent as it is. What `followups` bring joins the turn
    before a model call, and behind an answer, which is then a part of the final one. Raises
    ModelError when the model stays away, LeaseLost, what the allowance raises, and a TurnEnded when
    the turn ends before its reply; TurnStopped carries the text that was shown. A turn that is
    cancelled leaves its ledger ready for a successor.
    """
    run = Run(spec, model, tools, journal, hook, show, clock, compact, allowance, followups)
    try:
        while True:
            reply = run.take_stored()
            if reply is None:
                await run.listen()
                if refusal := await allowance.refusal():
                    return await run.refuse(refusal)
                reply = await run.ask()
            if not reply.calls and await run.goes_on_behind(reply):
                continue
            if not reply.calls:
                return await run.finish(reply)
            if run.rounds >= spec.max_rounds:
                return await run.give_up(reply)
            await run.act(reply)
    except TurnStopped as stopped:
        raise TurnStopped(stopped.partial or run.shown) from stopped
