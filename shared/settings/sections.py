"""Every setting with its kind, its range and its default. `shared.settings.load` fills them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, field

from shared.settings.approval import ApprovalSettings
from shared.settings.busy import Busy
from shared.settings.cron import CronSettings, HeartbeatSettings
from shared.settings.delivery import DeliverySettings, HooksSettings
from shared.settings.mcp import McpServerSettings
from shared.settings.media import MediaSettings
from shared.settings.runner import RunnerSettings
from shared.settings.secret import RedisUrl, Secret
from shared.settings.tracing import TracingSettings

Count = Annotated[int, Meta(ge=1)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Seconds = Annotated[float, Meta(gt=0, le=86400)]
Text = Annotated[str, Meta(min_length=1)]

EMBEDDED: Final = "embedded"
EMBEDDED_URL_FILE: Final = "valkey.url"  # under data.dir, written by the embedded server
_METRICS_PORTS: Final = {"gateway": 9464, "worker": 9465}


class RedisSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where all state is. `embedded` is the Valkey that `make up` starts.

    `user` and `password` may stand in the address or here; `ca_file` is whose certificates are
    believed (rediss://)."""

    url: RedisUrl = RedisUrl(EMBEDDED)
    user: Text | None = None
    password: Secret | None = None
    ca_file: Path | None = None


class PresetSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Another model that a person may choose in a chat. What is not set is as in `[model]`.

    Without an own `api_base` and `api_key` it is reached as a fallback would be."""

    name: Text
    api_base: Text | None = None
    api_key: Secret | None = None
    client: Literal["auto", "litellm", "direct"] | None = None
    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    about: str = ""


class ModelSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The language model. `name` is a LiteLLM name, or `demo` for the built-in one that needs no
    network.

    `fallbacks` are asked in order when it cannot answer; `fallback_keys` has the keys of those at
    other providers. `headers` go with every request to `api_base`, and with `traceparent` the trace
    that it is of. `context_tokens` None and what is not in `prices` (USD a million tokens, in and
    out) are looked up in a built-in table. `requests_per_minute` holds for the whole fleet and one
    key; `breaker_after` faults in a row close the way to a provider for up to `breaker_s`.
    """

    name: Text = "demo"
    api_base: Text | None = None
    api_key: Secret | None = None
    client: Literal["auto", "litellm", "direct"] = "auto"
    fallbacks: tuple[str, ...] = ()
    fallback_keys: dict[str, Secret] = {}
    headers: dict[str, Secret] = {}
    traceparent: bool = False
    max_tokens: Count = 4096
    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.7
    first_token_s: Seconds = 60.0
    between_tokens_s: Seconds = 60.0
    total_s: Seconds = 300.0
    retry_waits_s: tuple[Seconds, ...] = (1.0, 2.0, 4.0)
    context_tokens: Count | None = None
    prices: dict[str, tuple[float, float]] = {}
    requests_per_minute: Count | None = None
    breaker_after: Count = 5
    breaker_s: Seconds = 30.0
    presets: dict[str, PresetSettings] = {}


class AgentSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The agent loop. `dir` holds bootstrap files and skills; `timezone` None is the machine's.

    A turn ends after `turn_timeout_s`; a message whose model stays away is given up `give_up_s`
    after its first try, and its person is told after `tell_s`. A tool's result has at most
    `result_bytes` for the model and `saved_result_chars` in history. A prompt over `compact_at` of
    the model's context is compacted: the newest `compact_keep` messages stay. A reply cut by its
    length is continued up to `continuations` times. A hook has `hook_s`.

    A subagent makes at most `subagent_rounds` model calls and ends after `subagent_timeout_s`. Of
    one session `subagents_per_session` run at once, of all `subagents_in_all` (0 = any number);
    others wait for a place.
    """

    max_rounds: Count = 40
    subagent_rounds: Count = 15
    memory_window: Annotated[int, Meta(ge=4)] = 100
    dir: Path = Path("agent")
    timezone: Text | None = None
    turn_timeout_s: Seconds = 900.0
    give_up_s: Seconds = 900.0
    tell_s: Seconds = 30.0
    result_bytes: Annotated[int, Meta(ge=256, le=1024 * 1024)] = 10 * 1024
    saved_result_chars: Annotated[int, Meta(ge=50, le=100_000)] = 500
    compact_at: Annotated[float, Meta(gt=0, le=1)] = 0.8
    compact_keep: Annotated[int, Meta(ge=2)] = 20
    continuations: Annotated[int, Meta(ge=0, le=20)] = 3
    subagent_timeout_s: Seconds = 900.0
    subagents_per_session: Annotated[int, Meta(ge=1, le=1000)] = 10
    subagents_in_all: Annotated[int, Meta(ge=0)] = 0
    hook_s: Seconds = 1.0


class MemorySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What is remembered beyond the conversation. `scope` says whose MEMORY.md a chat has: its own,
    that of its person (in chats of one person), or one for all.

    A conversation of `consolidate_at` entries is consolidated down to the newest `keep`; after
    `idle_s` without a message down to `idle_keep`. Every `rework_h` hours MEMORY.md is written anew
    from HISTORY.md (0: never).
    """

    scope: Literal["chat", "user", "shared"] = "chat"
    consolidate_at: Annotated[int, Meta(ge=4, le=1000)] = 100
    keep: Annotated[int, Meta(ge=0, le=1000)] = 50
    idle_s: Annotated[float, Meta(ge=0, le=86400 * 30)] = 900.0
    idle_keep: Annotated[int, Meta(ge=0, le=1000)] = 8
    rework_h: Annotated[float, Meta(ge=0, le=24 * 365)] = 0.0
    file_bytes: Annotated[int, Meta(ge=1024, le=256 * 1024)] = 32 * 1024
    log_bytes: Annotated[int, Meta(ge=1024, le=16 * 1024 * 1024)] = 1024 * 1024


class BudgetSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What one chat may use in one day (UTC); 0 is no limit. At `warn_at` of it the chat is
    told."""

    tokens_per_day: Annotated[int, Meta(ge=0)] = 0
    usd_per_day: Annotated[float, Meta(ge=0)] = 0.0
    warn_at: Annotated[float, Meta(gt=0, le=1)] = 0.8


class PluginSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Hooks, tools and commands of installed packages. Those named in `off` are not loaded."""

    off: tuple[str, ...] = ()


class WorkerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How much one worker runs at once, how long a lease holds, and how long a drain may take.

    A turn that stood in two crashes runs apart, in a process with `quarantine_mb` of memory. One
    person has at most `share` of the turns that run in the fleet while others wait."""

    turns: Count = 100
    jobs: Count = 20
    processes: Annotated[int, Meta(ge=1, le=256)] = 1
    lease_s: Annotated[float, Meta(ge=0.5, le=300)] = 15.0
    drain_s: Annotated[float, Meta(ge=0, le=3600)] = 55.0
    quarantine_mb: Annotated[int, Meta(ge=128)] = 1024
    share: Annotated[float, Meta(gt=0, le=1)] = 0.5


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
    """Where /metrics, /healthz and /readyz are. `port` None is the process's own default; 0 is any
    free one."""

    host: Text = "127.0.0.1"
    port: Port | None = None

    def port_of(self, process: Literal["gateway", "worker"]) -> int:
        """The port that this kind of process listens on: gateway 9464, worker 9465, unless one is
        set."""
        return _METRICS_PORTS[process] if self.port is None else self.port


class WorkspaceSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the sessions' files are; a shared volume in a cluster. By default `workspaces` under
    `data.dir`.

    One session has at most `files` files of `quota_mb` in all; long results of tools are kept for
    `results_days`. With `group` (a number) they are for that group, too: for a runner of another
    user."""

    root: Path = Path(".shoal/workspaces")
    quota_mb: Annotated[int, Meta(ge=1, le=1024 * 1024)] = 64
    files: Annotated[int, Meta(ge=10, le=100_000)] = 2000
    results_days: Annotated[float, Meta(gt=0, le=365)] = 7.0
    group: Annotated[int, Meta(ge=1, le=2**32 - 2)] | None = None


class ToolsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Which tools the model may be offered. `exec` also needs a sandbox; without one it stays off.

    `web` is the web, with `search_engine` at `search_url` (empty: its usual place). `web_allow` are
    private hosts, addresses or networks that may be reached, with or without a port; all others are
    refused. `message_to` are patterns of sessions, such as `web:*`, that the message tool of every
    chat may write to beside its person's own.

    A command of exec has `exec_timeout_s` unless it asks for other (600 at most); each of its
    processes `exec_cpu_s` of work, and all together `exec_memory_mb` and `exec_processes`; one file
    has at most `exec_file_mb`, its output `exec_output_kb`. It has the network only with
    `exec_network`, and of the worker's environment what `exec_env` names. `exec_runner` is the
    socket of a runner, for machines where no other sandbox can be had."""

    exec: bool = True
    web: bool = True
    search_engine: Literal["duckduckgo", "searxng", "brave", "tavily", "off"] = "duckduckgo"
    search_url: str = ""
    search_key: Secret | None = None
    fetch_bytes: Annotated[int, Meta(ge=1024, le=64 * 1024 * 1024)] = 2 * 1024 * 1024
    fetch_s: Annotated[float, Meta(ge=1, le=300)] = 20.0
    web_allow: tuple[str, ...] = ()
    message_to: tuple[str, ...] = ()
    exec_timeout_s: Annotated[float, Meta(ge=1, le=600)] = 60.0
    exec_cpu_s: Annotated[int, Meta(ge=1, le=3600)] = 60
    exec_memory_mb: Annotated[int, Meta(ge=64, le=1024 * 1024)] = 512
    exec_processes: Annotated[int, Meta(ge=4, le=4096)] = 64
    exec_file_mb: Annotated[int, Meta(ge=1, le=1024 * 1024)] = 64
    exec_output_kb: Annotated[int, Meta(ge=1, le=16 * 1024)] = 1024
    exec_network: bool = False
    exec_env: tuple[str, ...] = ()
    exec_runner: str = ""


class InboxSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How many messages may wait in one session, and how many sessions may wait, before more are
    refused.

    One sender may write `sender_per_minute` messages, all at once or spread; 0 = as many as they
    like. `bot_turns` messages of bots within `bot_window_s` and no person between them pause a chat
    for bots; 0 = never.

    `busy` is what is done with a message that comes while a turn runs; a channel may have its own
    (`channels.<name>.busy`), and a chat (`/busy`). `merge_s` is how long a burst is waited for."""

    cap: Annotated[int, Meta(ge=1, le=1000)] = 50
    sessions_cap: Count = 100_000
    sender_per_minute: Annotated[int, Meta(ge=0, le=60_000)] = 60
    bot_turns: Annotated[int, Meta(ge=0, le=1000)] = 20
    bot_window_s: Seconds = 300.0
    busy: Busy = "queue"
    merge_s: Annotated[float, Meta(ge=0, le=60)] = 2.0


class LogSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How the log looks. `auto` is `console` on a terminal and `json` elsewhere; colour `auto` is
    on a terminal."""

    format: Literal["auto", "json", "console"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"
    colour: Literal["auto", "always", "never"] = "auto"

    def as_json(self, *, terminal: bool) -> bool:
        """Whether lines are JSON on an output that is, or is not, a terminal."""
        return self.format == "json" or (self.format == "auto" and not terminal)


class DataSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where `make up` keeps what must survive a restart."""

    dir: Path = Path(".shoal")


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings. `channels` holds one table a channel, which its own settings module reads;
    `mcp` one a server."""

    redis: RedisSettings = field(default_factory=RedisSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    agent: AgentSettings = field(default_factory=AgentSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    plugins: PluginSettings = field(default_factory=PluginSettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    web: WebSettings = field(default_factory=WebSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    channels: dict[str, dict[str, Any]] = {}
    hooks: HooksSettings = field(default_factory=HooksSettings)
    delivery: DeliverySettings = field(default_factory=DeliverySettings)
    workspace: WorkspaceSettings = field(default_factory=WorkspaceSettings)
    media: MediaSettings = field(default_factory=MediaSettings)
    tools: ToolsSettings = field(default_factory=ToolsSettings)
    approval: ApprovalSettings = field(default_factory=ApprovalSettings)
    mcp: dict[str, McpServerSettings] = {}
    inbox: InboxSettings = field(default_factory=InboxSettings)
    cron: CronSettings = field(default_factory=CronSettings)
    heartbeat: HeartbeatSettings = field(default_factory=HeartbeatSettings)
    runner: RunnerSettings = field(default_factory=RunnerSettings)
    tracing: TracingSettings = field(default_factory=TracingSettings)
    log: LogSettings = field(default_factory=LogSettings)
    data: DataSettings = field(default_factory=DataSettings)
