"""Spans on their way to a collector: what it gets, and what becomes of them and of us when it is not there."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.errors import SettingsError
from shared.metrics import REGISTRY
from shared.settings import Secret
from shared.settings.sections.processes import TracingSettings
from shared.tracing import continued, fresh, is_on, process, span
from shared.tracing.export import BATCH_SPANS, QUEUE_SPANS, TEXT_CHARS, Exporter, endpoint_of
from shared.tracing.spans import CHAT, FIRST, RECEIVE, TURN
from shared.tracing.tracer import install
from tests.gateway.harness import free_port
from tests.helpers.certificates import authority
from tests.helpers.otlp_server import Collector, collector, undeclared
from tests.helpers.wait import eventually, eventually_sync

ROOT = Path(__file__).parents[3]
CANARY = "canary-of-an-error"


@pytest.fixture
def there() -> Iterator[Collector]:
    with collector() as made:
        yield made


@pytest.fixture(autouse=True)
def _off_afterwards() -> Iterator[None]:
    yield
    asyncio.run(process.stop())


def dropped(reason: str) -> float:
    return REGISTRY.get_sample_value("shoal_trace_spans_dropped_total", {"reason": reason}) or 0.0


def spans(many: int) -> None:
    for _ in range(many):
        with span(TURN):
            pass


async def test_a_collector_gets_what_was_reported(there: Collector) -> None:
    """Names, kinds, ids, parents, values of each kind, events, links, errors by kind, and who sent it."""
    process.start(TracingSettings(endpoint=there.address, service_name="ours"), process="worker")
    came, joined = fresh(sampled=True), fresh(sampled=True)
    with continued(came.traceparent), span(TURN) as turn:
        turn.set("shoal.channel", "web")
        turn.set("shoal.turn", 7)
        turn.link(joined.traceparent)
        with contextlib.suppress(RuntimeError), span(CHAT, "gpt") as chat:
            chat.set("gen_ai.request.temperature", 0.5)
            chat.set("gen_ai.request.stream", True)
            chat.set("gen_ai.response.finish_reasons", ("stop",))
            chat.event(FIRST)
            raise RuntimeError(CANARY)
    await process.stop()
    outer, inner = there.one("turn"), there.one("chat gpt")
    assert (outer.kind, outer.trace_id, outer.parent, outer.remote_parent) == (
        "consumer",
        came.trace_id,
        came.span_id,
        True,
    )
    assert outer.links == [(joined.trace_id, joined.span_id)]
    assert outer.attributes == {"shoal.channel": "web", "shoal.turn": 7}
    assert not outer.failed
    assert (inner.kind, inner.trace_id, inner.parent, inner.remote_parent) == (
        "client",
        came.trace_id,
        outer.span_id,
        False,
    )
    assert inner.attributes == {
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ["stop"],
        "error.type": "RuntimeError",
    }
    assert (inner.events, inner.failed, inner.status_text) == ([FIRST], True, "")
    assert outer.started <= inner.started <= inner.ended <= outer.ended
    assert abs(outer.ended / 1e9 - time.time()) < 60
    assert outer.resource["service.name"] == "ours-worker"
    assert set(outer.resource) == {"service.name", "service.version", "service.instance.id", "host.name"}
    assert undeclared(there.spans) == []
    assert CANARY.encode() not in b"".join(there.bodies)


async def test_it_comes_without_an_end_of_the_process(there: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within about a second; a full batch at once."""
    monkeypatch.setattr("shared.tracing.export.EVERY_S", 0.2)
    process.start(TracingSettings(endpoint=there.address), process="worker")
    spans(1)
    await eventually(lambda: len(there.spans) == 1, within_s=20)
    spans(2 * BATCH_SPANS + 3)
    await eventually(lambda: len(there.spans) == 2 * BATCH_SPANS + 4, within_s=20)
    assert len({one.span_id for one in there.spans}) == len(there.spans)


