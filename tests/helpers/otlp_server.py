"""An OpenTelemetry collector for tests: OTLP over HTTP on loopback, decoded with OpenTelemetry's own protobuf."""

from __future__ import annotations

import gzip
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from shared.tracing.spans import ALL, FIRST, OF_EVERY_SPAN


class Got(msgspec.Struct, frozen=True, kw_only=True):
    """A span as it came. Ids are hex, `parent` is `""` for the first of a trace; times are ns since 1970."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent: str
    remote_parent: bool
    attributes: dict[str, Any]
    events: list[str]
    links: list[tuple[str, str]]
    failed: bool
    status_text: str
    started: int
    ended: int
    resource: dict[str, Any]

    @property
    def process(self) -> str:
        """Which process sent it."""
        return str(self.resource["service.instance.id"])


class Collector:
    """What was sent to it, oldest first. With `status` it answers that; while `holding` is set it answers nobody."""

    def __init__(self) -> None:
        self.spans: list[Got] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.status = 200
        self.holding = threading.Event()
        self.let_go = threading.Event()
        self.address = ""

    def named(self, *names: str) -> list[Got]:
        """The spans of these names, by when they began."""
        return sorted((span for span in self.spans if span.name in names), key=lambda span: span.started)

    def one(self, name: str) -> Got:
        """The only span of this name."""
        [span] = self.named(name)
        return span

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        self.paths.append(path)
        self.headers.append(headers)
        if self.holding.is_set():
            self.let_go.wait(60)
        if self.status == 200:
            plain = gzip.decompress(body)
            request = ExportTraceServiceRequest.FromString(plain)
            self.bodies.append(plain)
            self.spans.extend(_spans(request))
        return self.status


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no news."""


@contextmanager
def collector(*, certificates: Path | None = None) -> Iterator[Collector]:
    """One in threads of its own, on a free port; with TLS where `authority` (tests.helpers.certificates) wrote."""
    made = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = made.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    made.address = f"http://127.0.0.1:{server.server_port}"
    if certificates is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificates / "server.crt", certificates / "server.key")
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        made.address = f"https://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.let_go.set()
        server.shutdown()
        server.server_close()
        thread.join()


def undeclared(spans: list[Got]) -> list[str]:
    """What spans have that `shared/tracing/spans.py` does not say."""
    wrong = []
    for span in spans:
        name, _, word = span.name.partition(" ")
        found = next((one for one in ALL if one.name == name), None)
        if found is None or found.kind != span.kind or bool(word) != bool(found.word):
            wrong.append(f"{span.name} ({span.kind})")
            continue
        wrong += [f"{name}: {key}" for key in span.attributes.keys() - found.attributes - OF_EVERY_SPAN]
        wrong += [f"{name}: event {event}" for event in span.events if event != FIRST]
    return wrong


def _spans(request: ExportTraceServiceRequest) -> Iterator[Got]:
    for of_resource in request.resource_spans:
        resource = _attributes(of_resource.resource.attributes)
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield Got(
                    name=span.name,
                    kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    remote_parent=bool(span.flags & 0x200),
                    attributes=_attributes(span.attributes),
                    events=[event.name for event in span.events],
                    links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
                    failed=span.status.code == Status.STATUS_CODE_ERROR,
                    status_text=span.status.message,
                    started=span.start_time_unix_nano,
                    ended=span.end_time_unix_nano,
                    resource=resource,
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs if isinstance(pair, KeyValue)}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind) if kind else None
