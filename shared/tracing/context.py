"""W3C trace context: the trace that a piece of work belongs to, as text that travels with a
message.

Source: https://www.w3.org/TR/trace-context/. `tracestate` is dropped.
"""

from __future__ import annotations

import random
import re
from typing import Final, NamedTuple

_HEADER: Final = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED: Final = 1


class TraceContext(NamedTuple):
    """A position in a trace. `trace_id` has 32 hex digits, `span_id` 16; `sampled` means that the
    trace is recorded."""

    trace_id: str
    span_id: str
    sampled: bool

    @property
    def traceparent(self) -> str:
        """Text of the header."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


def parse(traceparent: str | None) -> TraceContext | None:
    """Parse a header, also one of a later version; None when the standard does not allow it."""
    found = _HEADER.fullmatch(traceparent) if traceparent else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "00" and more is not None:
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))


def fresh(*, sampled: bool = False) -> TraceContext:
    """Start a trace."""
    return TraceContext(f"{random.getrandbits(128) or 1:032x}", new_span_id(), sampled)


def new_span_id() -> str:
    """Return 16 random hex digits."""
    return f"{random.getrandbits(64) or 1:016x}"


def chosen(trace_id: str, share: float) -> bool:
    """Return True when a trace is among the recorded `share` (0 to 1) of all traces. Decided by its
    id, so that every process decides alike."""
    return int(trace_id[18:], 16) < share * 2**56
