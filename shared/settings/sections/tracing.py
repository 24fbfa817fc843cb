"""Settings of traces: `[tracing]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from shared.settings.secret import Secret


class TracingSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Export of traces to the OpenTelemetry collector at `endpoint`, over OTLP/HTTP; `""`: none.

    `headers` are sent with every request; `ca_file` has the certificates to trust. The share
    `sample` of the traces that begin here is sent. A gateway's service is called
    `<service_name>-gateway`, a worker's `<service_name>-worker`."""

    endpoint: str = ""
    headers: dict[str, Secret] = {}
    ca_file: Path | None = None
    sample: Annotated[float, Meta(ge=0, le=1)] = 1.0
    service_name: Annotated[str, Meta(min_length=1)] = "shoal"


def endpoint_problem(endpoint: str) -> str | None:
    """Check the address of the collector."""
    if not endpoint:
        return None
    try:
        parts = urlsplit(endpoint)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "is no address; write one such as http://collector:4318"
    if parts.username or parts.password:
        return "names a user or a password, which everybody would see; put them into tracing.headers"
    return None if fine else f"is {endpoint!r}; write a whole address such as http://collector:4318"
