"""The spans of a gateway, and the trace that every message has from here on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from msgspec.structs import replace

from shared.ids import log_id
from shared.messages.inbound import InboundMessage
from shared.messages.outbound import LogLine, OutboundMessage
from shared.store.turns.inbox import Accepted
from shared.tracing import Span, continued, current, fresh, is_on, span
from shared.tracing.spans import DELIVER, RECEIVE
from shared.tracing.tracer import NO_SPAN, parse


@contextlib.contextmanager
def receive_span(message: InboundMessage) -> Iterator[tuple[InboundMessage, Span]]:
    """Trace a receipt; yield the message, in the trace of its `traceparent` or a new one."""
    with continued(message.traceparent), span(RECEIVE) as receipt:
        if receipt.on:
            receipt.set("shoal.channel", message.channel)
            receipt.set("shoal.session", log_id(message.session))
        traceparent = (current() or fresh()).traceparent
        if message.traceparent != traceparent:
            message = replace(message, traceparent=traceparent)
        yield message, receipt


def record_accepted(receipt: Span, accepted: Accepted) -> Accepted:
    """Set the outcome on the span of a receipt, and return it."""
    if receipt.on:
        receipt.set("shoal.turn", accepted.turn)
        receipt.set("shoal.ahead", accepted.ahead)
        receipt.set("shoal.duplicate", accepted.duplicate)
    return accepted


def delivery_span(line: LogLine, channel: str, session: str) -> Span:
    """Return a span for one try of a channel to show a line; NO_SPAN for a line without a trace."""
    if not is_on() or not isinstance(line, OutboundMessage) or line.traceparent is None:
        return NO_SPAN
    delivery = span(DELIVER, parent=parse(line.traceparent))
    if delivery.on:
        delivery.set("shoal.channel", channel)
        delivery.set("shoal.session", log_id(session))
        delivery.set("shoal.turn", line.turn)
    return delivery
