"""Which part of Shoal a piece of code is, for tables of where the time goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from proof.bench.sampler import Stack

_COMMON: Final = {
    "redis/": "Redis client",
    "shared/store/client/redis_client.py": "Redis client",
    "shared/store/client/connection.py": "Redis client",
    "shared/store/client/pubsub.py": "Redis client",
    "structlog/": "log",
    "logging/": "log",
    "shared/log.py": "log",
    "prometheus_client/": "metrics",
    "shared/metrics.py": "metrics",
    "shared/tracing": "traces",
}
_WORKER: Final = _COMMON | {
    "worker/turn/traces.py": "traces",
    "worker/llm/": "model: limits, prices, traces",
    "proof/bench/ready_model.py": "model: limits, prices, traces",
    "worker/turn/live_updates.py": "live text",
    "worker/agent/model/stream.py": "live text",
    "worker/prompts/": "prompt",
    "worker/skills/": "prompt",
    "worker/skills/skill_folder.py": "prompt",
    "worker/agent/model/prompt.py": "prompt",
    "worker/agent/model/context_window.py": "prompt",
    "worker/agent/limits.py": "prompt",
    "worker/turn/conversation.py": "history",
    "shared/messages/transcript.py": "history",
    "shared/messages/codec.py": "history",
    "worker/guards/": "workspace",
    "worker/turn/attachments.py": "workspace",
    "worker/turn/files.py": "workspace",
    "concurrent/futures/": "workspace",
    "worker/turn/journal.py": "ledger",
    "worker/lease/lease_loop.py": "queue and lease",
    "worker/lease/lease.py": "queue and lease",
    "shared/store/turns/queue.py": "queue and lease",
    "shared/store/turns/turn_writes.py": "commit",
    "worker/attempt/run_turn.py": "commit",
    "worker/turn/turn_agent.py": "putting a turn together",
    "worker/agent/": "agent loop",
    "worker/": "other",
    "shared/": "other",
}
_GATEWAY: Final = _COMMON | {
    "gateway/process/traces.py": "traces",
    "gateway/channels/web/markdown.py": "Markdown",
    "gateway/channels/web/renderer.py": "Markdown",
    "gateway/channels/web/socket/frames.py": "Markdown",
    "markdown_it/": "Markdown",
    "gateway/ingress/ingest.py": "ingest",
    "shared/store/turns/inbox.py": "ingest",
    "gateway/channels/web/socket/frame_handler.py": "ingest",
    "gateway/channels/web/socket/page_reader.py": "chats and their sockets",
    "shared/chatlog/": "chats and their sockets",
    "gateway/channels/web/socket/socket.py": "chats and their sockets",
    "shared/store/delivery/fanout.py": "pub/sub",
    "shared/messages/live.py": "pub/sub",
    "gateway/channels/web/socket/connection.py": "WebSocket server",
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