async def test_only_the_settings_say_what_is_sent_where(
    there: Collector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Headers of the settings go along; of OTEL_* variables, proxies and .netrc nothing has any effect."""
    elsewhere = f"http://127.0.0.1:{free_port()}"
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, elsewhere)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-strange=1,authorization=theirs")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "deflate")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=theirs,secret=1")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "theirs")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login them password theirs\n")
    headers = {"Authorization": Secret("Bearer ours"), "X-Scope": Secret("team")}
    process.start(TracingSettings(endpoint=there.address, headers=headers), process="gateway")
    spans(1)
    await process.stop()
    [sent] = there.headers
    assert (sent["authorization"], sent["x-scope"], sent["content-encoding"]) == ("Bearer ours", "team", "gzip")
    assert "x-strange" not in sent
    assert there.one("turn").resource["service.name"] == "shoal-gateway"
    assert "secret" not in there.one("turn").resource


def test_traces_have_a_place_of_their_own_at_a_collector() -> None:
    """An address that names it is left alone."""
    assert endpoint_of("http://c:4318") == endpoint_of("http://c:4318/") == "http://c:4318/v1/traces"
    assert endpoint_of("https://c/otlp") == "https://c/otlp/v1/traces"
    assert endpoint_of("https://c/otlp/v1/traces") == "https://c/otlp/v1/traces"


async def test_a_text_that_a_provider_chose_is_cut(there: Collector) -> None:
    """The name of a model, say: nobody fills the collector with it."""
    process.start(TracingSettings(endpoint=there.address), process="worker")
    with span(CHAT, "gpt") as now:
        now.set("gen_ai.response.model", "x" * 10_000)
        now.set("gen_ai.response.finish_reasons", ("y" * 10_000,))
    await process.stop()
    result = there.one("chat gpt").attributes
    assert len(result["gen_ai.response.model"]) == len(result["gen_ai.response.finish_reasons"][0]) == TEXT_CHARS


async def test_nobody_waits_for_a_collector_that_answers_nobody(there: Collector) -> None:
    """The work goes on, what does not fit into the queue is dropped and counted, and the end takes 2 s at most."""
    there.holding.set()
    process.start(TracingSettings(endpoint=there.address), process="worker")
    before = dropped("full")
    spans(BATCH_SPANS)
    await eventually(lambda: there.paths, within_s=20)
    loop = asyncio.get_running_loop()
    began = loop.time()
    spans(QUEUE_SPANS + 100)
    assert loop.time() - began < 5, "thousands of spans without a wait"
    assert dropped("full") - before == 100
    began = loop.time()
    await process.stop()
    assert loop.time() - began < process.FLUSH_S + 3
    assert not is_on()


async def test_a_collector_that_is_away_is_reported_once_and_noticed_when_it_is_back(
    there: Collector, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """What it did not get is counted; the library does not fill the log."""
    there.status = 400
    before = dropped("failed")
    process.start(TracingSettings(endpoint=there.address), process="worker")
    for tries in (1, 2):
        spans(1)
        await eventually(lambda: dropped("failed") - before == tries, within_s=20)  # noqa: B023 (called at once)
    there.status = 200
    spans(1)
    await eventually(lambda: there.spans, within_s=20)
    await process.stop()
    message = capsys.readouterr().out.splitlines()
    [away] = [line for line in message if "traces not sent" in line]
    assert "400" in away
    assert len([line for line in message if "traces sent again" in line]) == 1
    assert not any(record.name.startswith("opentelemetry") for record in caplog.records)


def test_a_collector_that_is_not_there_costs_no_turn() -> None:
    """Nobody listens at its address: the spans are lost, counted, and nobody waited."""
    exporter = Exporter(TracingSettings(endpoint=f"http://127.0.0.1:{free_port()}"), {"service.name": "x"})
    install(exporter)
    before, began = dropped("failed"), time.monotonic()
    try:
        spans(100)
        assert time.monotonic() - began < 5
        eventually_sync(lambda: dropped("failed") - before == 100, within_s=60)
    finally:
        install(None)
        exporter.stop(0.5)


async def test_a_share_of_traces_is_sent(there: Collector) -> None:
    """Whole traces, each or none of its spans."""
    process.start(TracingSettings(endpoint=there.address, sample=0.5), process="gateway")
    for _ in range(200):
        with span(RECEIVE):
            spans(1)
    await process.stop()
    first, second = there.named("receive"), there.named("turn")
    assert 50 < len(first) < 150
    assert {one.trace_id for one in first} == {one.trace_id for one in second}


def test_without_an_endpoint_nothing_is_begun() -> None:
    """No thread, no library, no sink."""
    process.start(TracingSettings(), process="worker")
    assert not is_on()


def test_libraries_that_are_missing_are_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the setting, and what to run."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.delitem(sys.modules, "shared.tracing.export")
    with pytest.raises(SettingsError, match=r"^tracing\.endpoint is set, .* run `make channels`") as caught:
        process.start(TracingSettings(endpoint="http://127.0.0.1:4318"), process="worker")
    assert "\n" not in str(caught.value)
    assert not is_on()


def test_a_file_of_certificates_that_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    """Before anything is sent."""
    settings = TracingSettings(endpoint="https://127.0.0.1:4318", ca_file=tmp_path / "none.pem")
    with pytest.raises(SettingsError, match=r"^tracing\.ca_file '.*none\.pem' cannot be read"):
        process.start(settings, process="worker")


async def test_certificates_are_checked(tmp_path: Path) -> None:
    """A collector with one of an authority of the operator's own is believed only if that authority is named."""
    ca = authority(tmp_path)
    with collector(certificates=tmp_path) as made:
        before = dropped("failed")
        process.start(TracingSettings(endpoint=made.address), process="worker")
        spans(1)
        await eventually(lambda: dropped("failed") - before == 1, within_s=30)
        await process.stop()
        assert made.spans == []
        process.start(TracingSettings(endpoint=made.address, ca_file=ca), process="worker")
        spans(1)
        await process.stop()
        assert made.one("turn")


SCRIPT = """
import asyncio, sys
from shared.settings.sections.processes import TracingSettings
from shared.tracing import process, span
from shared.tracing.spans import TURN
import gateway.app, worker.arq.settings, gateway.process.traces
import worker.turn.traces, worker.llm.policies.traced
process.start(TracingSettings(endpoint=sys.argv[1]), process="worker")
with span(TURN):
    pass
asyncio.run(process.stop())
print(*[name for name in sys.modules if name.partition(".")[0] in ("opentelemetry", "requests", "google")])
"""


def test_a_process_that_sends_no_traces_imports_nothing_for_it(there: Collector) -> None:
    """Neither OpenTelemetry nor the HTTP library that it needs; one that does has both."""
    off, on = (
        subprocess.run([sys.executable, "-c", SCRIPT, endpoint], cwd=ROOT, capture_output=True, text=True, check=True)
        for endpoint in ("", there.address)
    )
    assert off.stdout.split() == []
    assert {"opentelemetry.sdk.trace", "requests"} <= set(on.stdout.split())
    assert there.one("turn")
