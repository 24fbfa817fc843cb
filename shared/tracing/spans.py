"""Every span, declared once: name, kind and attributes. docs/tracing.md has the same table. Names
that begin with `gen_ai.` are those of OpenTelemetry's conventions for generative AI."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Kind = Literal["internal", "client", "producer", "consumer"]


class SpanType(NamedTuple):
    """Declaration of a span. In a name such as `chat {model}`, `word` names what follows `name`."""

    name: str
    kind: Kind
    attributes: frozenset[str]
    word: str = ""
    content: frozenset[str] = frozenset()
    """Attributes with texts of people and models, set only with `tracing.content`."""


ERROR: Final = "error.type"
ENDED_BY: Final = "shoal.ended_by"
OF_EVERY_SPAN: Final = frozenset({ERROR, ENDED_BY})
"""Outcome of a span that failed: the kind of error, or what else ended it, such as a stop."""

FIRST: Final = "first_token"  # the only event: a model's first text


def _type(name: str, kind: Kind, *attributes: str, word: str = "") -> SpanType:
    return SpanType(name, kind, frozenset(attributes), word)


_CHAT: Final = ("shoal.channel", "shoal.session")
_ATTEMPT: Final = ("shoal.attempt", "shoal.takeover", "shoal.wait_ms", "shoal.worker")
_RUN: Final = (*_CHAT, *_ATTEMPT, "shoal.outcome")
_MODEL: Final = (
    "gen_ai.operation.name",
    "gen_ai.request.model",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "shoal.cost_usd",
)
_CALL: Final = (
    "gen_ai.provider.name",
    "gen_ai.request.max_tokens",
    "gen_ai.request.temperature",
    "gen_ai.request.stream",
    "gen_ai.response.model",
    "gen_ai.response.finish_reasons",
    "gen_ai.response.time_to_first_chunk",
    "server.address",
)
_AGENT: Final = ("gen_ai.agent.name", "gen_ai.conversation.id", "shoal.rounds", "shoal.outcome")
_TOOL: Final = ("gen_ai.tool.name", "gen_ai.tool.type", "gen_ai.tool.call.id", "shoal.outcome")

RECEIVE: Final = _type("receive", "producer", *_CHAT, "shoal.turn", "shoal.ahead", "shoal.duplicate")
TICK: Final = _type("tick", "producer", *_CHAT, "shoal.schedule")
TURN: Final = _type("turn", "consumer", *_RUN, "shoal.turn", "shoal.queue")
SUBAGENT: Final = _type("subagent", "consumer", *_RUN, "shoal.child")
CONTENT: Final = frozenset(
    {"gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"}
)
_MESSAGES: Final = frozenset(name for name in CONTENT if name.endswith(".messages"))

INVOKE_AGENT: Final = _type("invoke_agent", "internal", *_MODEL, *_AGENT, word="agent")
CHAT: Final = _type("chat", "client", *_MODEL, *_CALL, word="model")._replace(content=_MESSAGES)
EXECUTE_TOOL: Final = _type("execute_tool", "internal", "gen_ai.operation.name", *_TOOL, word="tool")._replace(
    content=CONTENT - _MESSAGES
)
JOB: Final = _type("job", "consumer", "shoal.attempt", word="job")
DELIVER: Final = _type("deliver", "client", *_CHAT, "shoal.turn")

ALL: Final = (RECEIVE, TICK, TURN, SUBAGENT, INVOKE_AGENT, CHAT, EXECUTE_TOOL, JOB, DELIVER)
