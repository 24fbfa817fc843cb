"""Start and end of the export of traces in a process."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Final

from shared.errors import SettingsError
from shared.log import logger
from shared.settings.sections.processes import TracingSettings
from shared.tracing import tracer
from shared.version import VERSION

if TYPE_CHECKING:
    from shared.tracing.export import Exporter

FLUSH_S: Final = 2.0  # seconds that the end of a process waits for the collector
log = logger("tracing")

_exporter: Exporter | None = None


def start(settings: TracingSettings, *, process: str) -> None:
    """Export the traces of this `process` (`gateway`, `worker`) as the settings say, if they name
    an endpoint. Raises SettingsError when the libraries for it are not installed or
    `tracing.ca_file` cannot be read."""
    global _exporter
    if not settings.endpoint or _exporter is not None:
        return
    if settings.ca_file is not None and not os.access(settings.ca_file, os.R_OK):
        raise SettingsError(f"tracing.ca_file {str(settings.ca_file)!r} cannot be read; mount it, or name another")
    try:
        from shared.tracing.export import Exporter
    except ImportError:
        raise SettingsError(
            "tracing.endpoint is set, but OpenTelemetry's libraries are not installed: run `make channels` "
            "(elsewhere: pip install 'shoal[tracing]'), or remove the setting"
        ) from None
    host = socket.gethostname()
    resource = {
        "service.name": f"{settings.service_name}-{process}",
        "service.version": VERSION,
        "service.instance.id": f"{host}-{os.getpid()}",
        "host.name": host,
    }
    _exporter = Exporter(settings, resource)
    tracer.install(_exporter, share=settings.sample, content=settings.content)
    log.info("traces on", endpoint=settings.endpoint, sample=settings.sample, content=settings.content)


async def stop() -> None:
    """Send what is queued, for at most 2 s, and stop exporting."""
    global _exporter
    tracer.install(None)
    ending = _exporter
    _exporter = None
    if ending is not None:
        await asyncio.to_thread(ending.stop, FLUSH_S)
