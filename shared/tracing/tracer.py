"""Spans: what a piece of work was, when it ran and how it ended. `with span(CHAT, model) as
current:` starts one as a child of the running span. `current.on` is True when it is recorded; only
then does it need attributes. Attributes hold no message text and no secret, and only the kind of an
error. Where no traces are exported a span costs 0.3 us. That is why these are not OpenTelemetry's
own no-op spans, which cost 10 us each (5 % of a turn's CPU) and 70 ms of every start. The trace
travels as W3C trace context (https://www.w3.org/TR/trace-context/) without `tracestate`."""

from __future__ import annotations

import asyncio
import random
import re
import time
from contextvars import ContextVar, Token
from typing import Final, NamedTuple, Protocol

from shared.errors import BadInput, BadRecord, ModelError, Refused, TryLater, TurnEnded
from shared.tracing.spans import ENDED_BY, ERROR, SpanType

Value = str | int | float | bool | tuple[str, ...]

_IDS: Final = r"(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})"
_HEADER: Final = re.compile(rf"(?!ff)([0-9a-f]{{2}})-{_IDS}-([0-9a-f]{{2}})(-.*)?")
_SAMPLED: Final = 1


class TraceContext(NamedTuple):
    """A position in a trace; the ids have 32 and 16 hex digits. `sampled`: it is recorded."""

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
    """Return True when a trace is among the recorded `share` (0 to 1) of all traces, by its id."""
    return int(trace_id[18:], 16) < share * 2**56


class Span:
    """A span that is not recorded."""

    __slots__ = ()

    on = False  # true when the span is recorded

    @property
    def texts(self) -> bool:
        """True when it may also have texts of people and models."""
        return False

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


_FIELDS: Final = ("attributes", "context", "events", "links", "name", "parent", "remote", "type")


class Recorded(Span):
    """A span that goes to a sink when it ends. Times are ns since 1970."""

    __slots__ = ("_began", "_sink", "_token", "ended_ns", "error", "started_ns", *_FIELDS)

    on = True

    @property
    def texts(self) -> bool:
        return _content

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
        self.remote = remote  # true when the parent belongs to another process
        self.attributes: dict[str, Value] = {}
        self.events: list[tuple[str, int]] = []
        self.links: list[TraceContext] = []
        self.error = ""
        self.ended_ns = 0
        # By the clock of the span that it is in, which then never seems to end before this one.
        above = _current.get()
        self._began = time.perf_counter_ns()
        self.started_ns = above.at(self._began) if isinstance(above, Recorded) else time.time_ns()

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

    def at(self, counter_ns: int) -> int:
        """Return the time at which the performance counter showed this."""
        return self.started_ns + counter_ns - self._began

    def _now(self) -> int:
        return self.at(time.perf_counter_ns())

    def _record_exception(self, exc: BaseException) -> None:
        match exc:
            case TurnEnded() | TryLater() | asyncio.CancelledError():
                self.attributes[ENDED_BY] = type(exc).__name__
            case ModelError(kind=kind) | BadInput(code=kind) | Refused(code=kind) | BadRecord(code=kind):
                self.fail(kind)
            case _:
                self.fail(type(exc).__name__)


class _NotSampled(Span):
    """The root of a trace that is not recorded: spans below it do not start their own traces."""

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
_content = False


def install(sink: SpanSink | None, *, share: float = 1.0, content: bool = False) -> None:
    """Send the spans of this process, of the share `share` of traces that begin here, to a sink;
    with `content` also texts of people and models."""
    global _sink, _share, _content
    _sink = sink
    _share = share
    _content = content


def is_on() -> bool:
    """Return True when this process exports spans."""
    return _sink is not None


def span(type: SpanType, word: str = "", *, parent: TraceContext | None = None) -> Span:
    """Start a span as a child of `parent`, else of the running span, else as a new trace's root."""
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
    """Run a block as part of the trace that came with a message. Yields its position; None, without
    effect, for a traceparent that cannot be parsed."""

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
