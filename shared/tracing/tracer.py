"""Spans: what a piece of work was, when, and how it ended. Where no traces are sent, one costs next to nothing.

`with span(CHAT, model) as now:` makes one as a child of what runs; `now.on` says whether it is
recorded, and only then need it be told anything. What it is told holds no text of a message and no
secret, and of an error only its kind.
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
    """One that nobody records."""

    __slots__ = ()

    on = False
    """Whether it is recorded."""

    def __enter__(self) -> Span:
        return self

    def __exit__(self, _kind: object, exc: BaseException | None, _trace: object) -> None:
        pass

    def set(self, name: str, value: Value) -> None:
        """Tell something of it, under a name that its type has."""

    def event(self, name: str) -> None:
        """Something happened now."""

    def link(self, traceparent: str | None) -> None:
        """It has to do with another trace, or another place of this one."""

    def fail(self, kind: str) -> None:
        """It did not do what it should. `kind` is one of a few words."""

    def drop(self) -> None:
        """Send nothing of it after all."""


class Sink(Protocol):
    """Takes spans that have ended."""

    def put(self, span: Recorded) -> None:
        """Must not wait."""
        ...


class Recorded(Span):
    """One that goes to a sink when it ends. Times are ns since 1970."""

    __slots__ = (
        "_began", "_sink", "_token", "attributes", "context", "ended_ns", "error", "events", "links", "name", "parent",
        "remote", "started_ns", "type",
    )  # fmt: skip

    on = True

    def __init__(
        self, sink: Sink, type: SpanType, name: str, context: TraceContext, parent: TraceContext | None, *, remote: bool
    ) -> None:
        self._sink: Sink | None = sink
        self.type = type
        self.name = name
        self.context = context
        self.parent = parent
        self.remote = remote
        """Whether the parent is of another process."""
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
            self._ended_by(exc)
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

    def _ended_by(self, exc: BaseException) -> None:
        match exc:
            case TurnEnded() | TryLater() | asyncio.CancelledError():
                self.attributes[ENDED_BY] = type(exc).__name__
            case ModelError(kind=kind) | BadInput(code=kind) | Refused(code=kind) | BadRecord(code=kind):
                self.fail(kind)
            case _:
                self.fail(type(exc).__name__)


class _NotChosen(Span):
    """The first of a trace that is not recorded: those below it must not begin traces of their
    own."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: TraceContext) -> None:
        self._context = context

    def __enter__(self) -> _NotChosen:
        self._token: Token[TraceContext | Recorded | None] = _current.set(self._context)
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


NO_SPAN: Final = Span()

_current: Final[ContextVar[TraceContext | Recorded | None]] = ContextVar("trace", default=None)
_sink: Sink | None = None
_share = 1.0


def install(sink: Sink | None, *, share: float = 1.0) -> None:
    """Send the spans of this process, of `share` of the traces that begin in it, to a sink; None is
    nowhere."""
    global _sink, _share
    _sink, _share = sink, share


def is_on() -> bool:
    """Whether this process sends spans anywhere."""
    return _sink is not None


def span(type: SpanType, word: str = "", *, parent: TraceContext | None = None) -> Span:
    """What is about to run, as a child of `parent`, else of what runs, else the first of a trace of
    its own."""
    if _sink is None:
        return NO_SPAN
    above = parent or _current.get()
    remote = above.__class__ is TraceContext
    if isinstance(above, Recorded):
        above = above.context
    if above is None:
        context = fresh(sampled=True)
        if not chosen(context.trace_id, _share):
            return _NotChosen(context._replace(sampled=False))
    elif not above.sampled:
        return NO_SPAN
    else:
        context = TraceContext(above.trace_id, new_span_id(), sampled=True)
    return Recorded(_sink, type, f"{type.name} {word}" if word else type.name, context, above, remote=remote)


def current() -> TraceContext | None:
    """Where what runs stands: in its span, or, where none is recorded, where its message came
    from."""
    found = _current.get()
    return found.context if isinstance(found, Recorded) else found


def current_traceparent() -> str | None:
    """The same as text, for whatever is sent on."""
    found = current()
    return None if found is None else found.traceparent


def active() -> Span:
    """The span that runs."""
    found = _current.get()
    return found if isinstance(found, Recorded) else NO_SPAN


class continued:  # noqa: N801 (it reads as an adjective)
    """What runs inside belongs to the trace that came with a message, in another process perhaps.
    None, and no change, for a traceparent that says nothing."""

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
