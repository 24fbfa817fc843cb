"""Sends spans to an OpenTelemetry collector, beside the work: a thread, a queue with an end, and
nobody who waits.

Imported only where traces are sent. Nothing is read from OTEL_* variables: what a process sends
where is in its settings.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from shared.log import logger
from shared.metrics import TRACE_SPANS_DROPPED
from shared.settings.sections.tracing import TracingSettings
from shared.tracing.context import TraceContext
from shared.tracing.tracer import Recorded, Value
from shared.version import VERSION

QUEUE_SPANS: Final = 4096
"""What comes when so many wait is dropped, and counted."""

BATCH_SPANS: Final = 256
EVERY_S: Final = 1.0
TRY_S: Final = 5.0
"""How long one batch may take, its repeats included."""

TEXT_CHARS: Final = 256
"""Of a text that a provider chose, such as the name of its model, so much is sent."""

_PATH: Final = "/v1/traces"
_SCOPE: Final = InstrumentationScope("shoal", VERSION)
_LIBRARY_LOG: Final = "opentelemetry.exporter"

log = logger("tracing")


class Exporter:
    """The Sink of a process. `stop` must be called, or what the last second brought is lost."""

    def __init__(self, settings: TracingSettings, resource: Mapping[str, str]) -> None:
        self._resource = Resource(dict(resource))
        self._heard = _Heard()
        self._to = OTLPSpanExporter(
            endpoint_of(settings.endpoint),
            timeout=TRY_S,
            compression=Compression.Gzip,
            session=_Session(settings),
        )
        self._waiting: deque[Recorded] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._away = False
        self._thread = threading.Thread(target=self._run, name="tracing", daemon=True)
        self._thread.start()

    def put(self, span: Recorded) -> None:
        """Send it soon; drop it when too many wait."""
        waiting = len(self._waiting)
        if waiting >= QUEUE_SPANS:
            TRACE_SPANS_DROPPED.labels("full").inc()
            return
        self._waiting.append(span)
        if waiting + 1 == BATCH_SPANS:
            self._wake.set()

    def stop(self, within_s: float) -> None:
        """Send what waits, within this time, and end. May be called from any thread; blocks it."""
        self._stopping = True
        self._wake.set()
        self._thread.join(within_s)
        if self._thread.is_alive():
            log.warning("traces lost", why="the collector did not take them in time", spans=len(self._waiting))
            self._waiting.clear()
        self._to.shutdown()  # type: ignore[no-untyped-call]

    def _run(self) -> None:
        while True:
            self._wake.wait(EVERY_S)
            self._wake.clear()
            last = self._stopping
            while batch := self._batch():
                self._send(batch)
            if last:
                return

    def _batch(self) -> list[Recorded]:
        batch: list[Recorded] = []
        with contextlib.suppress(IndexError):  # none is left, also when `stop` has just given the rest up
            while len(batch) < BATCH_SPANS:
                batch.append(self._waiting.popleft())
        return batch

    def _send(self, spans: Sequence[Recorded]) -> None:
        self._heard.said = ""
        try:
            done = self._to.export([self._made(span) for span in spans]) is SpanExportResult.SUCCESS
        except Exception as exc:  # a span that cannot be written must not end the thread
            done, self._heard.said = False, type(exc).__name__
        if not done:
            TRACE_SPANS_DROPPED.labels("failed").inc(len(spans))
        if done == self._away:  # once, not with every batch
            self._away = not done
            if done:
                log.info("traces sent again")
            else:
                log.warning("traces not sent", why=self._heard.said)

    def _made(self, span: Recorded) -> ReadableSpan:
        return ReadableSpan(
            span.name,
            context=_place(span.context, remote=False),
            parent=None if span.parent is None else _place(span.parent, remote=span.remote),
            resource=self._resource,
            attributes={name: _short(value) for name, value in span.attributes.items()},
            events=[Event(name, timestamp=at_ns) for name, at_ns in span.events],
            links=[Link(_place(other, remote=True)) for other in span.links],
            kind=SpanKind[span.type.kind.upper()],
            status=Status(StatusCode.ERROR if span.error else StatusCode.UNSET),
            start_time=span.started_ns,
            end_time=span.ended_ns,
            instrumentation_scope=_SCOPE,
        )


def endpoint_of(address: str) -> str:
    """Where the collector at `address` takes traces; an address that says so itself is left
    alone."""
    return address if urlsplit(address).path.endswith(_PATH) else address.rstrip("/") + _PATH


class _Session(requests.Session):
    """Sends what the settings say, and no header, certificate or proxy that the environment has."""

    def __init__(self, settings: TracingSettings) -> None:
        super().__init__()
        self.trust_env = False
        self._believed = str(settings.ca_file) if settings.ca_file is not None else True
        self._headers = {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "gzip",
            "User-Agent": f"shoal/{VERSION}",
            **{name: value.reveal() for name, value in settings.headers.items()},
        }

    def request(self, method: Any, url: Any, *_: Any, data: Any = None, timeout: Any = None, **__: Any) -> Any:
        """The exporter's request, with our headers alone."""
        return super().request(
            method,
            url,
            data=data,
            headers=self._headers,
            timeout=timeout,
            verify=self._believed,
            allow_redirects=False,
        )


class _Heard(logging.Handler):
    """Keeps the first word of the library's log about a batch. The log itself would repeat it with
    every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.said = ""
        library = logging.getLogger(_LIBRARY_LOG)
        library.handlers[:] = [self]
        library.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.said = self.said or record.getMessage()[:TEXT_CHARS]


def _place(context: TraceContext, *, remote: bool) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT)
    return SpanContext(int(context.trace_id, 16), int(context.span_id, 16), remote, flags)


def _short(value: Value) -> Value:
    match value:
        case str():
            return value[:TEXT_CHARS]
        case tuple():
            return tuple(one[:TEXT_CHARS] for one in value)
        case _:
            return value
