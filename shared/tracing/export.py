"""Export of spans to an OpenTelemetry collector: one thread, a bounded queue, no waits. Imported
only where traces are exported. OTEL_* variables are ignored: the settings decide."""

from __future__ import annotations

import contextlib
import logging
import ssl
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
from requests.adapters import HTTPAdapter

from shared.log import logger
from shared.metrics import TRACE_SPANS_DROPPED
from shared.network.outgoing import current
from shared.settings.sections.processes import TracingSettings
from shared.tracing.spans import CONTENT
from shared.tracing.tracer import Recorded, TraceContext, Value
from shared.version import VERSION

QUEUE_SPANS: Final = 4096  # limit of queued spans; more are dropped and counted
BATCH_SPANS: Final = 256
EVERY_S: Final = 1.0
TRY_S: Final = 5.0  # seconds that one batch may take, its retries included
TEXT_CHARS: Final = 256  # limit for texts that a provider chose, such as the name of its model
_PATH: Final = "/v1/traces"
_SCOPE: Final = InstrumentationScope("shoal", VERSION)
_LIBRARY_LOG: Final = "opentelemetry.exporter"

log = logger("tracing")


class Exporter:
    """The span sink of a process. Without `stop` the spans of the last second are lost."""

    def __init__(self, settings: TracingSettings, resource: Mapping[str, str]) -> None:
        self._resource = Resource(dict(resource))
        self._warning = _FirstWarning()
        url = endpoint_of(settings.endpoint)
        gzip = Compression.Gzip
        session = _Session(settings)
        self._exporter = OTLPSpanExporter(url, timeout=TRY_S, compression=gzip, session=session)
        self._waiting: deque[Recorded] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._unavailable = False
        self._thread = threading.Thread(target=self._run, name="tracing", daemon=True)
        self._thread.start()

    def put(self, span: Recorded) -> None:
        """Queue a span; drop it when the queue is full."""
        waiting = len(self._waiting)
        if waiting >= QUEUE_SPANS:
            TRACE_SPANS_DROPPED.labels("full").inc()
            return
        self._waiting.append(span)
        if waiting + 1 == BATCH_SPANS:
            self._wake.set()

    def stop(self, within_s: float) -> None:
        """Send what is queued within this time, and end. Blocks the calling thread."""
        self._stopping = True
        self._wake.set()
        self._thread.join(within_s)
        if self._thread.is_alive():
            log.warning("traces lost", why="the collector did not take them in time", spans=len(self._waiting))
            self._waiting.clear()
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _run(self) -> None:
        while True:
            self._wake.wait(EVERY_S)
            self._wake.clear()
            last = self._stopping
            while self._waiting:
                batch: list[Recorded] = []
                with contextlib.suppress(IndexError):  # empty, or cleared by `stop`
                    while len(batch) < BATCH_SPANS:
                        batch.append(self._waiting.popleft())
                self._send(batch)
            if last:
                return

    def _send(self, spans: Sequence[Recorded]) -> None:
        self._warning.text = ""
        try:
            done = self._exporter.export([self._readable_span(span) for span in spans]) is SpanExportResult.SUCCESS
        except Exception as exc:  # a span that cannot be written must not end the thread
            done = False
            self._warning.text = type(exc).__name__
        if not done:
            TRACE_SPANS_DROPPED.labels("failed").inc(len(spans))
        if done == self._unavailable:  # logged on a change, not for every batch
            self._unavailable = not done
            if done:
                log.info("traces sent again")
            else:
                log.warning("traces not sent", why=self._warning.text)

    def _readable_span(self, span: Recorded) -> ReadableSpan:
        return ReadableSpan(
            span.name,
            context=_span_context(span.context, remote=False),
            parent=None if span.parent is None else _span_context(span.parent, remote=span.remote),
            resource=self._resource,
            attributes={
                name: value if name in CONTENT else _truncate(value) for name, value in span.attributes.items()
            },
            events=[Event(name, timestamp=at_ns) for name, at_ns in span.events],
            links=[Link(_span_context(other, remote=True)) for other in span.links],
            kind=SpanKind[span.type.kind.upper()],
            status=Status(StatusCode.ERROR if span.error else StatusCode.UNSET),
            start_time=span.started_ns,
            end_time=span.ended_ns,
            instrumentation_scope=_SCOPE,
        )


def endpoint_of(address: str) -> str:
    """Return the URL for traces of the collector at `address`, which may be it already."""
    return address if urlsplit(address).path.endswith(_PATH) else address.rstrip("/") + _PATH


class _Session(requests.Session):
    """HTTP session that ignores headers, certificates and proxies of the environment: the settings
    decide."""

    def __init__(self, settings: TracingSettings) -> None:
        super().__init__()
        self.trust_env = False
        headers = {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "gzip",
            "User-Agent": f"shoal/{VERSION}",
            **{name: value.reveal() for name, value in settings.headers.items()},
        }
        verify = str(settings.ca_file) if settings.ca_file is not None else True
        self._options: dict[str, Any] = {"headers": headers, "verify": verify, "allow_redirects": False}
        rules = current()
        if proxy := rules.proxy_for(endpoint_of(settings.endpoint)):
            self._options["proxies"] = {"http": proxy, "https": proxy}
        if settings.ca_file is None and (context := rules.tls_context()) is not None:
            self.mount("https://", _Adapter(context))

    def request(self, method: Any, url: Any, *_: Any, data: Any = None, timeout: Any = None, **__: Any) -> Any:
        """Send the exporter's request with our headers only."""
        return super().request(method, url, data=data, timeout=timeout, **self._options)


class _Adapter(HTTPAdapter):
    """Connections that trust what the context trusts, with a proxy and without."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__()

    def init_poolmanager(self, *args: Any, **more: Any) -> None:
        super().init_poolmanager(*args, ssl_context=self._context, **more)

    def proxy_manager_for(self, proxy: Any, **more: Any) -> Any:
        return super().proxy_manager_for(proxy, ssl_context=self._context, **more)


class _FirstWarning(logging.Handler):
    """Keeps the library's first warning about a batch, which it would log for every one."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        library = logging.getLogger(_LIBRARY_LOG)
        library.handlers[:] = [self]
        library.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.text = self.text or record.getMessage()[:TEXT_CHARS]


def _span_context(context: TraceContext, *, remote: bool) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT)
    return SpanContext(int(context.trace_id, 16), int(context.span_id, 16), remote, flags)


def _truncate(value: Value) -> Value:
    match value:
        case str():
            return value[:TEXT_CHARS]
        case tuple():
            return tuple(one[:TEXT_CHARS] for one in value)
        case _:
            return value
