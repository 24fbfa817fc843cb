"""Settings of the web gateway, `[web]`, and of what machines ask a process, `[metrics]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from shared.settings.secret import Secret
from shared.settings.sections.kinds import Count, Port, Text
from shared.settings.sections.model import NAME

OWNER: Final = "owner"
_METRICS_PORTS: Final = {"gateway": 9464, "worker": 9465}


class WebSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The web gateway. `token` is principal `owner`; `tokens` names others. Replies are kept
    `log_days` days.

    `progress` shows what the agent is doing while a turn runs."""

    host: Text = "127.0.0.1"
    port: Port = 8080
    token: Secret | None = None
    tokens: dict[str, Secret] = {}
    allowed_origins: tuple[str, ...] = ()
    log_days: Count = 30
    progress: bool = True


class MetricsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Address of /metrics, /healthz and /readyz. `port` None is the default of the kind of process;
    0 takes any free port."""

    host: Text = "127.0.0.1"
    port: Port | None = None

    def port_of(self, process: Literal["gateway", "worker"]) -> int:
        """Return the port that this kind of process listens on: gateway 9464, worker 9465, unless
        one is set."""
        return _METRICS_PORTS[process] if self.port is None else self.port


def web_problems(web: WebSettings) -> Iterator[str]:
    """Yield a line for each conflict between settings that are valid one by one."""
    if web.token is not None and OWNER in web.tokens:
        yield f"web.token and web.tokens.{OWNER} are both set; they name the same person, keep one of them"
    holders: dict[Secret, str] = {}
    for name, token in [*([("web.token", web.token)] if web.token else []), *web.tokens.items()]:
        other = holders.setdefault(token, name)
        if other != name:
            yield f"web.tokens.{name} is the same secret as {other}; give each person an own one"


def origins_problem(value: tuple[str, ...]) -> str | None:
    """Check Origins: scheme, host and port, and nothing more."""
    for origin in value:
        try:
            parts = urlsplit(origin)
            fine = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            fine = False
        if not fine or origin != f"{parts.scheme}://{parts.netloc}":
            return f"has {origin!r}; write scheme://host[:port] and nothing more, such as https://chat.example.org"
    return None


def principals_problem(value: dict[str, Secret]) -> str | None:
    """Check the names of people."""
    for name in value:
        if not NAME.fullmatch(name):
            return f"has the name {name!r}; use 1 to 64 letters, digits, dots, dashes and underscores"
    return None
