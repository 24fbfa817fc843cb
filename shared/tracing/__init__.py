"""Traces: where a message went and how long each step took, through gateways and workers to its delivery."""

from shared.tracing.context import TraceContext, fresh, parse
from shared.tracing.tracer import NO_SPAN, Span, active, continued, current, current_traceparent, is_on, span

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
