"""Spans of a worker. A session appears as a hash; the rest is numbers and fixed words."""

from __future__ import annotations

from typing import Final

from shared.ids import log_id, split_session
from shared.store.turns.queue import Claim
from shared.tracing import Span, current_traceparent, span
from shared.tracing.spans import INVOKE_AGENT, SUBAGENT, TURN
from shared.tracing.tracer import active
from worker.agent.turn import AgentResult
from worker.turn.conversation import Conversation

FAILURES: Final = frozenset({"dead", "error", "model_away", "failed", "timeout", "poison"})
"""Outcomes of turns and subagents that mark their span as failed."""


def turn_span(claim: Claim, queue: str) -> Span:
    """Open the span of one attempt at a turn, which was due in `queue`."""
    opened = span(TURN)
    if opened.on and claim.turn is not None:
        _set_attempt(opened, claim, claim.session)
        opened.set("shoal.turn", claim.turn.n)
        opened.set("shoal.queue", queue)
    return opened


def subagent_span(claim: Claim, session: str, id: str) -> Span:
    """Open the span of one attempt at a subagent."""
    opened = span(SUBAGENT)
    if opened.on and claim.subagent is not None:
        _set_attempt(opened, claim, session)
        opened.set("shoal.child", id)
    return opened


def agent_span(name: str, session: str, model: str) -> Span:
    """Open the span of an agent. The spans of its models and tools are inside."""
    opened = span(INVOKE_AGENT, name)
    if opened.on:
        opened.set("gen_ai.operation.name", "invoke_agent")
        opened.set("gen_ai.agent.name", name)
        opened.set("gen_ai.conversation.id", log_id(session))
        opened.set("gen_ai.request.model", model)
    return opened


def set_agent_result(opened: Span, result: AgentResult) -> None:
    """Record the usage of an agent."""
    if opened.on:
        used = result.usage
        opened.set("gen_ai.usage.input_tokens", used.prompt_tokens)
        opened.set("gen_ai.usage.output_tokens", used.completion_tokens)
        opened.set("gen_ai.usage.cache_read.input_tokens", used.cached_tokens)
        opened.set("shoal.cost_usd", used.cost_usd)
        opened.set("shoal.rounds", result.rounds)
        opened.set("shoal.outcome", result.outcome)


def set_outcome(opened: Span, outcome: str) -> str:
    """Record the outcome of a turn or a subagent, and return it."""
    if opened.on:
        opened.set("shoal.outcome", outcome)
        if outcome in FAILURES:
            opened.fail(outcome)
    return outcome


def link_joined(conversation: Conversation | None) -> str | None:
    """Link the messages that joined a turn to its span. Return the traceparent of its last line."""
    opened = active()
    if opened.on and conversation is not None:
        for message in conversation.messages[1:]:
            opened.link(message.traceparent)
    return current_traceparent()


def _set_attempt(opened: Span, claim: Claim, session: str) -> None:
    work = claim.turn or claim.subagent
    assert work is not None
    opened.set("shoal.channel", split_session(session)[0])
    opened.set("shoal.session", log_id(session))
    opened.set("shoal.attempt", work.attempt)
    opened.set("shoal.wait_ms", claim.waited_ms)
    opened.set("shoal.worker", claim.owner[:12])
    if claim.owner_lost or work.crashes:
        opened.set("shoal.takeover", "lapsed" if claim.owner_lost else "crash")
