"""Settings of gateways, `[web]`, `[api]`, `[hooks]`, `[delivery]`, `[media]`, and `[metrics]` of
any process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from shared.settings.secret import Secret
from shared.settings.sections.kinds import Count, Port, Text
from shared.settings.sections.language_models import NAME

OWNER: Final = "owner"
TOKEN_CHARS: Final = 16  # a token with fewer characters can be guessed
_METRICS_PORTS: Final = {"gateway": 9464, "worker": 9465}


class WebSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The web gateway. `token` is principal `owner`; `tokens` names others. The lines of a chat are
    kept for `log_days` days after its last one; of a long chat the older lines are compressed, and
    these have at most `log_bytes`. A link to a chat counts for `share_days` (0: nothing is shared).
    `progress` shows what the agent does in a turn. `first_run` offers
    the owner a model instead of the demo, and `replace_key` another key for the model whose key is
    in a file; `shoal up` sets both, for it can start all again."""

    host: Text = "127.0.0.1"
    port: Port = 8080
    token: Secret | None = None
    tokens: dict[str, Secret] = {}
    allowed_origins: tuple[str, ...] = ()
    log_days: Count = 365
    log_bytes: Annotated[int, Meta(ge=1024, le=1024 * 1024 * 1024)] = 16 * 1024 * 1024
    share_days: Annotated[int, Meta(ge=0, le=365)] = 30
    progress: bool = True
    first_run: bool = False
    replace_key: bool = False


class ApiSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The API of the web gateway. `strict` refuses unknown parameters, and tools that are no
    functions, which are ignored otherwise. `system_texts` adds system texts of requests to the agent's own system
    text; otherwise they are texts of the user. A response is stored for `store_days`. A token may
    have `background_at_once` unfinished responses in the background, 0: any number. A turn waits
    for the results of a client's functions for `calls_wait_s`. `mcp` serves the agent as an MCP
    server at /mcp, `aisdk` the stream of the AI SDK below /aisdk, `agui` the protocol AG-UI
    at /agui."""

    strict: bool = False
    system_texts: bool = False
    store_days: Annotated[int, Meta(ge=1, le=365)] = 30
    background_at_once: Annotated[int, Meta(ge=0, le=1000)] = 100
    calls_wait_s: Annotated[float, Meta(ge=1, le=86_400)] = 600.0
    mcp: bool = False
    aisdk: bool = True
    agui: bool = True


class MetricsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Address of /metrics, /healthz, /readyz. `port` 0: any free one; None: see `port_of`."""

    host: Text = "127.0.0.1"
    port: Port | None = None

    def port_of(self, process: Literal["gateway", "worker"]) -> int:
        """Return the port of a kind of process: gateway 9464, worker 9465, unless one is set."""
        return _METRICS_PORTS[process] if self.port is None else self.port


class HooksSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Address of the webhooks of all channels of a gateway, `/hooks/<channel>`. A call may bring
    `body_kb` within `body_s` and is answered within `answer_s`; at most `calls` run at once."""

    host: Text = "127.0.0.1"
    port: Port = 8090
    body_kb: Annotated[int, Meta(ge=16, le=64 * 1024)] = 4096
    body_s: Annotated[float, Meta(gt=0, le=300)] = 2.0
    answer_s: Annotated[float, Meta(gt=0, le=300)] = 10.0
    calls: Annotated[int, Meta(ge=1, le=100_000)] = 256


class DeliverySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Delivery of replies to chat platforms. One gateway serves at most `chats` of a channel at
    once. A call of a platform's API may take `call_s`; after that its outcome is unknown.
    `progress` shows what the agent is doing until its first words arrive."""

    chats: Annotated[int, Meta(ge=1, le=10_000)] = 200
    call_s: Annotated[float, Meta(gt=0, le=300)] = 20.0
    progress: bool = True


class MediaSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Files that people send and get, below `dir`; a volume that gateways and workers share in a
    cluster. By default `media` under `data.dir`. Limits: `file_mb` for one file, `per_message`
    files in a message, `session_mb` for a session, `person_mb` for all sessions of a person (0:
    none), `megapixels` for a picture, `days` for keeping them. Nothing is stored while less than
    `free_mb` of the volume, or 5 % of it, is free (0: whatever is free).

    With `store` (`s3://bucket/prefix`) the files live there instead, and `dir` holds each process's
    files that are just being sent. By default its endpoint, region and credentials are those of
    `workspace.store`; with `store_endpoint` none of those are used."""

    dir: Path = Path(".shoal/media")
    file_mb: Annotated[int, Meta(ge=1, le=15)] = 10
    per_message: Annotated[int, Meta(ge=1, le=8)] = 4
    session_mb: Annotated[int, Meta(ge=1, le=1024 * 1024)] = 256
    person_mb: Annotated[int, Meta(ge=0, le=1024 * 1024)] = 1024
    free_mb: Annotated[int, Meta(ge=0, le=1024 * 1024)] = 1024
    megapixels: Annotated[int, Meta(ge=1, le=500)] = 50
    days: Annotated[int, Meta(ge=1, le=3650)] = 30
    store: str = ""
    store_endpoint: str = ""
    store_region: str = ""
    store_access_key: Secret | None = None
    store_secret_key: Secret | None = None


def web_problems(web: WebSettings) -> Iterator[str]:
    """Yield a line for each conflict between settings that are valid one by one."""
    if web.token is not None and OWNER in web.tokens:
        yield f"web.token and web.tokens.{OWNER} are both set; they name the same person, keep one of them"
    holders: dict[Secret, str] = {}
    for name, token in [*([("web.token", web.token)] if web.token else []), *web.tokens.items()]:
        other = holders.setdefault(token, name)
        if other != name:
            yield f"web.tokens.{name} is the same secret as {other}; give each person an own one"


def short_tokens(web: WebSettings) -> list[str]:
    """Return the settings whose tokens have fewer than TOKEN_CHARS characters."""
    tokens = {"web.token": web.token} | {f"web.tokens.{name}": token for name, token in web.tokens.items()}
    return [name for name, token in tokens.items() if token is not None and len(token.reveal()) < TOKEN_CHARS]


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
