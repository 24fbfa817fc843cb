"""The agent: ask, act, append, until there is an answer."""

from __future__ import annotations

from shared.errors import TurnStopped
from worker.agent.model.model import Model
from worker.agent.ports import Journal
from worker.agent.run import AgentRun
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec


async def run_agent(spec: AgentRunSpec, model: Model, tools: Toolbox, journal: Journal) -> AgentResult:
    """Run one turn to its end, from its beginning or from the end of the ledger in `spec.resume`.

    Knows neither channels nor queues. Messages from `spec.followups` join the turn before a model
    call, and after an answer, which then becomes a part of the final one. Raises ModelError when
    the model is unavailable, LeaseLost, what the allowance raises, and a TurnEnded when the turn
    ends before its reply; TurnStopped carries the text that was shown. A cancelled turn leaves its
    ledger ready for a successor.
    """
    run = AgentRun(spec, model, tools, journal)
    try:
        while True:
            reply = run.resume_reply()
            if reply is None:
                await run.claim_followups()
                if refusal := await spec.allowance.refusal():
                    return await run.refuse(refusal)
                reply = await run.ask()
            if not reply.calls and await run.followed_up(reply):
                continue
            if not reply.calls and await run.asked_for_form(reply):
                continue
            if not reply.calls:
                return await run.finish(reply)
            if run.rounds >= spec.max_rounds:
                return await run.give_up(reply)
            await run.act(reply)
    except TurnStopped as stopped:
        raise TurnStopped(stopped.partial or run.shown) from stopped
