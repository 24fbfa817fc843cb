"""Traces: where a message went and how long each step took, from a gateway to its delivery."""

from shared.tracing.tracer import (
    NO_SPAN,
    Span,
    TraceContext,
    active,
    continued,
    current,
    current_traceparent,
    fresh,
    is_on,
    parse,
    span,
)

__all__ = [
    "NO_SPAN",
    "Span",
    "TraceContext",
    "active",
    "continued",
    "current",
    "current_traceparent",
    "fresh",
    "is_on",
    "parse",
    "span",
]
