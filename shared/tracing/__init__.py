"""Traces: where a message went and how long each step took, from a gateway to its delivery."""

from shared.tracing.tracer import Span, continued, current, current_traceparent, fresh, is_on, span

__all__ = ["Span", "continued", "current", "current_traceparent", "fresh", "is_on", "span"]
