"""The spans of what a worker does. Of a session they tell a hash, of the rest numbers and fixed
words."""

from __future__ import annotations

from typing import Final

from shared.ids import log_id, split_session
from shared.store.turns.queue import Claim
from shared.tracing import Span, active, current_traceparent, span
from shared.tracing.spans import INVOKE_AGENT, SUBAGENT, TURN
from worker.agent.turn import AgentResult
from worker.turn.conversation import Conversation

FAILURES: Final = frozenset({"dead", "error", "model_away", "failed", "timeout", "poison"})
"""Outcomes of turns and subagents that nobody wanted."""


def turn_span(claim: Claim, queue: str) -> Span:
    """That of one attempt at a turn, which was due in `queue`."""
    now = span(TURN)
    if now.on and claim.turn is not None:
        _set_attempt(now, claim, claim.session, claim.turn.attempt, claim.turn.crashes)
        now.set("shoal.turn", claim.turn.n)
        now.set("shoal.queue", queue)
    return now


def subagent_span(claim: Claim, session: str, id: str) -> Span:
    """That of one attempt at a subagent."""
    now = span(SUBAGENT)
    if now.on and claim.subagent is not None:
        _set_attempt(now, claim, session, claim.subagent.attempt, claim.subagent.crashes)
        now.set("shoal.child", id)
    return now


def agent_span(name: str, session: str, model: str) -> Span:
    """That of an agent at work: what it asks of models and tools is inside."""
    now = span(INVOKE_AGENT, name)
    if now.on:
        now.set("gen_ai.operation.name", "invoke_agent")
        now.set("gen_ai.agent.name", name)
        now.set("gen_ai.conversation.id", log_id(session))
        now.set("gen_ai.request.model", model)
    return now


def set_agent_result(now: Span, result: AgentResult) -> None:
    """Say what an agent used."""
    if now.on:
        used = result.usage
        now.set("gen_ai.usage.input_tokens", used.prompt_tokens)
        now.set("gen_ai.usage.output_tokens", used.completion_tokens)
        now.set("gen_ai.usage.cache_read.input_tokens", used.cached_tokens)
        now.set("shoal.cost_usd", used.cost_usd)
        now.set("shoal.rounds", result.rounds)
        now.set("shoal.outcome", result.outcome)


def set_outcome(now: Span, outcome: str) -> str:
    """Say how a turn or a subagent was left. The outcome is handed on."""
    if now.on:
        now.set("shoal.outcome", outcome)
        if outcome in FAILURES:
            now.fail(outcome)
    return outcome


def link_joined(conversation: Conversation | None) -> str | None:
    """The traceparent of the line that ends a turn. The messages that joined it are linked to the
    turn's span."""
    now = active()
    if now.on and conversation is not None:
        for message in conversation.messages[1:]:
            now.link(message.traceparent)
    return current_traceparent()


def _set_attempt(now: Span, claim: Claim, session: str, attempt: int, crashes: int) -> None:
    now.set("shoal.channel", split_session(session)[0])
    now.set("shoal.session", log_id(session))
    now.set("shoal.attempt", attempt)
    now.set("shoal.wait_ms", claim.waited_ms)
    now.set("shoal.worker", claim.owner[:12])
    if claim.owner_lost or crashes:
        now.set("shoal.takeover", "lapsed" if claim.owner_lost else "crash")
