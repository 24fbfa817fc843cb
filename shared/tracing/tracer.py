"""Spans: what a piece of work was, when it ran and how it ended.

`with span(CHAT, model) as current:` starts one as a child of the running span. `current.on` is True
when it is recorded; only then does it need attributes. Attributes hold no message text and no
secret, and only the kind of an error.

Where no traces are exported a span costs 0.3 us. That is why these are not OpenTelemetry's own
no-op spans, which cost 10 us each (5 % of a turn's CPU) and 70 ms of every start.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar, Token
from typing import Final, Protocol

from shared.errors import BadInput, BadRecord, ModelError, Refused, TryLater, TurnEnded
from shared.tracing.context import TraceContext, chosen, fresh, new_span_id, parse
from shared.tracing.spans import ENDED_BY, ERROR, SpanType

Value = str | int | float | bool | tuple[str, ...]


class Span:
    """A span that is not recorded."""

    __slots__ = ()

    on = False
    """True when the span is recorded."""

    def __enter__(self) -> Span:
        return self

    def __exit__(self, _kind: object, exc: BaseException | None, _trace: object) -> None:
        pass

    def set(self, name: str, value: Value) -> None:
        """Set an attribute that its type declares."""

    def event(self, name: str) -> None:
        """Add an event with the current time."""

    def link(self, traceparent: str | None) -> None:
        """Link to another trace, or to another span of this one."""

    def fail(self, kind: str) -> None:
        """Mark as failed. `kind` is one of a few words."""

    def drop(self) -> None:
        """Do not export this span."""


class SpanSink(Protocol):
    """Receiver of spans that have ended."""

    def put(self, span: Recorded) -> None:
        """Accept a span without waiting."""
        ...


class Recorded(Span):
    """A span that goes to a sink when it ends. Times are ns since 1970."""

    __slots__ = (
        "_began", "_sink", "_token", "attributes", "context", "ended_ns", "error", "events", "links", "name", "parent",
        "remote", "started_ns", "type",
    )  # fmt: skip

    on = True

    def __init__(
        self,
        sink: SpanSink,
        type: SpanType,
        name: str,
        context: TraceContext,
        parent: TraceContext | None,
        *,
        remote: bool,
    ) -> None:
        self._sink: SpanSink | None = sink
        self.type = type
        self.name = name
        self.context = context
        self.parent = parent
        self.remote = remote
        """True when the parent belongs to another process."""
        self.attributes: dict[str, Value] = {}
        self.events: list[tuple[str, int]] = []
        self.links: list[TraceContext] = []
        self.error = ""
        self.started_ns = time.time_ns()
        self.ended_ns = 0
        self._began = time.perf_counter_ns()

    def __enter__(self) -> Recorded:
        self._token: Token[TraceContext | Recorded | None] = _current.set(self)
        return self

    def __exit__(self, _kind: object, exc: BaseException | None, _trace: object) -> None:
        _current.reset(self._token)
        self.ended_ns = self._now()
        if exc is not None:
            self._record_exception(exc)
        if self._sink is not None:
            self._sink.put(self)

    def set(self, name: str, value: Value) -> None:
        self.attributes[name] = value

    def event(self, name: str) -> None:
        self.events.append((name, self._now()))

    def link(self, traceparent: str | None) -> None:
        other = parse(traceparent)
        if other is not None and other not in (self.parent, *self.links):
            self.links.append(other)

    def fail(self, kind: str) -> None:
        self.error = self.attributes[ERROR] = kind

    def drop(self) -> None:
        self._sink = None

    def _now(self) -> int:
        return self.started_ns + time.perf_counter_ns() - self._began

    def _record_exception(self, exc: BaseException) -> None:
        match exc:
            case TurnEnded() | TryLater() | asyncio.CancelledError():
                self.attributes[ENDED_BY] = type(exc).__name__
            case ModelError(kind=kind) | BadInput(code=kind) | Refused(code=kind) | BadRecord(code=kind):
                self.fail(kind)
            case _:
                self.fail(type(exc).__name__)


class _NotSampled(Span):
    """The root of a trace that is not recorded, so that spans below it do not start their own
    traces."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: TraceContext) -> None:
        self._context = context

    def __enter__(self) -> _NotSampled:
        self._token: Token[TraceContext | Recorded | None] = _current.set(self._context)
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


NO_SPAN: Final = Span()

_current: Final[ContextVar[TraceContext | Recorded | None]] = ContextVar("trace", default=None)
_sink: SpanSink | None = None
_share = 1.0


def install(sink: SpanSink | None, *, share: float = 1.0) -> None:
    """Send the spans of this process to a sink (None: nowhere), for the share `share` of the traces
    that begin here."""
    global _sink, _share
    _sink, _share = sink, share


def is_on() -> bool:
    """Return True when this process exports spans."""
    return _sink is not None


def span(type: SpanType, word: str = "", *, parent: TraceContext | None = None) -> Span:
    """Start a span as a child of `parent`, else of the running span, else as the root of a new
    trace."""
    if _sink is None:
        return NO_SPAN
    above = parent or _current.get()
    remote = above.__class__ is TraceContext
    if isinstance(above, Recorded):
        above = above.context
    if above is None:
        context = fresh(sampled=True)
        if not chosen(context.trace_id, _share):
            return _NotSampled(context._replace(sampled=False))
    elif not above.sampled:
        return NO_SPAN
    else:
        context = TraceContext(above.trace_id, new_span_id(), sampled=True)
    return Recorded(_sink, type, f"{type.name} {word}" if word else type.name, context, above, remote=remote)


def current() -> TraceContext | None:
    """Return the position of the running span, or of the message that this work came from."""
    found = _current.get()
    return found.context if isinstance(found, Recorded) else found


def current_traceparent() -> str | None:
    """Return the current position as text, for records that are sent on."""
    found = current()
    return None if found is None else found.traceparent


def active() -> Span:
    """Return the running span."""
    found = _current.get()
    return found if isinstance(found, Recorded) else NO_SPAN


class continued:  # noqa: N801 (it reads as an adjective)
    """Run a block as part of the trace that came with a message.

    Yields its position; None, without effect, for a traceparent that cannot be parsed."""

    __slots__ = ("_context", "_token")

    def __init__(self, traceparent: str | None) -> None:
        self._context = parse(traceparent)

    def __enter__(self) -> TraceContext | None:
        if self._context is not None:
            self._token: Token[TraceContext | Recorded | None] = _current.set(self._context)
        return self._context

    def __exit__(self, *_: object) -> None:
        if self._context is not None:
            _current.reset(self._token)
