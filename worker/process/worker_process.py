"""What a worker and the child of a quarantine set up in their process before anything else."""

from __future__ import annotations

import asyncio

from shared import log as shared_log
from shared.network import outgoing
from shared.process.service import loop_factory
from shared.process.stderr import unbuffer_stderr
from shared.settings import Settings, secrets_of
from shared.tracing import process as tracing


def configure_process(settings: Settings) -> Settings:
    """Set up log, ways out and traces of this process, and keep the secrets of the settings out of
    its log. Return the settings. Raises SettingsError."""
    unbuffer_stderr()
    shared_log.configure(settings.log, process="worker", for_good=True)
    for secret, setting in secrets_of(settings):
        shared_log.redact(secret, setting)
    outgoing.start(settings.network)
    tracing.start(settings.tracing, process="worker")
    return settings


def event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop's where it is installed."""
    return (loop_factory() or asyncio.new_event_loop)()
