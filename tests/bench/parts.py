"""Which part of Shoal a piece of code is, for tables of where the time goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tests.bench.sampler import Stack

_COMMON: Final = {
    "redis/": "Redis client",
    "shared/store/client.py": "Redis client",
    "shared/store/connection.py": "Redis client",
    "shared/store/pubsub.py": "Redis client",
    "structlog/": "log",
    "logging/": "log",
    "shared/log.py": "log",
    "prometheus_client/": "metrics",
    "shared/metrics.py": "metrics",
    "shared/tracing": "traces",
}
_WORKER: Final = _COMMON | {
    "worker/traces.py": "traces",
    "worker/llm/": "model: limits, prices, traces",
    "tests/bench/ready_model.py": "model: limits, prices, traces",
    "worker/live_show.py": "live text",
    "worker/agent/stream.py": "live text",
    "worker/agent/think.py": "live text",
    "worker/prompts/": "prompt",
    "worker/skills/": "prompt",
    "worker/watched.py": "prompt",
    "worker/agent/prompt.py": "prompt",
    "worker/agent/view.py": "prompt",
    "worker/agent/limits.py": "prompt",
    "worker/agent/pictures.py": "prompt",
    "worker/conversation.py": "history",
    "shared/messages/transcript.py": "history",
    "shared/messages/codec.py": "history",
    "worker/guards/": "workspace",
    "worker/attachments.py": "workspace",
    "worker/files.py": "workspace",
    "concurrent/futures/": "workspace",
    "worker/turn_journal.py": "ledger",
    "worker/leases.py": "queue and lease",
    "worker/lease.py": "queue and lease",
    "shared/store/queue.py": "queue and lease",
    "shared/store/turns.py": "commit",
    "worker/jobs/run_turn.py": "commit",
    "worker/answer.py": "putting a turn together",
    "worker/agent/": "agent loop",
    "worker/": "other",
    "shared/": "other",
}
_GATEWAY: Final = _COMMON | {
    "gateway/traces.py": "traces",
    "gateway/channels/web/markdown.py": "Markdown",
    "gateway/channels/web/lines.py": "Markdown",
    "markdown_it/": "Markdown",
    "gateway/ingress.py": "ingest",
    "shared/store/inbox.py": "ingest",
    "gateway/channels/web/answers.py": "ingest",
    "gateway/channels/web/hub.py": "chats and their sockets",
    "gateway/channels/web/room.py": "chats and their sockets",
    "gateway/channels/web/outgoing.py": "chats and their sockets",
    "gateway/channels/web/socket.py": "chats and their sockets",
    "shared/store/fanout.py": "pub/sub",
    "shared/messages/live.py": "pub/sub",
    "gateway/channels/web/connection.py": "WebSocket server",
    "starlette/": "WebSocket server",
    "uvicorn/": "WebSocket server",
    "websockets/": "WebSocket server",
    "gateway/": "other",
    "shared/": "other",
}


def _rule(prefixes: Mapping[str, str]) -> Callable[[Stack], str]:
    """The innermost frame that is known says which part it is."""

    def part_of(stack: Stack) -> str:
        for frame in stack:
            for prefix, part in prefixes.items():
                if frame.startswith(prefix):
                    return part
        return "event loop"

    return part_of


RULES: Final = {"worker": _rule(_WORKER), "gateway": _rule(_GATEWAY)}
"""By process: the part that a stack is of."""

OURS: Final = frozenset(
    prefix for prefix in (*_WORKER, *_GATEWAY) if prefix.startswith(("gateway/", "shared/", "tests/", "worker/"))
)
"""What they name of our own files and folders."""
