"""Settings of processes: `[worker]`, `[runner]`, `[log]`, `[data]` and `[tracing]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from shared.settings.secret import Secret
from shared.settings.sections.kinds import Count, Text

Uid = Annotated[int, Meta(ge=0, le=2**32 - 2)]


class WorkerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Capacity of one worker, the length of its leases, and the time that a drain may take. Turns
    that were running in two crashes run isolated, in processes with `quarantine_mb` of memory. One
    person gets at most `share` of the fleet's turns while others wait."""

    turns: Count = 100
    jobs: Count = 20
    processes: Annotated[int, Meta(ge=1, le=256)] = 1
    lease_s: Annotated[float, Meta(ge=0.5, le=300)] = 15.0
    drain_s: Annotated[float, Meta(ge=0, le=3600)] = 55.0
    quarantine_mb: Annotated[int, Meta(ge=128)] = 1024
    share: Annotated[float, Meta(gt=0, le=1)] = 0.5


class RunnerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The process that runs commands for a worker. It listens on `socket`, for workers of the user
    `worker_uid` (None: its own user), and runs at most `commands` at once. `scratch` holds the
    temporary folders of commands. A runner reads these settings, `workspace` and `log`, from the
    environment alone: it must not need a file with secrets."""

    socket: Path = Path(".shoal/runner.sock")
    worker_uid: Uid | None = None
    commands: Annotated[int, Meta(ge=1, le=64)] = 8
    scratch: Path = Path("/tmp")  # noqa: S108 (a folder of its own is made there, for its user alone)


class LogSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Format of the log. `auto` is `console` with colour on a terminal and `json` elsewhere."""

    format: Literal["auto", "json", "console"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"
    colour: Literal["auto", "always", "never"] = "auto"

    def as_json(self, *, terminal: bool) -> bool:
        """Return True when lines are JSON on an output that is, or is not, a terminal."""
        return self.format == "json" or (self.format == "auto" and not terminal)


class DataSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Folder in which `make up` keeps what must survive a restart."""

    dir: Path = Path(".shoal")


class TracingSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Export of traces to the OpenTelemetry collector at `endpoint`, over OTLP/HTTP; `""`: none.
    `headers` are sent with every request; `ca_file` has the certificates to trust. The share
    `sample` of the traces that begin here is sent; with `content` also what people and models wrote
    and what tools got and gave. A gateway's service is called
    `<service_name>-gateway`, a worker's `<service_name>-worker`."""

    endpoint: str = ""
    headers: dict[str, Secret] = {}
    ca_file: Path | None = None
    sample: Annotated[float, Meta(ge=0, le=1)] = 1.0
    service_name: Text = "shoal"
    content: bool = False


def endpoint_problem(endpoint: str) -> str | None:
    """Check the address of the collector."""
    if not endpoint:
        return None
    try:
        parts = urlsplit(endpoint)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "is not an address; write one such as http://collector:4318"
    if parts.username or parts.password:
        return "names a user or a password, which everybody would see; put them into tracing.headers"
    return None if fine else f"is {endpoint!r}; write a whole address such as http://collector:4318"
