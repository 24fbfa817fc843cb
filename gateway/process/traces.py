"""The spans of what a gateway does, and the trace that every message has from here on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from shared.ids import log_id
from shared.messages.inbound import InboundMessage
from shared.messages.outbound import LogLine, OutboundMessage
from shared.store.turns.inbox import Accepted
from shared.tracing import NO_SPAN, Span, continued, current, fresh, is_on, parse, span
from shared.tracing.spans import DELIVER, RECEIVE


@contextlib.contextmanager
def receiving(message: InboundMessage) -> Iterator[tuple[InboundMessage, Span]]:
    """Taking a message: the same message in a trace, that of its `traceparent` if that is valid,
    else a new one."""
    with continued(message.traceparent), span(RECEIVE) as now:
        if now.on:
            now.set("shoal.channel", message.channel)
            now.set("shoal.session", log_id(message.session))
        traceparent = (current() or fresh()).traceparent
        if message.traceparent != traceparent:
            message = msgspec.structs.replace(message, traceparent=traceparent)
        yield message, now


def received(now: Span, accepted: Accepted) -> Accepted:
    """Say what became of a message. The answer is handed on."""
    if now.on:
        now.set("shoal.turn", accepted.turn)
        now.set("shoal.ahead", accepted.ahead)
        now.set("shoal.duplicate", accepted.duplicate)
    return accepted


def delivering(line: LogLine, channel: str, session: str) -> Span:
    """Showing a line to people: `with delivering(...)` around one try of a channel to do so."""
    if not is_on() or not isinstance(line, OutboundMessage) or line.traceparent is None:
        return NO_SPAN
    now = span(DELIVER, parent=parse(line.traceparent))
    if now.on:
        now.set("shoal.channel", channel)
        now.set("shoal.session", log_id(session))
        now.set("shoal.turn", line.turn)
    return now
